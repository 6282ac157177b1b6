"""Files of the library, of Python, of the system, and switches of the kernel."""

CELL = """
import os
import sys

import torch

import course_lib

def attack(x):
    places = [course_lib.__file__, torch.__file__, os.__file__, sys.executable, "/usr/bin/new", "/etc/passwd", "/new",
              "/dev/shm/new", "/dev/new", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
              "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger", "/proc/self/oom_score_adj", "/proc/1/oom_score_adj",
              "/proc/self/uid_map", "/sys/kernel/mm", os.path.join(os.path.dirname(course_lib.__file__), "exercises/x")]
    written = []
    for place in places:
        try:
            with open(place, "ab") as file:
                written.append(place)
        except OSError:
            pass
    for change in (os.remove, lambda p: os.rename(p, p + "2"), lambda p: os.chmod(p, 0o777), lambda p: os.utime(p)):
        try:
            change(course_lib.__file__)
            written.append("changed")
        except OSError:
            pass
    return tuple(written)
"""
STATUS = "ran"
VALUE = ()
