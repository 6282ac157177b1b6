"""Isolate each submission in a shared sandbox with namespaces, which the kernel ends as a whole.

bubblewrap keeps the sandbox from the machine. This keeps one submission from the next in the same sandbox: other
processes cannot be named, shared memory and sockets are its own, and nothing but its own /tmp can be written to.
"""

import ctypes
import os
import platform
import re
import sys
from pathlib import Path

from course_lib.grading.sandbox import seccomp

# The kernel's flags CLONE_NEW...: users, mounts, processes, shared memory, host name, network.
_SPACES = 0x10000000 | 0x20000 | 0x20000000 | 0x08000000 | 0x04000000 | 0x40000000
_NOSUID, _NODEV, _NOEXEC, _READ_ONLY, _REMOUNT, _BIND, _PRIVATE = 2, 4, 8, 1, 32, 4096, 0x44000
_DROP_FROM_BOUNDS, _NO_NEW_PRIVILEGES, _AMBIENT, _CLEAR_ALL = 24, 38, 47, 4
_VERSION_3 = 0x20080522  # of the header of capset


def possible() -> bool:
    """Check whether a process here may enter namespaces, by trying in one that ends at once.

    Without the filter of system calls a submission could make namespaces too, which bubblewrap forbids elsewhere.
    """
    if sys.platform != "linux" or not seccomp.program(platform.machine()):
        return False
    pipe, theirs = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            enter(2**20)
            if seccomp.forbid():
                os.write(theirs, b"entered")
        finally:
            os._exit(0)
    os.close(theirs)
    entered = os.read(pipe, 7) == b"entered"
    os.close(pipe)
    os.waitpid(process, 0)
    return entered


def enter(file_bytes: int) -> None:
    """Continue as process 1 of new namespaces, without any capability in them; the calling process ends.

    Args:
        file_bytes: size of the new /tmp.

    Raises:
        OSError: if the kernel refuses a step.
    """
    user, group = os.getuid(), os.getgid()
    seccomp.hide(False)  # or the files below belong to root
    _call("unshare", ctypes.c_int(_SPACES))
    for name, content in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(content, encoding="ascii")
    seccomp.hide(True)
    if os.fork():
        os._exit(0)  # a process namespace begins with the first child
    _mount(b"none", b"/", None, _PRIVATE)
    _lock_all()
    _mount(b"tmpfs", b"/tmp", b"tmpfs", _NOSUID | _NODEV, f"size={file_bytes},mode=755".encode())
    os.chdir("/tmp")  # the folder below this mount cannot be seen any more, not even as the current folder
    _give_up_rights()


def _lock_all() -> None:
    """Make every mount read-only: devices and terminals, the old /tmp, and /proc, which was needed until now."""
    kept = {b"nosuid": _NOSUID, b"nodev": _NODEV, b"noexec": _NOEXEC}  # flags that must be kept
    mounts = [line.split()[4:6] for line in Path("/proc/self/mountinfo").read_bytes().splitlines()]
    for place, options in dict(mounts).items():  # of mounts at the same place the uppermost, which is the last
        place = re.sub(rb"\\(\d{3})", lambda octal: bytes([int(octal[1], 8)]), place)
        if b"ro" not in (options := options.split(b",")):
            flags = sum(flag for name, flag in kept.items() if name in options)
            _mount(None, place, None, _REMOUNT | _BIND | _READ_ONLY | flags)


def _give_up_rights() -> None:
    """Drop all capabilities: the process that makes a user namespace has every one in it."""
    capability = 0
    while seccomp.prctl(_DROP_FROM_BOUNDS, capability):  # until no capability has that number
        capability += 1
    seccomp.prctl(_AMBIENT, _CLEAR_ALL)
    _call("capset", (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)())
    if not seccomp.prctl(_NO_NEW_PRIVILEGES, 1):
        raise OSError("the kernel does not give up new privileges")


def _mount(source: bytes | None, place: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
    _call("mount", source, place, kind, ctypes.c_ulong(flags), options)


def _call(name: str, *arguments: object) -> None:
    """Call a function of the C library that returns 0 on success."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
