"""Signals are ignored, every exception is caught, and the pipe to the grader is closed."""

CELL = """
import os
import signal
import time

def attack(x):
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.closerange(0, 100_000)
    while True:
        try:
            time.sleep(100)
        except BaseException:
            pass
"""
GROUP = "endless"
STATUS = "killed"
REASON = "stopped after 3 seconds"
