"""What is left for the next call, the next exercise, the next submission."""

from attack import Attack

ATTACKS = {
    "changes_torch_for_all": Attack(
        says="Settings of torch that would change every later calculation.",
        cell="""
import torch

def attack(x):
    torch.set_default_dtype(torch.float16)
    torch.set_num_threads(8)
    torch.set_grad_enabled(False)
    torch.set_num_interop_threads(8) if x.numel() == 3 else None
    torch.Tensor.__mul__ = lambda *_: None
    return 0.0
""",
        status="ran",
        value=0.0,
    ),
    "leaves_a_maze_in_tmp": Attack(
        says="Folders nested so deeply that the usual ways to remove them fail.",
        cell="""
import os

def attack(x):
    os.chdir("/tmp")
    for _ in range(3000):
        os.makedirs("d" * 100, exist_ok=True)
        os.chdir("d" * 100)
    return 0
""",
        status="ran",
        value=0,
    ),
    "leaves_files_for_the_next": Attack(
        says="Modules that a later process could import by mistake.",
        cell="""
import os

def attack(x):
    for place in ("/tmp/torch.py", "/tmp/usercustomize.py", "/tmp/sitecustomize.py", "/tmp/numpy.py"):
        with open(place, "w") as file:
            file.write("raise SystemExit")
    os.makedirs("/tmp/.local/lib/python3.11/site-packages", exist_ok=True)
    return 0.0
""",
        status="ran",
        value=0.0,
    ),
    "leaves_locked_folders_in_tmp": Attack(
        says="Files and folders without any permission.",
        cell="""
import contextlib
import os

def attack(x):
    if os.path.exists("/tmp/locked"):
        return 0
    os.mkdir("/tmp/locked")
    open("/tmp/locked/file", "w").close()
    os.symlink("/", "/tmp/link")
    os.mkfifo("/tmp/fifo")
    os.mkdir("/tmp/shut", 0)
    with contextlib.suppress(PermissionError):  # what root's submissions meet in a sandbox of their own
        os.chmod("/tmp/locked", 0)
    return 0
""",
        status="ran",
        value=0,
    ),
    "threads_that_outlive_the_call": Attack(
        says="The function returns; its threads go on, and write to the grader.",
        cell="""
import os
import threading
import time

def attack(x):
    def haunt():
        while True:
            time.sleep(0.001)
            x.mul_(0)

    for _ in range(4):
        threading.Thread(target=haunt).start()
        threading.Thread(target=haunt, daemon=True).start()
    return 0.0
""",
        status="ran",
        value=0.0,
    ),
    "timers_that_outlive_the_call": Attack(
        says="Alarms, exit handlers and finalisers that wait for the grader's code.",
        cell="""
import atexit
import os
import signal
import threading
import weakref

def attack(x):
    weakref.finalize(threading.main_thread(), os._exit, 0)
    atexit.register(os._exit, 0)
    threading.Timer(0.01, lambda: None).start()
    signal.signal(signal.SIGVTALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.001)
    return 0.0
""",
        status="ran",
        value=0.0,
    ),
    "leaves_itself_in_memory": Attack(
        says="A notebook and an answer that the next submission looks for in all of its memory.",
        cell="""
# left-behind-in-the-notebook

def attack(x):
    return "-".join(("left", "behind", "in", "an", "answer"))
""",
        value="left-behind-in-an-answer",
        later="""
import re

def later(x):
    found = set()
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps:
            area, rights = line.split()[:2]
            start, end = (int(place, 16) for place in area.split("-"))
            if rights.startswith("rw") and "[v" not in line:
                memory.seek(start)
                found |= set(re.findall(b"left[-]behind[-][a-z-]*", memory.read(end - start) or b""))
    return tuple(sorted(name.decode() for name in found))
""",
        later_value=(),
    ),
    "leaves_marks_on_what_is_shared": Attack(
        says="Rights, times and names of files and devices, and a /tmp that is full and closed.",
        cell="""
import os

PLACES = ["/", "/usr", "/proc", "/dev", "/dev/null", "/dev/full", "/dev/tty", "/dev/pts", "/dev/pts/ptmx", "/dev/shm"]

def attack(x):
    worked = []
    for place in PLACES:
        for name, change in {
            "rights": lambda place=place: os.chmod(place, os.stat(place).st_mode & 0o7777),
            "times": lambda place=place: os.utime(place),
            "attribute": lambda place=place: os.setxattr(place, "user.left", b"behind"),
            "file": lambda place=place: open(os.path.join(place, "left-behind"), "w"),
        }.items():
            try:
                change()
                worked.append(name + " of " + place)
            except OSError:
                pass
    try:
        for number in range(1000):
            with open(f"/tmp/{number}", "w") as file:
                file.write("x" * 2**20)
    except OSError:
        pass
    os.utime("/tmp", (1, 1))
    os.chmod("/tmp", 0)
    return tuple(worked)
""",
        modes=("shared",),  # of one for each submission root owns the devices
        value=(),
        later="""
import os

def later(x):
    with open("/tmp/file", "w") as file:
        file.write("x" * 2**20)
    os.remove("/tmp/file")
    return oct(os.stat("/tmp").st_mode), tuple(os.listdir("/tmp")), os.stat("/tmp").st_mtime > 1
""",
        later_value=("0o40755", (), True),
    ),
    "leaves_a_thread_that_listens": Attack(
        says="A thread that outlives its call under a name of its own, with a socket that has a name everywhere.",
        cell="""
import ctypes
import signal
import socket
import threading
import time

kept = []

def attack(x):
    def listen():
        ctypes.CDLL(None).prctl(15, b"left-behind")
        try:
            server = socket.socket(socket.AF_UNIX)
            server.bind("\\0left-behind")
            server.listen()
        except OSError:
            server = "no sockets"
        kept.append(server)
        time.sleep(1000)

    for number in range(1, 65):
        if number not in (9, 19, 32, 33):
            signal.signal(number, signal.SIG_IGN)
    if not kept:
        threading.Thread(target=listen).start()
    while not kept:
        time.sleep(0.001)
    return 0.0
""",
        value=0.0,
        later="""
import os
import socket

def later(x):
    try:
        with socket.socket(socket.AF_UNIX) as caller:
            answered = caller.connect_ex("\\0left-behind") == 0
    except OSError:
        answered = False
    names = []
    for process in filter(str.isdecimal, os.listdir("/proc")):
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/comm") as file:
                names.append(file.read().strip())
    return answered, "left-behind" in names, len(names) <= 3
""",
        later_value=(False, False, True),
    ),
    "breaks_its_own_end": Attack(
        says="Crashes while a folder is left that the warden cannot empty: what it leaves ends with its sandbox.",
        cell="""
import contextlib
import ctypes
import os

def attack(x):
    os.mkdir("/tmp/locked")
    open("/tmp/locked/file", "w").close()
    with contextlib.suppress(PermissionError):  # what root's submissions meet in a sandbox of their own
        os.chmod("/tmp/locked", 0)
        os.chmod("/tmp", 0)
    return ctypes.string_at(0)
""",
        status="killed",
        reason="crashed",
        later="""
import os

def later(x):
    course = os.environ["PYTHONPATH"].split("/")  # it may lie under /tmp itself
    return tuple(name for name in os.listdir("/tmp") if name not in course), os.getcwd()
""",
        later_value=((), "/tmp"),
    ),
}
