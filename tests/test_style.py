"""The style that a machine can check: sources are cited, nothing names a machine or a host, sizes stay readable."""

import ast
import re
import subprocess
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = sorted([*(ROOT / "course_lib").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")])
# An exercise has its cases and mistakes with it, an experiment all its settings, a document all its claims: data more
# than code.
LONG_BY_NATURE = re.compile(r"/exercises/\w+\.py$|/experiment\w*\.py$|/ledger/(sources|rules)/\w+\.py$")


def tracked() -> list[Path]:
    """Every text file of the project, the lock file aside."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    return [ROOT / name for name in listed if name and Path(name).suffix not in {".png", ".lock"}]


def said_of_itself(path: Path) -> str:
    """The docstring of a file, "" where there is none."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def test_a_method_cites_its_paper():
    """First line: name, authors, year, URL."""
    methods = sorted((ROOT / "course_lib/pruning/methods").glob("[a-z]*.py"))
    assert len(methods) > 5
    first_lines = {path.name: said_of_itself(path).partition("\n")[0] for path in methods}
    assert {name: line for name, line in first_lines.items() if not re.search(r"\b(19|20)\d\d\b", line)} == {}
    assert {name: line for name, line in first_lines.items() if "https://" not in line} == {}


def test_files_are_documented():
    assert len(CODE) > 200
    silent = [path for path in CODE if path.read_text(encoding="utf-8").strip() and not said_of_itself(path)]
    assert [str(path.relative_to(ROOT)) for path in silent] == [], "files that say nothing about themselves"


def test_files_and_functions_fit_a_screen():
    for path in CODE:
        text = path.read_text(encoding="utf-8")
        n_lines, name = len(text.splitlines()), path.relative_to(ROOT)
        if n_lines > 250 and not LONG_BY_NATURE.search(path.as_posix()):
            warnings.warn(f"{name} has {n_lines} lines; aim at 100 to 250", stacklevel=1)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (length := node.end_lineno - node.lineno + 1) > 50:
                warnings.warn(f"{name}: {node.name} has {length} lines; aim at 25", stacklevel=1)


def test_the_project_names_no_machine_and_no_registry():
    # Put together from pieces, so that this file does not find itself.
    forbidden = re.compile(
        "|".join([r"pypi\." + "org", "files.python" + "hosted", "registry.npm" + "js", "/ro" + "ot/"])
    )
    for path in tracked():
        if path.exists():
            found = forbidden.search(path.read_text(encoding="utf-8", errors="ignore"))
            assert not found, f"{path.relative_to(ROOT)}: {found[0]}"


def test_every_name_can_be_written_on_every_system():
    """Windows takes no device's name, none of these characters and no dot at the end; like macOS, it looks past case.

    It takes 260 characters in all, of which an environment's folder of packages may need 100.
    """
    names = [path.relative_to(ROOT).as_posix() for path in tracked()]
    assert len(names) > 500
    devices = r"(con|prn|aux|nul|com\d|lpt\d)(\.[^/]*)?"
    wrong = re.compile(rf"(^|/){devices}(/|$)|[<>:\"|?*\\]|[. ](/|$)", re.IGNORECASE)
    assert [name for name in names if wrong.search(name) or len(name) > 120] == []
    assert len({name.casefold() for name in names}) == len(names)


def test_no_notebook_carries_outputs():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        if ".mine-" not in path.name:
            assert '"output_type"' not in path.read_text(encoding="utf-8"), path.name


def test_no_example_of_a_property_is_against_the_clock():
    from hypothesis import settings

    assert settings.default.deadline is None
