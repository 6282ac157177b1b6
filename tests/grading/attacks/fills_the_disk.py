"""Fills every folder it can write to."""

CELL = """
import os

def attack(x):
    written = {}
    for folder, folders, _ in os.walk("/"):
        folders[:] = [f for f in folders if f not in ("proc", "site-packages") and folder.count("/") < 4]
        try:
            with open(os.path.join(folder, "filling"), "wb") as file:
                written[folder] = 0
                while True:
                    written[folder] += file.write(b"x" * 2**16)
                    file.flush()
        except OSError:
            pass
    return tuple({folder.split("/")[1] for folder in written})
"""
VALUE = ("tmp",)
