"""Empty files take no space, but memory of the kernel."""

CELL = """
def attack(x):
    number = 0
    while True:
        open(f"/tmp/{number}", "wb").close()
        number += 1
"""
STATUS = "killed"
REASON = "thousands of files"
