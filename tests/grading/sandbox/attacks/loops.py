"""What never ends, or takes every processor."""

from attack import BRIEF, Attack

ATTACKS = {
    "fork_bomb": Attack(
        says="Processes that start processes.",
        cell="""
import os

def attack(x):
    while True:
        os.fork()
""",
        status="ran",
        error="PermissionError|Operation not permitted|temporarily unavailable",
    ),
    "fork_bomb_by_other_doors": Attack(
        says="Every other way to a second process.",
        cell="""
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
""",
        machines=("x86_64",),
        status="ran",
        value=(),
    ),
    "loop_at_import": Attack(
        says="A constant that the function needs is never finished.",
        cell="""
NEVER = any(iter(int, 1))

def attack(x):
    return NEVER
""",
        limits=BRIEF,
        status="killed",
        reason="stopped after 1 seconds",
    ),
    "loop_in_a_pattern": Attack(
        says="A regular expression that backtracks for years.",
        cell="""
import re

def attack(x):
    return re.match("(a+)+$", "a" * 60 + "b")
""",
        limits=BRIEF,
        status="killed",
        reason="stopped after 1 seconds",
    ),
    "loop_in_c": Attack(
        says="A loop inside one instruction, where no alarm of Python rings.",
        cell="""
def attack(x):
    return sum(range(10**15))
""",
        limits=BRIEF,
        status="killed",
        reason="stopped after 1 seconds",
    ),
    "loop_in_python": Attack(
        says="A loop that never ends.",
        cell="""
def attack(x):
    while True:
        pass
""",
        limits=BRIEF,
        status="killed",
        reason="stopped after 1 seconds",
    ),
    "loop_of_products": Attack(
        says="Matrix products for ever, most of the time in torch.",
        cell="""
import torch

def attack(x):
    square = torch.ones(300, 300)
    while True:
        square = square @ square / 300
""",
        limits=BRIEF,
        status="killed",
        reason="stopped after 1 seconds",
    ),
    "loop_that_ignores_every_alarm": Attack(
        says="A loop that never ends, to which no signal says that its time is over.",
        cell="""
import signal

def attack(x):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    while True:
        pass
""",
        limits=BRIEF,
        status="killed",
        reason="stopped after 1 seconds",
    ),
    "loop_that_has_itself_killed": Attack(
        says="Lowers the limit at which the kernel kills it, which then looks as if it came from outside.",
        cell="""
import resource

def attack(x):
    resource.setrlimit(resource.RLIMIT_CPU, (0, 0))
    while True:
        pass
""",
        limits=BRIEF,
        status="killed",
        reason="stopped after 1 seconds",
    ),
    "loop_that_swallows_everything": Attack(
        says="Signals are ignored, every exception is caught, and the pipe to the grader is closed.",
        cell="""
import os
import signal
import time

def attack(x):
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.closerange(0, 100_000)
    while True:
        try:
            time.sleep(100)
        except BaseException:
            pass
""",
        limits=BRIEF,
        status="killed",
        reason="stopped after 2 seconds, most of which it waited",
    ),
    "recursion_bomb": Attack(
        says="A recursion without end and without the limit that Python sets.",
        cell="""
import sys

def attack(x):
    sys.setrecursionlimit(10**9)

    class Endless:
        def __getattr__(self, name):
            return getattr(self, name + "x"[:0])

    return Endless().nothing
""",
        outcome="crashed|MemoryError|RecursionError|memory",
    ),
    "removes_the_time_limit": Attack(
        says="Takes apart what stops a call, by name and by frame.",
        cell="""
import sys

def attack(x):
    from course_lib.checking import call

    call.LIMIT = 10**9
    frame = sys._getframe()
    while frame:
        frame.f_locals.update(limits=None, content=b"", code=0)
        frame = frame.f_back
    raise call.DidNotFinish
""",
        status="ran",
        error="did not finish",
    ),
    "thread_bomb": Attack(
        says="Threads that only wait.",
        cell="""
import threading
import time

def attack(x):
    while True:
        try:
            threading.Thread(target=time.sleep, args=(100,)).start()
        except RuntimeError:
            time.sleep(0.01)
""",
        limits=BRIEF,
        status="killed",
        reason="threads or processes|stopped after",
    ),
}
