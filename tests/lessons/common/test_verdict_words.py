"""Only one function says the words of a verdict: no lesson, ledger, master or slide types them in."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORDS = ("holds partly", "does not hold", "undecided", "not at this scale", "mixed (")
RULE = ROOT / "course_lib" / "lessons" / "common" / "verdicts.py"


def printed_words(source):
    """The words of a verdict among the strings of a program, docstrings apart; "holds" where it ends one."""
    tree = ast.parse(source)
    documented = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documented:
            said = node.value.strip(" .\n")
            if any(word in said for word in WORDS) or said == "holds" or said.endswith((": holds", ", holds")):
                yield said


def test_printed_words_are_found():
    assert list(printed_words('"""It holds partly."""\nprint("holds")\nx = f"{a}: does not hold."')) == [
        "holds",
        ": does not hold",
    ]
    assert not list(printed_words('y = "a cache holds 4 tokens"'))


PROGRAMS = [
    path
    for folder in ("course_lib/lessons", "course_lib/workbook", "solutions")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != RULE and "exercises" not in path.parts
]


def test_nothing_else_prints_a_verdict():
    found = {str(path.relative_to(ROOT)): list(printed_words(path.read_text(encoding="utf-8"))) for path in PROGRAMS}
    assert not {name: words for name, words in found.items() if words}


@pytest.mark.parametrize("path", sorted((ROOT / "slides").glob("*.md")), ids=lambda path: path.stem)
def test_no_slide_types_a_verdict_in(path):
    text = path.read_text(encoding="utf-8")
    assert not [word for word in WORDS if word in text]
