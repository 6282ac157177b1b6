"""Parts of the kernel that no calculation needs."""

CELL = """
import ctypes

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    memory = ctypes.create_string_buffer(4096)
    doors = {"bpf": 321, "perf": 298, "userfaultfd": 323, "io_uring": 425, "keyctl": 250, "add_key": 248, "kexec": 246,
             "init_module": 175, "syslog": 103, "personality": 135, "fanotify": 300, "open_by_handle_at": 304}
    worked = []
    for name, number in doors.items():
        ctypes.set_errno(0)
        if libc.syscall(number, 0, memory, 128, 0, 0) != -1 or ctypes.get_errno() != 1:
            worked.append(name)
    return tuple(worked)
"""
STATUS = "ran"
VALUE = ()
MACHINE = "x86_64"
