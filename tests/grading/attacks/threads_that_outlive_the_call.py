"""The function returns; its threads go on, and write to the grader."""

CELL = """
import os
import threading
import time

def attack(x):
    def haunt():
        while True:
            time.sleep(0.001)
            x.mul_(0)

    for _ in range(4):
        threading.Thread(target=haunt).start()
        threading.Thread(target=haunt, daemon=True).start()
    return 0.0
"""
STATUS = "ran"
VALUE = 0.0
