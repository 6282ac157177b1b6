"""As if somebody had pressed Ctrl-C."""

CELL = """
def attack(x):
    raise KeyboardInterrupt()
"""
STATUS = "ran"
ERROR = "KeyboardInterrupt"
