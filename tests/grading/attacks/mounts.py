"""New namespaces and mounts, with which a process could see or cover what it should not."""

CELL = """
import ctypes

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    spaces = {"user": 0x10000000, "mount": 0x20000, "process": 0x20000000, "network": 0x40000000}
    worked = [name for name, flag in spaces.items() if libc.unshare(flag) == 0]
    for target in (b"/tmp", b"/proc", b"/usr", b"/"):
        if libc.mount(b"none", target, b"tmpfs", 0, None) == 0:
            worked.append(target.decode())
        if libc.mount(b"none", target, None, 32 | 4096, None) == 0:  # the same mount, writable
            worked.append("remount " + target.decode())
        if libc.umount2(target, 2) == 0:
            worked.append("umount " + target.decode())
    return tuple(worked)
"""
STATUS = "ran"
VALUE = ()
