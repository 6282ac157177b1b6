"""Filter the system calls of a student's process: allow those of a computation in one process, and no others.

bubblewrap removes every right and every file; this is the second barrier. The list has the calls that Python, torch and
a notebook's imports made under strace (over a synthetic class and every part of torch that lessons use), with the
variants that other versions of the C library use for the same purpose. Everything else is forbidden: other programs and
processes, sockets, locks, asynchronous input and output, memory that is not counted, namespaces, and all new calls of a
later kernel. The filter is in the kernel's own language (seccomp-BPF), for x86-64 and ARM64.

A refused call fails with EPERM, so that libraries fall back; a call newer than this list fails as if it did not exist.
"""

import ctypes
import errno
import os
import platform
import stat
import struct
import sys

_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_NEVER = -1  # where the machine has no such call
# (x86-64, ARM64) numbers of calls that are allowed with any arguments.
_ALLOWED = {
    # files, opened and inspected
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70), "open": (2, _NEVER), "openat": (257, 56),
    "close": (3, 57), "close_range": (436, 436), "lseek": (8, 62), "dup": (32, 23), "dup2": (33, _NEVER),
    "dup3": (292, 24), "pipe": (22, _NEVER), "pipe2": (293, 59), "sendfile": (40, 71), "copy_file_range": (326, 285),
    "stat": (4, _NEVER), "fstat": (5, 80), "lstat": (6, _NEVER), "newfstatat": (262, 79), "statx": (332, 291),
    "statfs": (137, 43), "fstatfs": (138, 44), "access": (21, _NEVER), "faccessat": (269, 48),
    "faccessat2": (439, 439), "readlink": (89, _NEVER), "readlinkat": (267, 78), "getdents64": (217, 61),
    "getcwd": (79, 17), "getxattr": (191, 8), "lgetxattr": (192, 9), "fgetxattr": (193, 10), "listxattr": (194, 11),
    "llistxattr": (195, 12), "flistxattr": (196, 13), "fadvise64": (221, 223),
    # files, created and changed
    "creat": (85, _NEVER), "mkdir": (83, _NEVER), "mkdirat": (258, 34), "rmdir": (84, _NEVER),
    "unlink": (87, _NEVER), "unlinkat": (263, 35), "rename": (82, _NEVER), "renameat": (264, 38),
    "renameat2": (316, 276), "link": (86, _NEVER), "linkat": (265, 37), "symlink": (88, _NEVER),
    "symlinkat": (266, 36), "mknod": (133, _NEVER), "mknodat": (259, 33), "chmod": (90, _NEVER), "fchmod": (91, 52),
    "fchmodat": (268, 53), "utimensat": (280, 88), "utime": (132, _NEVER), "utimes": (235, _NEVER),
    "futimesat": (261, _NEVER), "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47),
    "umask": (95, 166), "chdir": (80, 49), "fchdir": (81, 50), "fsync": (74, 82), "fdatasync": (75, 83),
    "sync_file_range": (277, 84),
    # memory
    "brk": (12, 214), "mmap": (9, 222), "munmap": (11, 215), "mremap": (25, 216), "mprotect": (10, 226),
    "madvise": (28, 233), "msync": (26, 227), "mincore": (27, 232), "membarrier": (324, 283),
    # threads, signals to itself, waiting
    "futex": (202, 98), "set_robust_list": (273, 99), "get_robust_list": (274, 100), "set_tid_address": (218, 96),
    "rseq": (334, 293), "exit": (60, 93), "exit_group": (231, 94), "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123), "sched_getparam": (143, 121), "sched_getscheduler": (145, 120),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126), "wait4": (61, 260),
    "waitid": (247, 95), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136), "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137),
    "sigaltstack": (131, 132), "restart_syscall": (219, 128), "pause": (34, _NEVER), "alarm": (37, _NEVER),
    "getitimer": (36, 102), "setitimer": (38, 103), "nanosleep": (35, 101), "clock_nanosleep": (230, 115),
    "select": (23, _NEVER), "pselect6": (270, 72), "poll": (7, _NEVER), "ppoll": (271, 73),
    "epoll_create": (213, _NEVER), "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, _NEVER),
    "epoll_pwait": (281, 22), "epoll_pwait2": (441, 441), "eventfd": (284, _NEVER), "eventfd2": (290, 19),
    # sockets that are born in pairs
    "sendto": (44, 206), "recvfrom": (45, 207), "shutdown": (48, 210), "getsockname": (51, 204),
    "getsockopt": (55, 209),
    # identity and time
    "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "getpgrp": (111, _NEVER),
    "getpgid": (121, 155), "getsid": (124, 156), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176),
    "getegid": (108, 177), "getresuid": (118, 148), "getresgid": (120, 150), "getgroups": (115, 158),
    "capget": (125, 90), "getrusage": (98, 165), "getrlimit": (97, 163), "setrlimit": (160, 164),
    "getpriority": (140, 141), "times": (100, 153), "time": (201, _NEVER), "gettimeofday": (96, 169),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "uname": (63, 160), "sysinfo": (99, 179),
    "getcpu": (309, 168), "getrandom": (318, 278), "arch_prctl": (158, _NEVER),
}  # fmt: skip
# Calls that are allowed only with some arguments: which argument, and its allowed values.
_FOR_VALUES = {
    "prlimit64": ((302, 261), 0, (0,)),  # its own limits, not the warden's
    "socketpair": ((53, 199), 0, (1,)),  # AF_UNIX; buffers of other families can have many megabytes
    # Duplicate, flags, the size of a pipe. No locks, leases and watches; no signal that the process chooses.
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 4, 1030, 1032)),
    # Is it a terminal (TCGETS, TCGETS2, TIOCGWINSZ), how many bytes are available, close on exec, non-blocking.
    "ioctl": ((16, 29), 1, (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5450, 0x5451, 0x5421)),
    "prctl": ((157, 167), 0, (15, 16, 0x53564D41)),  # names of threads and of memory
}
# Permissions and times of files, which are refused only to the owner of the machine's devices.
_MARKS = ("chmod", "fchmod", "fchmodat", "utimensat", "utime", "utimes", "futimesat")
_CLONE, _CLONE3, _TGKILL = (56, 220), (435, 435), (234, 131)
# clone's flags: for a thread of the same process, for sharing its table of open files, whose size is limited,
# and for namespaces.
_THREAD, _FILES, _SPACES = 0x10000, 0x400, 0x7E020000
# No process in the sandbox may send these, so the process was killed from outside: the grader tries it again.
_SIGKILL, _SIGSTOP = 9, 19
_NEWEST = 451  # later calls have not been reviewed

