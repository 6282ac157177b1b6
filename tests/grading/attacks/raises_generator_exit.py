"""An exception that hardly anything catches."""

CELL = """
def attack(x):
    raise GeneratorExit()
"""
STATUS = "ran"
ERROR = "GeneratorExit"
