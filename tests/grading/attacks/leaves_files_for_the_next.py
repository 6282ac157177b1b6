"""Modules that a later process could import by mistake."""

CELL = """
import os

def attack(x):
    for place in ("/tmp/torch.py", "/tmp/usercustomize.py", "/tmp/sitecustomize.py", "/tmp/numpy.py"):
        with open(place, "w") as file:
            file.write("raise SystemExit")
    os.makedirs("/tmp/.local/lib/python3.11/site-packages", exist_ok=True)
    return 0.0
"""
STATUS = "ran"
VALUE = 0.0
