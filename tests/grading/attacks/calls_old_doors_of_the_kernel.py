"""A system call by its 32-bit number, to slip past a filter of 64-bit ones."""

CELL = """
import ctypes
import mmap

def attack(x):
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b802000000cd80c3"))  # fork by interrupt 0x80
    start = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    return start()
"""
STATUS = "killed"
REASON = "crashed"
MACHINE = "x86_64"
