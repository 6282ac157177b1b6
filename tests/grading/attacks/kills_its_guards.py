"""Every signal to every process it can name."""

CELL = """
import os

def attack(x):
    worked = []
    for process in (1, os.getppid(), -1):
        for number in (9, 15, 2, 19, 6, 11, 24, 31):
            try:
                if process != -1 or number not in (2, 15, 19):
                    os.kill(process, number)
            except OSError:
                pass
    return 0.0
"""
STATUS = "ran"
VALUE = 0.0
