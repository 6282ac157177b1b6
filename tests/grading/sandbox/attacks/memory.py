"""What takes memory, disk, or what the kernel counts for the user who grades."""

from attack import Attack

ATTACKS = {
    "fills_the_disk": Attack(
        says="Fills every folder it can write to.",
        cell="""
import os

def attack(x):
    written = {}
    for folder, folders, _ in os.walk("/"):
        folders[:] = [f for f in folders if f not in ("proc", "site-packages") and folder.count("/") < 4]
        try:
            with open(os.path.join(folder, "filling"), "wb") as file:
                written[folder] = 0
                while True:
                    written[folder] += file.write(b"x" * 2**16)
                    file.flush()
        except OSError:
            pass
    return tuple({folder.split("/")[1] for folder in written})
""",
        status="ran",
        value=("tmp",),
    ),
    "fills_the_disk_with_empty_files": Attack(
        says="Empty files take no space, but memory of the kernel.",
        cell="""
def attack(x):
    number = 0
    while True:
        open(f"/tmp/{number}", "wb").close()
        number += 1
""",
        status="killed",
        reason="thousands of files",
    ),
    "fills_the_disk_with_many_files": Attack(
        says="As many files as fit, each at the largest allowed size.",
        cell="""
import os

def attack(x):
    for number in range(10_000):
        with open(f"/tmp/{number}", "wb") as file:
            file.write(b"x" * 2**20)
    return number
""",
        status="ran",
        error="No space left|too large",
    ),
    "memory_in_large_sockets": Attack(
        says="Buffers of the kernel that were asked to be large, and those of connections, which grow by themselves.",
        cell="""
import socket

def attack(x):
    kept, n_bytes = [], 0
    for family in (socket.AF_UNIX, socket.AF_INET):
        for _ in range(4):
            try:
                kept += (pair := connected(family))
            except OSError:
                break
            for end in pair:
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    try:
                        end.setsockopt(socket.SOL_SOCKET, option, 2**30)
                    except OSError:
                        pass
                end.setblocking(False)
                try:
                    while True:
                        n_bytes += end.send(b"x" * 2**16)
                except BlockingIOError:
                    pass
    return float(n_bytes / 4)

def connected(family):
    if family == socket.AF_UNIX:
        return socket.socketpair()
    server, client = socket.socket(family), socket.socket(family)
    server.bind(("127.0.0.1", 0))
    server.listen()
    client.connect(server.getsockname())
    return [client, server.accept()[0]]
""",
        status="ran",
        most=2**20,  # a pair; no more than 128 pairs may be open
    ),
    "memory_in_sockets": Attack(
        says="Buffers of the kernel, filled and kept.",
        cell="""
import os
import socket

def attack(x):
    kept, n_bytes = [], 0
    try:
        while True:
            pair = socket.socketpair()
            kept += pair
            pair[0].setblocking(False)
            try:
                while True:
                    n_bytes += pair[0].send(b"x" * 2**16)
            except BlockingIOError:
                pass
    except OSError:
        pass
    return float(n_bytes)
""",
        status="ran",
        most=209715200,
    ),
    "memory_of_lists": Attack(
        says="A list that grows without end.",
        cell="""
def attack(x):
    kept = []
    while True:
        kept.append([0.0] * 10**6)
""",
        machines=(
            "x86_64",
            "aarch64",
        ),
        status="ran",
        error="MemoryError",
    ),
    "memory_of_numpy": Attack(
        says="An array far beyond the limit, written to.",
        cell="""
import numpy

def attack(x):
    return numpy.ones(10**11).sum()
""",
        status="ran",
        error="Unable to allocate|MemoryError",
    ),
    "memory_of_torch": Attack(
        says="Tensors far beyond the limit, caught and tried again.",
        cell="""
import torch

def attack(x):
    kept = []
    for power in range(34, 16, -1):
        try:
            while True:
                kept.append(torch.ones(2**power, dtype=torch.uint8))
        except RuntimeError:
            pass
    return torch.tensor(float(sum(map(len, kept))))
""",
        status="ran",
        most=1073741824,
    ),
    "memory_that_is_shared": Attack(
        says="Anonymous shared memory, which counts as nobody's data.",
        cell="""
import mmap

def attack(x):
    kept = []
    try:
        while True:
            kept.append(mmap.mmap(-1, 2**24))
            kept[-1].write(b"x" * 2**24)
    except (OSError, MemoryError):
        pass
    return float(sum(map(len, kept)))
""",
        status="ran",
        most=1073741824,
    ),
    "memory_without_owner": Attack(
        says="memfd, System V segments, message queues: memory that no process is charged for.",
        cell="""
import ctypes
import os

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    tried = [
        libc.memfd_create(b"bomb", 0),
        libc.shmget(0, ctypes.c_size_t(2**30), 0o1600),
        libc.msgget(0, 0o1600),
        libc.semget(0, 100, 0o1600),
    ]
    return tuple(tried)
""",
        machines=(
            "x86_64",
            "aarch64",
        ),
        status="ran",
        value=(-1, -1, -1, -1),
    ),
    "takes_the_graders_share": Attack(
        says="Watches of files and timers, which the kernel counts for the user who grades, not for the sandbox.",
        cell="""
import ctypes

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    timer, n = ctypes.c_void_p(), 0
    while n < 10**6 and (libc.inotify_init() >= 0 or libc.inotify_init1(0) >= 0):
        n += 1
    while n < 10**6 and libc.timer_create(1, None, ctypes.byref(timer)) == 0:
        n += 1
    return float(n)
""",
        status="ran",
        value=0.0,
    ),
    "threads_with_files_of_their_own": Attack(
        says="Threads that do not share the process's open files, so that each has as many as the limit says.",
        cell=r"""
import ctypes
import mmap
import struct

FLAGS = 0x10900  # a thread of this process (VM, SIGHAND, THREAD), without FILES

def attack(x):
    stack = ctypes.create_string_buffer(2**16)
    top = (ctypes.addressof(stack) + 2**15) & ~15
    # clone(FLAGS, top, 0, 0, 0); the thread ends at once, the caller returns what clone said
    program = b"\xb8\x38\0\0\0\x48\xbf" + struct.pack("<Q", FLAGS) + b"\x48\xbe" + struct.pack("<Q", top)
    program += b"\x31\xd2\x4d\x31\xd2\x4d\x31\xc0\x0f\x05\x85\xc0\x74\x01\xc3\xb8\x3c\0\0\0\x31\xff\x0f\x05"
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(program)
    call = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    return float(call())
""",
        machines=("x86_64",),
        status="ran",
        value=-1.0,  # not permitted
    ),
}
