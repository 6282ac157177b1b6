"""Anonymous shared memory, which counts as nobody's data."""

CELL = """
import mmap

def attack(x):
    kept = []
    try:
        while True:
            kept.append(mmap.mmap(-1, 2**24))
            kept[-1].write(b"x" * 2**24)
    except (OSError, MemoryError):
        pass
    return float(sum(map(len, kept)))
"""
MOST = 1073741824
