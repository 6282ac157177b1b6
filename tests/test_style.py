"""The style that a machine can check: sources are cited, nothing names a machine or a host, sizes stay readable."""

import ast
import re
import subprocess
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = sorted([*(ROOT / "course_lib").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")])
# An exercise has its cases and mistakes with it, an experiment all its settings; they are data more than code.
LONG_BY_NATURE = re.compile(r"/exercises/\w+\.py$|/experiment\w*\.py$")


def tracked() -> list[Path]:
    """Every text file of the project, the lock file aside."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    return [ROOT / name for name in listed if name and Path(name).suffix not in {".png", ".lock"}]


@pytest.mark.parametrize("path", sorted((ROOT / "course_lib/pruning/methods").glob("[a-z]*.py")), ids=lambda p: p.stem)
def test_a_method_cites_its_paper(path):
    """First line: name, authors, year, URL."""
    first = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).splitlines()[0]
    assert re.search(r"\b(19|20)\d\d\b", first)
    assert "https://" in first


@pytest.mark.parametrize("path", CODE, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_are_documented_and_fit_a_screen(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    n_lines = len(path.read_text(encoding="utf-8").splitlines())
    if n_lines:
        assert ast.get_docstring(tree), f"{path.name} says nothing about itself"
    if n_lines > 120 * 1.3 and not LONG_BY_NATURE.search(path.as_posix()):
        warnings.warn(f"{path.relative_to(ROOT)} has {n_lines} lines; aim at 120", stacklevel=1)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (length := node.end_lineno - node.lineno + 1) > 50:
            warnings.warn(f"{path.relative_to(ROOT)}: {node.name} has {length} lines; aim at 25", stacklevel=1)


def test_the_project_names_no_machine_and_no_registry():
    # Put together from pieces, so that this file does not find itself.
    forbidden = re.compile(
        "|".join([r"pypi\." + "org", "files.python" + "hosted", "registry.npm" + "js", "/ro" + "ot/"])
    )
    for path in tracked():
        if path.exists():
            found = forbidden.search(path.read_text(encoding="utf-8", errors="ignore"))
            assert not found, f"{path.relative_to(ROOT)}: {found[0]}"


def test_no_notebook_carries_outputs():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        if ".mine-" not in path.name:
            assert '"output_type"' not in path.read_text(encoding="utf-8"), path.name
