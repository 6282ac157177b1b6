"""Build the bubblewrap command that starts the warden and shows it only the files that it needs."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal, get_args

from course_lib import kernels
from course_lib.grading.records import Limits

# One sandbox for all submissions in turn; one per submission; the latter for bubblewrap before 0.8. First match wins.
Mode = Literal["shared", "single", "single, old"]
LIBRARY = Path(__file__).parents[2]
ROOT = LIBRARY.parent
HOW_TO_GET_IT = (
    "Install it: `sudo apt install bubblewrap` on Debian and Ubuntu, `sudo dnf install bubblewrap` on Fedora."
)
# Folders of programs and their libraries. Python's own folders and the environment's are added to these.
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/nix/store")
# Answers, measured results, and other parts of the project that could be below a folder that is shown.
_HIDDEN = ("course_lib/lessons", "course_lib/grading/hidden_cases")
_HIDDEN += ("solutions", "notebooks", "tests", "build", ".git")
# Modules that the warden needs; we check for them before a class is graded.
_NEEDED = """
import importlib.util, sys
missing = [name for name in ("course_lib", "numpy", "safetensors", "torch")
           if not importlib.util.find_spec(name)]
if missing:
    sys.exit(f"MISSING {', '.join(missing)}")
"""
_NEEDED_ALONE = """
from course_lib.grading.sandbox import seccomp
sys.exit(seccomp.owns_devices() and not seccomp.forbid() and "ROOT")
"""
_NEEDED_TO_SHARE = """
from course_lib.grading.sandbox import namespaces
sys.exit(not namespaces.possible() and "no namespaces in it")
"""
# One thread, because the processes of a class share the machine; fixed hashes, so that grading again gives the same.
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "USER": "student",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # or every thread reserves address space, which is limited
    "MPLBACKEND": "Agg",
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",  # torch.compile needs a compiler, which is not in the sandbox
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONPATH": str(ROOT),  # however the course was installed; the sandbox shows only the library of this folder
    "PYTHONSAFEPATH": "1",
    "PYTHONNOUSERSITE": "1",
}


def python() -> list[str]:
    """Return the command of this interpreter, without the current folder on its path."""
    return [os.path.abspath(sys.executable), "-s", "-P", "-B"]


def command(limits: Limits, mode: Mode = "shared") -> list[str]:
    """Return the command before the program to run. The kernel's memory killer chooses the sandbox first."""
    first = ["/bin/sh", "-c", 'echo 1000 > /proc/self/oom_score_adj; exec "$0" "$@"', program() or "bwrap"]
    spaces = ["user", "ipc", "pid", "net", "uts", "cgroup-try"]
    options = [f"--unshare-{space}" for space in spaces] + ["--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]
    options += ["--as-pid-1", "--die-with-parent", "--new-session", "--hostname", "sandbox"]
    options += ["--disable-userns", "--size", str(limits.file_bytes)] if mode == "single" else []
    options += ["--tmpfs", "/tmp"]  # first, so that a project under /tmp stays visible
    for folder in shown():
        options += ["--ro-bind", folder, folder]
    for folder in hidden(shown()):
        options += ["--tmpfs", folder, "--remount-ro", folder]
    # In a shared sandbox every job needs /proc to make its namespaces, and then makes it read-only for itself.
    options += ["--proc", "/proc", *([] if mode == "shared" else ["--remount-ro", "/proc"])]
    # No terminals: the machine has one pool of them.
    options += ["--dev", "/dev", "--tmpfs", "/dev/pts", "--remount-ro", "/dev/pts", "--remount-ro", "/dev"]
    return [*first, *options, "--remount-ro", "/", "--chdir", "/tmp", "--"]


def program() -> str | None:
    """Return the path of bubblewrap."""
    return shutil.which("bwrap")


def shown() -> list[str]:
    """Return the folders to show read-only, without those inside another one."""
    own = [str(LIBRARY), *kernels.__path__]  # not found by name, because the path may contain anything
    prefixes = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    prefixes.append(str(Path(os.path.realpath(sys.executable)).parents[1]))
    own += [part for prefix in prefixes for part in _of_python(prefix)]
    wanted = {*_SYSTEM, *map(os.path.abspath, own), *map(os.path.realpath, own)}
    present = sorted(folder for folder in wanted if folder != "/" and os.path.exists(folder))
    return [f for f in present if not any(f.startswith(f"{other}/") for other in present)]


def _of_python(prefix: str) -> list[str]:
    """Return the folders of a Python installation; only a few of them if it contains the project or a home."""
    if any(folder.is_relative_to(os.path.realpath(prefix)) for folder in (ROOT.resolve(), Path.home().resolve())):
        return [os.path.join(prefix, name) for name in ("bin", "lib", "lib64", "pyvenv.cfg")]
    return [prefix]


def hidden(folders: list[str]) -> list[str]:
    """Return the paths to cover because they are in a folder that is shown."""
    wanted = {base / name for base in (ROOT, ROOT.resolve()) for name in _HIDDEN}
    return sorted(str(path) for path in wanted if path.is_dir() and any(path.is_relative_to(f) for f in folders))


@functools.cache
def variant() -> tuple[Mode, str]:
    """Return the mode in which sandboxes start here, and the reason if none starts, else ""."""
    if sys.platform != "linux" or program() is None:
        reason = f"bubblewrap is not there. {HOW_TO_GET_IT}" if sys.platform == "linux" else "bubblewrap needs Linux."
        return "single", f"{reason} The students' code is not run without it."
    complaint = ""
    for mode in get_args(Mode):
        complaint = _complaint(mode)
        if not complaint:
            return mode, ""
        if "MISSING " in complaint:
            return mode, (
                f"Inside the sandbox Python does not find {complaint.rpartition('MISSING ')[2].strip()}. Install the "
                "course and its packages in a virtual environment, as `make setup` does: a home is not shown."
            )
        if complaint == "ROOT":
            return mode, (
                "As root a submission could take devices such as /dev/null from the whole machine, since its system "
                "calls cannot be filtered here. Grade as another user."
            )
    return "single", (
        f"{version()} is there but no sandbox starts ({complaint[:300]}). It needs the right to make namespaces: in a "
        "container allow it (docker run --privileged is the simplest), on Ubuntu 24.04 or later give bwrap an AppArmor "
        "profile that has `userns`."
    )


def _complaint(mode: Mode) -> str:
    """Explain why no sandbox of that mode starts, or what it lacks; return "" if it works."""
    if mode == "shared" and any(folder.startswith("/tmp/") for folder in shown()):
        return "the course or its Python lies under /tmp, which the /tmp of every job would cover"
    text = _NEEDED + (_NEEDED_TO_SHARE if mode == "shared" else _NEEDED_ALONE)
    line = [*command(Limits(), mode), *python(), "-c", text]
    try:
        done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)[:200]
    if done.returncode == 0:
        return ""
    return done.stderr.strip().rpartition("\n")[2] or f"it ended with code {done.returncode}"


def version() -> str:
    """Return the version, such as "bubblewrap 0.8.0"."""
    done = subprocess.run([program() or "bwrap", "--version"], capture_output=True, text=True, timeout=60)
    return done.stdout.strip() or "bubblewrap"
