"""Files and folders without any permission."""

CELL = """
import os

def attack(x):
    if os.path.exists("/tmp/locked"):
        return 0
    os.mkdir("/tmp/locked")
    open("/tmp/locked/file", "w").close()
    os.symlink("/", "/tmp/link")
    os.mkfifo("/tmp/fifo")
    os.chmod("/tmp/locked", 0)
    return 0
"""
VALUE = 0
