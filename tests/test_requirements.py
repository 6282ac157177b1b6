"""The pins can be installed by whoever the project says it is for."""

import re
import shlex
import shutil
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PINS = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(encoding="utf-8"), flags=re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_there_are_pins():
    assert {"torch", "transformers", "jupyterlab", "nbval"} <= set(PINS)


def test_nothing_that_builds_a_grammar_whenever_a_notebook_is_read():
    """rfc3987-syntax does so as it is imported, and nbformat imports it, through jsonschema from 4.25 on."""
    assert not {"rfc3987-syntax", "lark"} & set(PINS)


def python_asked_for(name):
    """What a package says of the Pythons it runs on; "" where it says nothing, or is another system's."""
    try:
        return metadata(name).get("Requires-Python") or ""
    except PackageNotFoundError:
        return ""


def test_the_oldest_python_of_the_project_can_install_them():
    """Debian 12 has 3.11.2: a package that asks for 3.11.5 would stop `make lab` there."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    asked = {name: python_asked_for(name) for name in PINS}
    assert sum(map(bool, asked.values())) > len(PINS) / 2, "most packages say which Pythons they run on"
    assert {name: said for name, said in asked.items() if not SpecifierSet(said).contains(oldest)} == {}


# GNU make from 3.82 on, and tools of GNU that are other tools on macOS, which has make 3.81.
NOT_ON_MACOS = re.compile(
    r"\.ONESHELL|\.SHELLFLAGS|\.EXTRA_PREREQS|!=|::=|&:|\$\((file|guile|let|intcmp) |^\s*(undefine|private|load) "
    r"|(?<![-\w])(nproc|realpath|timeout|sha256sum|flock|gsed)\b|readlink -f|sed -i|cp -[a-z]*[adu]|grep -[a-zA-Z]*P"
    r"|sort -V|stat -c|date -d|xargs -[a-z]*r|mktemp -p|ln -[a-z]*[rT]|echo -[en]",
    re.MULTILINE,
)


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_works_in_a_folder_with_a_space(tmp_path):
    (folder := tmp_path / "my course").mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("requirements.lock", "pyproject.toml", ".venv/.complete"):  # in this order: nothing is to be installed
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    done = subprocess.run(["make", "-n", "nbval"], cwd=folder, capture_output=True, text=True, check=True)
    assert f"COURSE_HOME={folder}/build/home" in shlex.split(done.stdout)


def test_make_asks_for_nothing_that_macos_lacks():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert not (found := NOT_ON_MACOS.search(makefile)), found
