"""Capabilities, other users, memory dumps, a program with the setuid bit."""

CELL = """
import ctypes
import os

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    worked = []
    for name, change in {
        "setuid": lambda: os.setuid(0),
        "setgid": lambda: os.setgid(0),
        "setgroups": lambda: os.setgroups([0]),
        "chroot": lambda: os.chroot("/tmp"),
        "mknod": lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(254, 0)),
        "su": lambda: os.execv("/usr/bin/su", ["su"]),
    }.items():
        try:
            change()
            worked.append(name)
        except OSError:
            pass
    for option in (24, 38):  # drop from the bounding set; no new privileges, back to 0
        if libc.prctl(option, 0, 0, 0, 0) == 0:
            worked.append(option)
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    return tuple(worked), int(status["CapEff"], 16), int(status["CapBnd"], 16), status["NoNewPrivs"].strip()
"""
STATUS = "ran"
VALUE = ((), 0, 0, "1")
