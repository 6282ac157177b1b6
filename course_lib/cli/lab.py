"""Start JupyterLab on the first lesson and say where it is."""

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

NBGRADER = ("formgrader", "validate_assignment", "assignment_list", "course_list")  # what it adds to a server
SECONDS_TO_START = 180  # a few are normal; a machine busy with other work takes far longer


def free_port(first: int = 8888) -> int:
    """The first port from `first` on that nobody listens on; one the system picks when twenty are taken."""
    for port in (*range(first, first + 20), 0):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return listener.getsockname()[1]
    raise ValueError("got no free port on 127.0.0.1; close other servers or pass one with --port")


def command(port: int, root: Path) -> list[str]:
    """The server's command line. It asks nothing and opens no browser by itself."""
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


# Which kernel a student would be asked, and there is one; and the column beside which the lessons' names are cut.
SETTINGS = {
    "@jupyterlab/notebook-extension:tracker": {"autoStartDefaultKernel": True},
    "@jupyterlab/filebrowser-extension:browser": {"showLastModifiedColumn": False},
}


def house_settings(folder: Path) -> dict[str, str]:
    """The environment in which JupyterLab asks nothing, neither for news nor for a kernel, by settings in `folder`.

    Nor does it load nbgrader, which instructors have installed and which warns that it is not set up here. What goes
    to a kernel and comes back is encrypted where it can be; else each kernel warns of others who listen.
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
    """Whether a browser window could open; without one Python would start a text browser in this terminal."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))


def answers(url: str) -> bool:
    """Whether a server of this machine answers there. No proxy is asked: it would look on its own machine."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def wait_until_up(server: subprocess.Popen, port: int) -> bool:
    """True once the server answers, False when it ended or took too long."""
    end = time.monotonic() + SECONDS_TO_START
    while server.poll() is None and time.monotonic() < end:
        if answers(f"http://127.0.0.1:{port}/api"):
            return True
        time.sleep(0.1)
    return False


def run(port: int | None = None, browser: bool = True, prepare: bool = False, root: Path = ROOT) -> int:
    """Serve until Ctrl-C; prints the address with its token. Returns the exit code.

    With `prepare`, set-up and the doctor come first, while the server starts; the address is given when both are well.
    """
    console = Console()
    for stopping in (signal.SIGINT, signal.SIGTERM):  # a kill stops the server too, also where a shell ignores Ctrl-C
        signal.signal(stopping, signal.default_int_handler)
    if not (root / FIRST).exists():
        raise ValueError(
            f"got no {FIRST} in {root}. Run `course start FOLDER`, which puts the lessons into a folder of yours, or "
            "in a checkout `course build`, which writes the notebooks from their masters."
        )
    port, token = port or free_port(), secrets.token_hex(16)
    with server_on(port, token, root) as server:
        if prepare and cache.setup(console=console):
            return 1
        if not wait_until_up(server, port):
            console.print(f"[red]error[/] JupyterLab did not start on port {port} (see above). Try another: --port N.")
            return 1
        if prepare and doctor.run(console):
            return 1
        url = f"http://127.0.0.1:{port}/lab/tree/{FIRST}?token={token}"
        console.print(f"JupyterLab is at [bold]{url}[/]", soft_wrap=True)
        console.print("Ctrl-C stops it; your work is saved as you go.")
        if browser and has_screen():
            webbrowser.open(url)
        return server.wait()


def with_course() -> str:
    """The PATH of terminals and notebooks: `course` is found there, though nobody has activated its environment."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


@contextmanager
def server_on(port: int, token: str, root: Path) -> Iterator[subprocess.Popen]:
    """A running server; stopped at the end, and on Ctrl-C."""
    with tempfile.TemporaryDirectory() as settings:
        # The token by the environment, not the command line, which every user of the machine can read.
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
