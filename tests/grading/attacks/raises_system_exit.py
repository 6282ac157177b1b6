"""sys.exit where the grader waits for a value."""

CELL = """
def attack(x):
    raise SystemExit(0)
"""
STATUS = "ran"
ERROR = "SystemExit"
