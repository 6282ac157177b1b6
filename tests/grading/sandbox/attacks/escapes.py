"""Ways out: to the machine, its guards, the expectations, and more rights."""

from attack import Attack

ATTACKS = {
    "has_a_name_that_is_no_text": Attack(
        says="Calls itself by bytes that stand for no letters, where the warden reads about its processes.",
        cell="""
import ctypes
import time

def attack(x):
    ctypes.CDLL(None).prctl(15, b") \\xff\\xfe\\n1 (")
    time.sleep(0.2)
    return 0.0
""",
        status="ran",
        value=0.0,
    ),
    "calls_old_doors_of_the_kernel": Attack(
        says="A system call by its 32-bit number, to slip past a filter of 64-bit ones.",
        cell="""
import ctypes
import mmap

def attack(x):
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b802000000cd80c3"))  # fork by interrupt 0x80
    start = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    return start()
""",
        machines=("x86_64",),
        status="killed",
        reason="a system call that no calculation makes",
    ),
    "gains_privileges": Attack(
        says="Capabilities, other users, memory dumps, a program with the setuid bit.",
        cell="""
import ctypes
import os

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    worked = []
    for name, change in {
        "setuid": lambda: os.setuid(0),
        "setgid": lambda: os.setgid(0),
        "setgroups": lambda: os.setgroups([0]),
        "chroot": lambda: os.chroot("/tmp"),
        "mknod": lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(254, 0)),
        "su": lambda: os.execv("/usr/bin/su", ["su"]),
    }.items():
        try:
            change()
            worked.append(name)
        except OSError:
            pass
    for option in (24, 38):  # drop from the bounding set; no new privileges, back to 0
        if libc.prctl(option, 0, 0, 0, 0) == 0:
            worked.append(option)
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    return tuple(worked), int(status["CapEff"], 16), int(status["CapBnd"], 16), status["NoNewPrivs"].strip()
""",
        status="ran",
        value=((), 0, 0, "1"),
    ),
    "kills_its_guards": Attack(
        says="Every signal to every process it can name.",
        cell="""
import os

def attack(x):
    worked = []
    for process in (1, os.getppid(), -1):
        for number in (9, 15, 2, 19, 6, 11, 24, 31):
            try:
                if process != -1 or number not in (2, 15, 19):
                    os.kill(process, number)
            except OSError:
                pass
    return 0.0
""",
        status="ran",
        value=0.0,
    ),
    "mounts": Attack(
        says="New namespaces and mounts, with which a process could see or cover what it should not.",
        cell="""
import ctypes

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    spaces = {"user": 0x10000000, "mount": 0x20000, "process": 0x20000000, "network": 0x40000000}
    worked = [name for name, flag in spaces.items() if libc.unshare(flag) == 0]
    for target in (b"/tmp", b"/proc", b"/usr", b"/"):
        if libc.mount(b"none", target, b"tmpfs", 0, None) == 0:
            worked.append(target.decode())
        if libc.mount(b"none", target, None, 32 | 4096, None) == 0:  # the same mount, writable
            worked.append("remount " + target.decode())
        if libc.umount2(target, 2) == 0:
            worked.append("umount " + target.decode())
    return tuple(worked)
""",
        status="ran",
        value=(),
    ),
    "opens_doors_of_the_kernel": Attack(
        says="Parts of the kernel that no calculation needs.",
        cell="""
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
""",
        machines=("x86_64",),
        status="ran",
        value=(),
    ),
    "raises_its_limits": Attack(
        says="Limits that a process has given up cannot be taken back.",
        cell="""
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
""",
        status="ran",
        value=(),
    ),
    "reaches_the_network": Attack(
        says="Addresses, names, and every other family of sockets.",
        cell=r"""
import socket

def attack(x):
    worked = []

    def attempt(name, reach):
        try:
            reach()
            worked.append(name)
        except OSError:
            pass

    for port in (22, 53, 80, 443, 8888, 45123):
        for host in ("127.0.0.1", "::1", "10.0.0.1", "169.254.169.254"):
            attempt((host, port), lambda host=host, port=port: socket.create_connection((host, port), 0.2))
    attempt("names", lambda: socket.getaddrinfo("example.com", 80))
    attempt("datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("8.8.8.8", 53)))
    for path in ("\0canary", "/tmp/.X11-unix/X0", "/run/dbus/system_bus_socket", "/var/run/docker.sock"):
        attempt(path, lambda path=path: socket.socket(socket.AF_UNIX).connect(path))
    for family in range(64):
        if family not in (1, 2, 10):
            attempt(family, lambda family=family: socket.socket(family, socket.SOCK_DGRAM))
            attempt(family, lambda family=family: socket.socket(family, socket.SOCK_RAW))
    attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
    return tuple(map(str, worked))
""",
        status="ran",
        value=(),
    ),
    "reads_its_guards": Attack(
        says="Memory, environment and open files of the warden.",
        cell="""
import ctypes
import os

def attack(x):
    libc = ctypes.CDLL(None, use_errno=True)
    worked = []
    for name in ("environ", "mem", "maps", "auxv", "root/tmp", "cwd/x", "fd/0", "fd/1", "fd/2", "fd/3", "fd/4"):
        for mode in (os.O_RDONLY, os.O_WRONLY):
            try:
                file = os.open(f"/proc/1/{name}", mode)
                if os.read(file, 10) or mode:
                    worked.append(name)
            except OSError:
                pass
    if libc.ptrace(16, 1, 0, 0) != -1:
        worked.append("ptrace")
    there = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    if libc.process_vm_readv(1, there, 1, there, 1, 0) != -1:
        worked.append("process_vm_readv")
    if libc.syscall(438, libc.syscall(434, 1, 0), 1, 0) != -1:
        worked.append("pidfd_getfd")
    return tuple(worked)
""",
        status="ran",
        value=(),
        touched="/proc/1/environ",
    ),
    "reads_the_environment": Attack(
        says="Tokens, proxies and names that the grader was started with.",
        cell="""
import os

def attack(x):
    expected = {"PATH", "HOME", "USER", "LANG", "PWD", "OLDPWD", "SHLVL", "_", "MPLBACKEND", "HF_HUB_OFFLINE"}
    others = {name for name in os.environ if not name.startswith(("PYTHON", "KMP_", "TORCH", "MALLOC_"))} - expected
    return tuple(sorted(name for name in others if not name.endswith("_NUM_THREADS")))
""",
        status="ran",
        value=(),
    ),
    "reads_the_expectations": Attack(
        says="The exercises with their answers, the hidden cases, the masters, what was measured.",
        cell="""
import importlib
import os

def attack(x):
    found = []
    for name in ("lessons.wanda.exercises", "lessons.patterns.exercises", "lessons.kv", "grading.hidden_cases.wanda"):
        try:
            importlib.import_module(f"course_lib.{name}")
            found.append(name)
        except ImportError:
            pass
    import course_lib

    library = os.path.dirname(course_lib.__file__)
    places = ["lessons", "lessons/wanda", "lessons/wanda/exercises", "grading/hidden_cases"]
    for name in (*places, "../solutions", "../tests", "../notebooks", "../.git"):
        try:
            found += os.listdir(os.path.join(library, name))
        except OSError:
            pass
    return tuple(found)
""",
        status="ran",
        value=(),
        touched="course_lib/lessons",
    ),
    "starves_its_guards": Attack(
        says="Limits, priority and processors of the warden, set by the process it watches.",
        cell="""
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
""",
        machines=(
            "x86_64",
            "aarch64",
        ),
        status="ran",
        value=(),
    ),
    "walks_the_file_system": Attack(
        says="Looks everywhere for masters, other submissions and what people keep at home.",
        cell="""
import os

def attack(x):
    found = []
    for folder, folders, files in os.walk("/"):
        folders[:] = [f for f in folders if os.path.join(folder, f) not in ("/proc", "/usr/share", "/usr/lib")]
        if folder.endswith("site-packages"):
            folders[:] = ["course_lib"]
        found += [name for name in files if name.endswith(".ipynb") or "canary" in name or name == "04_wanda.py"]
    for place in ("/home", "/etc/shadow", "/etc/passwd", "/var", "/run", "/sys", "/mnt", "/srv", "/opt", "/boot"):
        if os.path.isfile(place) or os.path.isdir(place) and len(os.listdir(place)) > 1:
            found.append(place)  # one entry is the way to the course or to Python, where these lie there
    return tuple(found)
""",
        status="ran",
        value=(),
    ),
    "writes_outside": Attack(
        says="Files of the library, of Python, of the system, and switches of the kernel.",
        cell="""
import os
import sys

import torch

import course_lib

def attack(x):
    places = [course_lib.__file__, torch.__file__, os.__file__, sys.executable, "/usr/bin/new", "/etc/passwd", "/new",
              "/dev/shm/new", "/dev/new", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
              "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger", "/proc/self/oom_score_adj", "/proc/1/oom_score_adj",
              "/proc/self/uid_map", "/sys/kernel/mm", os.path.join(os.path.dirname(course_lib.__file__), "lessons/x")]
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
""",
        status="ran",
        value=(),
    ),
    "reaches_every_process": Attack(
        says="Signals, limits, memory and open files of whatever has a number, be it seen in /proc or not.",
        cell="""
import os
import resource

def attack(x):
    worked = []

    def attempt(name, reach):
        try:
            reach()
            worked.append(name)
        except OSError:
            pass

    itself = os.readlink("/proc/self")
    for number in range(1, 500):
        if number not in (1, os.getpid()):  # a signal to the first process may be sent; it is not taken
            attempt(f"signal {number}", lambda: os.kill(number, 9))
            attempt(f"limits of {number}", lambda: resource.prlimit(number, resource.RLIMIT_NOFILE))
    for number in filter(str.isdecimal, os.listdir("/proc")):
        if number != itself:
            for name in ("environ", "mem", "maps", "auxv", "stack", "syscall", "io"):
                attempt(f"{name} of {number}", lambda: open(f"/proc/{number}/{name}", "rb").read(1))
            for name in ("map_files", "cwd", "root", "task/1/cwd"):
                attempt(f"{name} of {number}", lambda: os.listdir(f"/proc/{number}/{name}"))
            for file in range(16):
                attempt(f"file {file} of {number}", lambda: os.open(f"/proc/{number}/fd/{file}", os.O_RDWR))
                attempt(f"name of file {file} of {number}", lambda: os.readlink(f"/proc/{number}/fd/{file}"))
            for name in ("ns/mnt", "ns/pid", "exe"):
                attempt(f"{name} of {number}", lambda: os.readlink(f"/proc/{number}/{name}"))
            for name in ("oom_score_adj", "comm", "timerslack_ns", "uid_map", "setgroups", "clear_refs"):
                attempt(f"writes {name} of {number}", lambda: open(f"/proc/{number}/{name}", "w"))
    return tuple(worked)
""",
        value=(),
    ),
    "looks_for_a_way_to_the_server": Attack(
        says="Open files that are inherited: the way out, and the way in of a key, on which nothing can be written.",
        cell="""
import fcntl
import os

def attack(x):
    found = []
    for number in range(1024):
        try:
            kind = os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
            ways = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
            found.append(kind if kind != "pipe" else ("in", "out", "both")[ways])
        except OSError:
            pass
    return tuple(found)
""",
        value=("/dev/null", "/dev/null", "/dev/null", "out", "in"),
    ),
    "keeps_rights": Attack(
        says="Every set of capabilities, and the users of its namespace.",
        cell="""
def attack(x):
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    with open("/proc/self/uid_map") as users, open("/proc/self/gid_map") as groups:
        n_users, n_groups = users.read().split()[2], groups.read().split()[2]
    return tuple(int(status["Cap" + name], 16) for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")), n_users, n_groups
""",
        value=((0, 0, 0, 0, 0), "1", "1"),
    ),
}
