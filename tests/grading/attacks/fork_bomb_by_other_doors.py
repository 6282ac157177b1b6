"""Every other way to a second process."""

CELL = """
import ctypes
import multiprocessing
import os
import subprocess
import sys

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    worked = []

    def attempt(name, start):
        try:
            if start() not in (-1, None):
                worked.append(name)
        except OSError:
            pass

    attempt("fork", libc.fork)
    attempt("vfork", lambda: libc.syscall(58))
    attempt("clone", lambda: libc.syscall(56, 17, 0, 0, 0, 0))
    attempt("clone in this memory", lambda: libc.syscall(56, 0x100 | 17, 0, 0, 0, 0))
    attempt("clone3", lambda: libc.syscall(435, ctypes.create_string_buffer(88), 88))
    attempt("subprocess", lambda: subprocess.Popen([sys.executable, "-c", "pass"]))
    attempt("shell", lambda: subprocess.run("true", shell=True).returncode)
    attempt("spawn", lambda: os.posix_spawn(sys.executable, [sys.executable, "-c", "pass"], {}))
    attempt("multiprocessing", lambda: multiprocessing.get_context("spawn").Process(target=print).start())
    attempt("exec", lambda: os.execv(sys.executable, [sys.executable, "-c", "pass"]))
    return tuple(worked)
"""
VALUE = ()
MACHINE = "x86_64"
