"""The pages of the project name commands, options, make targets, variables, files and anchors that exist."""

import re
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from course_lib.cli.app import app
from course_lib.workbook.masters import ROOT

TOP = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]
DOCS = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.name != "claims.md"]  # which has tests of its own
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in (*TOP, *DOCS)}
FOLDERS = {path.stem: path.parent for path in (*TOP, *DOCS)}
COMMANDS = get_command(app).commands
page = pytest.mark.parametrize("name", sorted(PAGES))


def options(command: str) -> set[str]:
    return {option for param in COMMANDS[command].params for option in (*param.opts, *param.secondary_opts)}


@page
def test_every_command_exists_and_has_its_options(name):
    for command, rest in re.findall(r"(?:^|[`/]|--from \S+ )course ([a-z][\w-]+)((?: [^`\n#]*)?)", PAGES[name], re.M):
        assert command in COMMANDS
        assert set(re.findall(r"--[a-z-]+", rest)) <= options(command), command
    alone = set(re.findall(r"`(--[a-z-]+)", PAGES[name]))
    assert alone - {"--torch-backend"} <= set().union(*map(options, COMMANDS))


@page
def test_every_make_target_exists(name):
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", PAGES[name], re.MULTILINE)) <= targets


@page
def test_every_variable_is_used(name):
    folders = (ROOT / "course_lib", ROOT / "kernels")
    sources = "".join(path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py"))
    assert [variable for variable in re.findall(r"COURSE_[A-Z]+", PAGES[name]) if variable not in sources] == []


@page
def test_every_path_exists(name):
    for path in set(re.findall(r"\b(?:tests|course_lib|kernels|solutions|slides)/[\w/.]+", PAGES[name])):
        pattern = re.sub(r"(?<![A-Z])(LESSON|NAME|NN_slug)(?![A-Z])", "*", path.rstrip("./"))
        assert list(ROOT.glob(pattern)), path


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@page
def test_every_link_leads_somewhere(name):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", PAGES[name], flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        path = FOLDERS[name] / target if target else Path(FOLDERS[name] / f"{name}.md")
        assert path.exists(), target
        assert not anchor or anchor in anchors(path.read_text(encoding="utf-8")), anchor


@page
def test_no_page_shows_marks_of_the_build(name):
    assert "<!--" not in PAGES[name]


def test_the_citation_names_the_version_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
