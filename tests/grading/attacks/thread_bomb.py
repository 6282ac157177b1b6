"""Threads that only wait."""

CELL = """
import threading
import time

def attack(x):
    while True:
        try:
            threading.Thread(target=time.sleep, args=(100,)).start()
        except RuntimeError:
            time.sleep(0.01)
"""
GROUP = "endless"
STATUS = "killed"
REASON = "threads or processes|stopped after"
