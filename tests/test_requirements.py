"""The pins can be installed by whoever the project says it is for."""

import re
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


@pytest.mark.parametrize("name", PINS)
def test_the_oldest_python_of_the_project_can_install_it(name):
    """Debian 12 has 3.11.2: a package that asks for 3.11.5 would stop `make lab` there."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    try:
        asked = metadata(name).get("Requires-Python")  # some say nothing
    except PackageNotFoundError:
        pytest.skip("not installed here: another system's")
    assert SpecifierSet(asked or "").contains(oldest)
