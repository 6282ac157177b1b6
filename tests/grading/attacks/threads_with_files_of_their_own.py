"""Threads that do not share the process's open files, so that each has as many as the limit says."""

CELL = r"""
import ctypes
import mmap
import struct

FLAGS = 0x10900  # a thread of this process (VM, SIGHAND, THREAD), without FILES

def attack(x):
    stack = ctypes.create_string_buffer(2**16)
    top = (ctypes.addressof(stack) + 2**15) & ~15
    # clone(FLAGS, top, 0, 0, 0); the thread ends at once, the caller returns what clone said
    program = b"\xb8\x38\0\0\0\x48\xbf" + struct.pack("<Q", FLAGS) + b"\x48\xbe" + struct.pack("<Q", top)
    program += b"\x31\xd2\x4d\x31\xd2\x4d\x31\xc0\x0f\x05\x85\xc0\x74\x01\xc3\xb8\x3c\0\0\0\x31\xff\x0f\x05"
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(program)
    call = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    return float(call())
"""
MACHINE = "x86_64"
STATUS = "ran"
VALUE = -1.0  # not permitted
