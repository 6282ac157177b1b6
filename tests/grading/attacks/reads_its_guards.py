"""Memory, environment and open files of the warden."""

CELL = """
import ctypes
import os

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    worked = []
    for name in ("environ", "mem", "maps", "auxv", "root/tmp", "cwd/x", "fd/0", "fd/1", "fd/2", "fd/3", "fd/4"):
        for mode in (os.O_RDONLY, os.O_WRONLY):
            try:
                file = os.open(f"/proc/1/{name}", mode)
                if os.read(file, 10) or mode:
                    worked.append(name)
            except OSError:
                pass
    if libc.ptrace(16, 1, 0, 0) != -1:
        worked.append("ptrace")
    there = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    if libc.process_vm_readv(1, there, 1, there, 1, 0) != -1:
        worked.append("process_vm_readv")
    if libc.syscall(438, libc.syscall(434, 1, 0), 1, 0) != -1:
        worked.append("pidfd_getfd")
    return tuple(worked)
"""
STATUS = "ran"
VALUE = ()
TOUCHED = "/proc/1/environ"