# Instructions are (code, instructions to skip if true, instructions to skip if false, operand).
_LOAD, _EQUAL, _AT_LEAST, _BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _ARGUMENT = 0, 4, 16  # offsets in the data for the filter; arguments have 8 bytes each
_ALLOW, _KILL = (_RETURN, 0, 0, 0x7FFF0000), (_RETURN, 0, 0, 0x80000000)
_REFUSE, _UNKNOWN, _NO_TERMINAL = (
    (_RETURN, 0, 0, 0x00050000 | number) for number in (errno.EPERM, errno.ENOSYS, errno.ENOTTY)
)
Steps = list[tuple[int, int, int, int]]


def program(machine: str, marks: bool = True) -> Steps:
    """Return the filter for a machine; empty if its call numbers are not known.

    Args:
        marks: whether permissions and times of files may be changed.
    """
    if machine not in _MACHINES:
        return []
    audit, column = _MACHINES[machine]
    steps = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, audit), _KILL, (_LOAD, 0, 0, _NUMBER)]
    steps += [(_AT_LEAST, 0, 1, 0x40000000), _REFUSE]  # the same calls under their x32 numbers
    for name, numbers in _ALLOWED.items():
        if numbers[column] != _NEVER and (marks or name not in _MARKS):
            steps += _when(numbers[column], _ALLOW)
    for name, (numbers, argument, values) in _FOR_VALUES.items():
        allow = [step for value in values for step in ((_EQUAL, 0, 1, value), _ALLOW)]
        steps += _when(numbers[column], _load(argument), *allow, _NO_TERMINAL if name == "ioctl" else _REFUSE)
    thread = [(_BITS, 0, 3, _THREAD), (_BITS, 0, 2, _FILES), (_BITS, 1, 0, _SPACES), _ALLOW, _REFUSE]
    steps += _when(_CLONE[column], _load(0), *thread)
    # the filter cannot see clone3's arguments; without clone3, threads are started by clone.
    steps += _when(_CLONE3[column], _UNKNOWN)
    steps += _when(_TGKILL[column], _load(2), (_EQUAL, 2, 0, _SIGKILL), (_EQUAL, 1, 0, _SIGSTOP), _ALLOW, _REFUSE)
    return [*steps, (_AT_LEAST, 0, 1, _NEWEST), _UNKNOWN, _REFUSE]


def _load(argument: int) -> tuple[int, int, int, int]:
    """Load the lower half of an argument; of the arguments above, the kernel reads only this half."""
    return _LOAD, 0, 0, _ARGUMENT + 8 * argument


def _when(number: int, *block: tuple[int, int, int, int]) -> Steps:
    """Return steps that run the block, which ends in a verdict, for one call, and skip it for all others."""
    return [(_EQUAL, 0, len(block), number), *block]


def forbid() -> bool:
    """Filter this process and every thread it starts, irrevocably. Return False if that is not possible."""
    steps = program(platform.machine(), not owns_devices()) if sys.platform == "linux" else []
    if not steps:
        return False
    packed = b"".join(struct.pack("<HBBI", *step) for step in steps)
    code = ctypes.create_string_buffer(packed, len(packed))
    whole = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    return prctl(38, 1) and prctl(22, 2, ctypes.addressof(whole))  # PR_SET_NO_NEW_PRIVS; PR_SET_SECCOMP with a filter


def owns_devices() -> bool:
    """Check whether this process may change /dev/null, the machine's own: in a sandbox that root started.

    Owner numbers mean nothing in a namespace, so the check sets the present permissions once more.
    """
    try:
        os.chmod(os.devnull, stat.S_IMODE(os.stat(os.devnull).st_mode))
    except OSError:
        return False
    return True


def hide(hidden: bool) -> bool:
    """Hide this process's memory, files and environment from other processes of the same user, or show them again."""
    return sys.platform == "linux" and prctl(4, not hidden)


def prctl(option: int, *arguments: int) -> bool:
    values = [ctypes.c_ulong(int(argument)) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    return ctypes.CDLL(None).prctl(ctypes.c_int(option), *values) == 0
