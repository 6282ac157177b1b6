"""Parts of the kernel that no calculation needs, and what a process could do to itself to be taken for an accident."""

from attack import Attack

ATTACKS = {
    "locks_files_that_all_see": Attack(
        says="Locks on files of the library and of the system: a word to whoever else can open them.",
        cell="""
import fcntl
import sys

import course_lib

def attack(x):
    locked = []
    for place in (course_lib.__file__, sys.executable, "/etc/ld.so.cache"):
        try:
            with open(place, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                locked.append(place)
        except OSError:
            pass
    return tuple(locked)
""",
        status="ran",
        value=(),
    ),
    "locks_parts_of_files": Attack(
        says="Thousands of record locks on one file, each of which is memory of the kernel.",
        cell="""
import fcntl

def attack(x):
    n = 0
    with open("/tmp/file", "wb") as file:
        try:
            for at in range(0, 6000, 2):
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
                n += 1
        except OSError:
            pass
    return n
""",
        status="ran",
        value=0,
    ),
    "opens_terminals": Attack(
        says="Pseudo-terminals, of which the machine has one pool.",
        cell="""
import os

def attack(x):
    kept = []
    for place in ("/dev/ptmx", "/dev/pts/ptmx"):
        try:
            kept.append(os.open(place, os.O_RDWR | os.O_NOCTTY))
        except OSError:
            pass
    try:
        kept += os.openpty()
    except OSError:
        pass
    return len(kept)
""",
        status="ran",
        value=0,
    ),
    "opens_further_doors_of_the_kernel": Attack(
        says="Asynchronous input and output, which the machine counts for all, and calls that came late.",
        cell="""
import ctypes
import mmap

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    context, page = ctypes.c_ulong(), mmap.mmap(-1, 4096)
    place = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    rules = (ctypes.c_uint64 * 1)(1)
    doors = {
        "io_setup": (206, 1, ctypes.byref(context)),
        "landlock_create_ruleset": (444, ctypes.byref(rules), 8, 0),
        "landlock_version": (444, None, 0, 1),
        "mbind": (237, place, 4096, 0, None, 0, 0),
        "mlock": (149, place, 4096),
        "remap_file_pages": (216, place, 4096, 0, 0, 0),
        "cachestat": (451, 0, ctypes.create_string_buffer(16), ctypes.create_string_buffer(40), 0),
        "mseal": (462, place, 4096, 0),
        "timerfd_create": (283, 1, 0),
        "signalfd": (282, -1, ctypes.create_string_buffer(8), 8),
        "kcmp": (312, 1, 1, 0, 0, 0),
        "vmsplice": (278, 1, None, 0, 0),
        "socket": (41, 1, 1, 0),
        "set_mempolicy": (238, 0, None, 0),
    }
    return tuple(name for name, (number, *arguments) in doors.items() if libc.syscall(number, *arguments) != -1)
""",
        machines=("x86_64",),
        status="ran",
        value=(),
    ),
    "kills_itself": Attack(
        says="The signal by which the kernel ends whoever takes its memory, sent by oneself: it is no accident.",
        cell="""
import ctypes
import fcntl
import os
import signal
import threading

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    worked = []

    def attempt(name, end):
        try:
            if end() != -1:
                worked.append(name)
        except OSError:
            pass

    for number in (signal.SIGKILL, signal.SIGSTOP):
        attempt("kill", lambda: os.kill(os.getpid(), number))
        attempt("raise", lambda: signal.raise_signal(number))
        attempt("thread", lambda: signal.pthread_kill(threading.get_ident(), number))
        attempt("group", lambda: os.killpg(0, number))
        attempt("parent's death", lambda: libc.prctl(1, int(number), 0, 0, 0))
        here, there = os.pipe()
        attempt("data", lambda: fcntl.fcntl(here, 10, int(number)))
        attempt("owner", lambda: fcntl.fcntl(here, fcntl.F_SETOWN, os.getpid()))
    return tuple(worked)
""",
        machines=("x86_64", "aarch64"),
        status="ran",
        value=(),
    ),
}
