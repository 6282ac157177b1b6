"""memfd, System V segments, message queues: memory that no process is charged for."""

CELL = """
import ctypes
import os

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    tried = [
        libc.memfd_create(b"bomb", 0),
        libc.shmget(0, ctypes.c_size_t(2**30), 0o1600),
        libc.msgget(0, 0o1600),
        libc.semget(0, 100, 0o1600),
    ]
    return tuple(tried)
"""
VALUE = (-1, -1, -1, -1)
MACHINE = "x86_64 aarch64"
