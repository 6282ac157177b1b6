"""Limits, priority and processors of the warden, set by the process it watches."""

CELL = """
import ctypes
import os
import resource

def attack(x):
    worked = []

    def attempt(name, change):
        try:
            change()
            worked.append(name)
        except OSError:
            pass

    attempt("files", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0)))
    attempt("processor time", lambda: resource.prlimit(1, resource.RLIMIT_CPU, (1, 1)))
    attempt("memory", lambda: resource.prlimit(1, resource.RLIMIT_AS, (1, 1)))
    attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
    attempt("processors", lambda: os.sched_setaffinity(1, {0}))
    attempt("class", lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)))
    return tuple(worked)
"""
STATUS = "ran"
VALUE = ()
MACHINE = "x86_64 aarch64"
