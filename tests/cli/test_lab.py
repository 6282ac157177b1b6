"""`course lab` serves the first lesson, says where, and leaves no server behind."""

import http.server
import json
import os
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from course_lib.cli import lab

# What `course lab` does, on another folder.
CHILD = """
import sys
from pathlib import Path
from course_lib.cli import app, lab

lab.run.__defaults__ = (None, False, False, Path(sys.argv[1]))
sys.argv = ["course", "lab", "--no-browser"]
app.main()
"""


@pytest.fixture
def course(tmp_path):
    path = tmp_path / lab.FIRST
    path.parent.mkdir()
    path.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_it_serves_the_first_lesson_until_it_is_stopped(course, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(course / "config"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(course / "data"))
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(course)], stdout=subprocess.PIPE, text=True)
    try:
        url = re.search(r"http://\S+", child.stdout.readline())[0]
        assert re.fullmatch(r"http://127.0.0.1:\d+/lab/tree/notebooks/00_start_here.ipynb\?token=[0-9a-f]{32}", url)
        with urllib.request.urlopen(url, timeout=120) as answer:
            assert "JupyterLab" in answer.read().decode()
        contents = url.replace("/lab/tree/", "/api/contents/")
        with urllib.request.urlopen(contents, timeout=120) as answer:
            assert answer.status == 200
        for name, wanted in lab.SETTINGS.items():
            with urllib.request.urlopen(
                url.replace(f"/lab/tree/{lab.FIRST}", f"/lab/api/settings/{name}"), timeout=120
            ) as answer:
                found = json.load(answer)["schema"]["properties"]
            assert {key: found[key]["default"] for key in wanted} == wanted
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=120) == 0
    finally:
        child.kill()
        child.wait()
    port = int(re.search(r":(\d+)/", url)[1])
    end = time.monotonic() + 60
    while lab.answers(f"http://127.0.0.1:{port}/api"):
        assert time.monotonic() < end, "the server still runs"


def test_a_taken_port_is_passed_over():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert lab.free_port(port) != port


def test_a_server_that_ends_is_reported(course, monkeypatch, capsys):
    monkeypatch.setattr(lab, "command", lambda port, root: [sys.executable, "-c", "raise SystemExit(3)"])
    assert lab.run(port=1, browser=False, root=course) == 1
    assert "did not start on port 1" in capsys.readouterr().out


def test_without_notebooks_it_says_how_to_make_them(tmp_path):
    with pytest.raises(ValueError, match="course build"):
        lab.run(root=tmp_path)


def test_the_token_is_not_on_the_command_line():
    assert not any("token" in part for part in lab.command(8888, lab.ROOT))


@pytest.fixture
def without_server(course, monkeypatch):
    """Lab on a folder where the server is only pretended, and runs until asked to stop."""
    sleeper = [sys.executable, "-c", "import time; time.sleep(20)"]
    monkeypatch.setattr(lab, "command", lambda port, root: sleeper)
    monkeypatch.setattr(lab, "wait_until_up", lambda server, port: True)
    return course


@pytest.mark.parametrize(("set_up", "doctor"), [(1, 0), (0, 1)])
def test_what_is_broken_stops_it_before_the_address_is_given(without_server, monkeypatch, capsys, set_up, doctor):
    asked = []
    monkeypatch.setattr(lab.cache, "setup", lambda console: asked.append("setup") or set_up)
    monkeypatch.setattr(lab.doctor, "run", lambda console: asked.append("doctor") or doctor)
    assert lab.run(prepare=True, root=without_server) == 1
    assert asked == ["setup", "doctor"][: 1 if set_up else 2]
    assert "http" not in capsys.readouterr().out


def test_jupyterlab_asks_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/elsewhere")
    environment = lab.house_settings(tmp_path)
    assert environment["JUPYTER_CONFIG_PATH"].split(os.pathsep) == [str(tmp_path), "/elsewhere"]
    page = json.loads((tmp_path / "labconfig" / "page_config.json").read_text())
    assert page["disabledExtensions"]["@jupyterlab/apputils-extension:announcements"] is True


@pytest.mark.parametrize("given", ["/usr/bin:/bin", None])
def test_course_is_found_in_its_terminals(given, monkeypatch):
    """Nobody has activated the environment: `make lab` starts what lies in it."""
    monkeypatch.delenv("PATH") if given is None else monkeypatch.setenv("PATH", given)
    first, *others = lab.with_course().split(os.pathsep)
    assert Path(shutil.which("course", path=first)).parent == Path(sys.executable).parent
    assert others == (given or os.defpath).split(os.pathsep)


def test_a_proxy_is_not_asked_for_this_machine(monkeypatch):
    """Where HTTP_PROXY is set and no_proxy is not, the server must still be found."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with socketserver.TCPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
            threading.Thread(target=server.handle_request, daemon=True).start()
            assert lab.answers(f"http://127.0.0.1:{server.server_address[1]}/")
