"""Start JupyterLab on the first lesson and print its address."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq
from rich.console import Console

from course_lib.cli import doctor
from course_lib.data.assets import cache
from course_lib.workbook.folders import FIRST, ROOT

NBGRADER = ("formgrader", "validate_assignment", "assignment_list", "course_list")  # its server extensions
SECONDS_TO_START = 180  # usually a few; far longer on a busy machine


def free_port(first: int = 8888) -> int:
    """Find the first free port from `first` on; if twenty are taken, the system picks one."""
    for port in (*range(first, first + 20), 0):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return listener.getsockname()[1]
    raise ValueError("got no free port on 127.0.0.1; close other servers or pass one with --port")


def command(port: int, root: Path) -> list[str]:
    """Make the server's command line. It asks no questions and opens no browser."""
    settings = [
        f"--ServerApp.root_dir={root}",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--ServerApp.open_browser=False",
        "--ServerApp.answer_yes=True",
        "--Application.log_level=ERROR",
        f"--LabApp.default_url=/lab/tree/{FIRST}",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # in containers; jupyter refuses to run as root unasked
        settings.append("--ServerApp.allow_root=True")
    return [sys.executable, "-m", "jupyterlab", *settings]


# There is only one kernel, so do not ask which; without the column, the names of the lessons fit.
SETTINGS = {
    "@jupyterlab/notebook-extension:tracker": {"autoStartDefaultKernel": True},
    "@jupyterlab/filebrowser-extension:browser": {"showLastModifiedColumn": False},
}


def house_settings(folder: Path) -> dict[str, str]:
    """Write settings into `folder` with which JupyterLab asks for neither news nor a kernel; return the environment.

    They also keep JupyterLab from loading nbgrader, which instructors have installed and which warns that it is not set
    up here. Messages to and from kernels are encrypted if possible, because otherwise each kernel prints a warning.
    """
    (lab := folder / "labconfig").mkdir()
    off = dict.fromkeys(("@jupyterlab/apputils-extension:announcements", "@jupyter/nbgrader"), True)
    (lab / "page_config.json").write_text(json.dumps({"disabledExtensions": off}), encoding="utf-8")
    (lab / "default_setting_overrides.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
    off = dict.fromkeys((f"nbgrader.server_extensions.{name}" for name in NBGRADER), False)
    server: dict[str, dict] = {"ServerApp": {"jpserver_extensions": off}}
    if zmq.has("curve"):
        server["KernelManager"] = {"transport_encryption": "auto"}
    (folder / "jupyter_server_config.json").write_text(json.dumps(server), encoding="utf-8")
    known = os.environ.get("JUPYTER_CONFIG_PATH")
    return {"JUPYTER_CONFIG_PATH": os.pathsep.join([str(folder)] + ([known] if known else []))}


def has_screen() -> bool:
    """Check whether a browser window can open; without one Python would start a text browser in this terminal."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))


def answers(url: str) -> bool:
    """Check whether a server on this machine answers. Proxies are not used: they would look on their own machine."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def wait_until_up(server: subprocess.Popen, port: int) -> bool:
    """Return True once the server answers, False when it has ended or takes too long."""
    end = time.monotonic() + SECONDS_TO_START
    while server.poll() is None and time.monotonic() < end:
        if answers(f"http://127.0.0.1:{port}/api"):
            return True
        time.sleep(0.1)
    return False


def run(port: int | None = None, browser: bool = True, prepare: bool = False, root: Path = ROOT) -> int:
    """Serve until Ctrl-C; print the address with its token. Return the exit code.

    With `prepare`, set-up and the doctor run while the server starts; the address follows if both succeed.
    """
    console = Console()
    for stopping in (signal.SIGINT, signal.SIGTERM):  # a kill stops the server too, also where a shell ignores Ctrl-C
        signal.signal(stopping, signal.default_int_handler)
    if not (root / FIRST).exists():
        raise ValueError(
            f"got no {FIRST} in {root}. Run `course start FOLDER`, which copies the lessons into a folder, or, in a "
            "checkout, `course build`, which writes the notebooks from their masters."
        )
    port, token = port or free_port(), secrets.token_hex(16)
    with server_on(port, token, root) as server:
        if prepare and cache.setup(console=console):
            return 1
        if not wait_until_up(server, port):
            console.print(
                f"[red]error[/] JupyterLab did not start on port {port} (see above). Try another one with --port N."
            )
            return 1
        if prepare and doctor.run(console):
            return 1
        url = f"http://127.0.0.1:{port}/lab/tree/{FIRST}?token={token}"
        console.print(f"JupyterLab is at [bold]{url}[/]", soft_wrap=True)
        console.print("Press Ctrl-C to stop it. JupyterLab saves your notebooks automatically.")
        if browser and has_screen():
            webbrowser.open(url)
        return server.wait()


def with_course() -> str:
    """Make the PATH of terminals and notebooks, so that they find `course` although its environment is not active."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


@contextmanager
def server_on(port: int, token: str, root: Path) -> Iterator[subprocess.Popen]:
    """Run a server; stop it at the end, and on Ctrl-C."""
    with tempfile.TemporaryDirectory() as settings:
        # The token is in the environment: every user of the machine can read the command line.
        environment = os.environ | {"JUPYTER_TOKEN": token, "PATH": with_course()} | house_settings(Path(settings))
        server = subprocess.Popen(command(port, root), env=environment, cwd=root)
        try:
            yield server
        finally:
            stop(server)


def stop(server: subprocess.Popen) -> None:
    """End the server and its kernels, politely first."""
    if server.poll() is None:
        server.send_signal(signal.SIGTERM)
    try:
        server.wait(timeout=10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
