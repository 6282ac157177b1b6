"""Watches of files and timers, which the kernel counts for the user who grades, not for the sandbox."""

CELL = """
import ctypes

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    timer, n = ctypes.c_void_p(), 0
    while n < 10**6 and (libc.inotify_init() >= 0 or libc.inotify_init1(0) >= 0):
        n += 1
    while n < 10**6 and libc.timer_create(1, None, ctypes.byref(timer)) == 0:
        n += 1
    return float(n)
"""
STATUS = "ran"
VALUE = 0.0
