"""What the kernel refuses to a student's process: starting programs, reaching into other processes, odd sockets.

bubblewrap has taken every right and every file away; this is the second wall. It closes what namespaces do not:
memory that no count sees (memfd, shared segments, large buffers of sockets), sockets to the host of a virtual machine,
the warden's own limits, and parts of the kernel that no calculation needs. A filter in the kernel's own language
(seccomp-BPF), for x86-64 and ARM64.
"""

import ctypes
import errno
import platform
import struct
import sys

_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_NEVER = 10_000  # where the machine has no such call
# (x86-64, ARM64) of what is refused whatever its arguments are.
_REFUSED = {
    # other programs and processes (clone is looked at below)
    "fork": (57, _NEVER), "vfork": (58, _NEVER), "execve": (59, 221), "execveat": (322, 281),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "move_pages": (279, 239), "migrate_pages": (256, 238),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setaffinity": (203, 122), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    # memory that belongs to no process
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "semget": (64, 190),
    "msgget": (68, 186), "mq_open": (240, 180), "setsockopt": (54, 208),
    # what the kernel counts for the user who grades, who may run short of it
    "inotify_init": (253, _NEVER), "inotify_init1": (294, 26), "timer_create": (222, 107),
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    # parts of the kernel that no calculation needs
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "fanotify_init": (300, 262), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "syslog": (103, 116),
    "acct": (163, 89), "swapon": (167, 224), "reboot": (169, 142), "quotactl": (179, 60), "personality": (135, 92),
    "modify_ldt": (154, _NEVER),
}  # fmt: skip
_CLONE, _CLONE3, _PRLIMIT, _SOCKET = (56, 220), (435, 435), (302, 261), (41, 198)
# clone's flags for a thread of the same process, and for one that has no open files of its own: they are limited.
_THREAD, _FILES = 0x10000, 0x400
_UNIX = 1  # sockets of this family find nobody here; those of others have buffers of many megabytes

# Instructions are (code, steps over when true, steps over when false, operand).
_LOAD, _EQUAL, _AT_LEAST, _BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _ARGUMENT = 0, 4, 16  # offsets in what the kernel shows to the filter
_ALLOW, _KILL = (_RETURN, 0, 0, 0x7FFF0000), (_RETURN, 0, 0, 0x80000000)
_REFUSE, _UNKNOWN = ((_RETURN, 0, 0, 0x00050000 | number) for number in (errno.EPERM, errno.ENOSYS))


def program(machine: str) -> list[tuple[int, int, int, int]]:
    """The filter for a machine; empty where its numbers are not known."""
    if machine not in _MACHINES:
        return []
    audit, column = _MACHINES[machine]
    argument = (_LOAD, 0, 0, _ARGUMENT)
    steps = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, audit), _KILL, (_LOAD, 0, 0, _NUMBER)]
    steps += [(_AT_LEAST, 0, 1, 0x40000000), _REFUSE]  # the same calls under the numbers of x32
    # clone3's arguments cannot be seen from here; where there is none, threads are started by clone.
    steps += _when(_CLONE3[column], _UNKNOWN)
    steps += _when(_CLONE[column], argument, (_BITS, 0, 2, _THREAD), (_BITS, 0, 1, _FILES), _ALLOW, _REFUSE)
    steps += _when(_PRLIMIT[column], argument, (_EQUAL, 0, 1, 0), _ALLOW, _REFUSE)
    steps += _when(_SOCKET[column], argument, (_EQUAL, 0, 1, _UNIX), _ALLOW, _REFUSE)
    for numbers in _REFUSED.values():
        steps += _when(numbers[column], _REFUSE)
    return [*steps, _ALLOW]


def _when(number: int, *block: tuple[int, int, int, int]) -> list[tuple[int, int, int, int]]:
    """For one call the block, which ends in a verdict; for all others what follows it."""
    return [(_EQUAL, 0, len(block), number), *block]


def forbid() -> bool:
    """Filter this process for good, and every thread it starts. False where that is not possible."""
    steps = program(platform.machine()) if sys.platform == "linux" else []
    if not steps:
        return False
    packed = b"".join(struct.pack("<HBBI", *step) for step in steps)
    code = ctypes.create_string_buffer(packed, len(packed))
    whole = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    return prctl(38, 1) and prctl(22, 2, ctypes.addressof(whole))  # no new privileges; seccomp, by a filter


def hide(hidden: bool) -> bool:
    """Whether other processes of the same user are kept from this one's memory, files and environment."""
    return sys.platform == "linux" and prctl(4, not hidden)


def prctl(option: int, *arguments: int) -> bool:
    values = [ctypes.c_ulong(int(argument)) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    return ctypes.CDLL(None).prctl(ctypes.c_int(option), *values) == 0
