"""Limits that a process has given up cannot be taken back."""

CELL = """
import resource

def attack(x):
    raised = []
    for name in ("AS", "DATA", "CPU", "FSIZE", "NOFILE", "CORE"):
        kind = getattr(resource, "RLIMIT_" + name)
        try:
            resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            raised.append(name)
        except (OSError, ValueError):
            pass
    return tuple(raised)
"""
STATUS = "ran"
VALUE = ()
