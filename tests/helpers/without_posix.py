"""Import all that students use as if this system had no POSIX calls, as Windows has none; print what fails.

Other people's packages come first: they know their systems themselves. With arguments it is the `course` command there.
"""

import asyncio  # noqa: F401
import importlib
import multiprocessing.process
import os
import pkgutil
import signal
import sys

OTHERS = ("torch", "transformers", "datasets", "sklearn", "matplotlib.figure", "nbformat", "nbclient", "jupytext")
OTHERS += ("transformers.models.llama.modeling_llama", "ipywidgets", "IPython", "filelock", "platformdirs")
OTHERS += ("rich.progress", "typer", "psutil", "safetensors.torch")
MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
CALLS = {
    os: ("fork", "forkpty", "getuid", "geteuid", "getpgid", "killpg", "setsid", "mkfifo", "sched_getaffinity", "uname"),
    signal: ("setitimer", "alarm", "SIGALRM", "SIGKILL", "SIGCHLD", "SIGHUP", "ITIMER_REAL"),
}
# The grader needs Linux and says so; course_lib.kernels.gpu runs on a GPU machine; of the rest Windows must have all.
INSTRUCTORS = ("course_lib.grading", "course_lib.workbook.site", "course_lib.kernels.gpu")


def take_away() -> None:
    """What Windows lacks is gone for what is imported from now on."""
    for name in OTHERS:
        importlib.import_module(name)
    for name in MODULES:
        sys.modules[name] = None
    for module, names in CALLS.items():
        for name in filter(lambda name: hasattr(module, name), names):
            delattr(module, name)
    sys.platform = "win32"
    multiprocessing.get_all_start_methods = lambda: ["spawn"]
    multiprocessing.process.BaseProcess.kill = multiprocessing.process.BaseProcess.terminate  # as it is there


def main() -> None:
    """One line for each module that cannot be imported, and for the check that a student's doctor must pass."""
    take_away()
    if sys.argv[1:]:
        return importlib.import_module("course_lib.cli.app").main()
    for found in pkgutil.iter_modules(importlib.import_module("course_lib").__path__, "course_lib."):
        each(found)
    from course_lib.cli import doctor_checks

    row = doctor_checks.check_sandbox()
    if row.state == "error":
        print(f"the doctor stops a student: {row}")


def each(found: pkgutil.ModuleInfo) -> None:
    """Import a module, and what lies in it."""
    if found.name.startswith(INSTRUCTORS):
        return
    try:
        module = importlib.import_module(found.name)
    except Exception as error:
        print(f"{found.name}: {type(error).__name__}: {error}")
        return
    for inside in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{found.name}."):
        each(inside)


if __name__ == "__main__":
    main()
