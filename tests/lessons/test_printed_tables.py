"""What the masters show of committed measurements: it fits beside a notebook's prompts, and writes per cent one way.

Tables and texts are found in the masters' own cells: `tables.cost_table(measured)`, displayed or the last line of a
cell, and `print(tables.provenance(measured))`, with what they are given.
"""

import ast
import contextlib
import io
import re
from collections.abc import Iterator

import pytest

from course_lib.lessons.classic import tables as classic_tables
from course_lib.lessons.common.results import COLUMNS, say
from course_lib.lessons.common.table import Table
from course_lib.lessons.compress import tables as compress_tables
from course_lib.lessons.kv import tables as kv_tables
from course_lib.lessons.patterns import tables as patterns_tables
from course_lib.lessons.sinks import tables as sinks_tables
from course_lib.workbook.masters import ROOT, masters

FROM = "course_lib.lessons"
WITHOUT = ("00", "01")  # these print what they measure on the spot


def calls(statement: ast.stmt, known: dict) -> Iterator[ast.Call]:
    """The calls of a lesson's functions in a statement that can be made with what is known: names and constants."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and all(isinstance(each, ast.Name | ast.Constant) for each in node.args):
            names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
            if names <= known.keys() and str(getattr(run(node.func, known), "__module__", "")).startswith(FROM):
                yield node


def run(node: ast.expr, known: dict) -> object:
    return eval(compile(ast.Expression(node), "a master", "eval"), {}, known)


def shown_of(master) -> dict[str, str]:
    """By the call's source: every text and every table that a master shows of committed measurements."""
    known, found = {}, {}
    for statement in ast.parse(master.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom) and statement.module.startswith(FROM):
            exec(
                compile(ast.Module([statement], []), "a master", "exec"), known | {"__builtins__": __builtins__}, known
            )
        elif isinstance(statement, ast.Assign) and statement.value in (made := list(calls(statement, known))):
            if not made[0].args and isinstance(statement.targets[0], ast.Name):
                known[statement.targets[0].id] = run(statement.value, known)
        elif isinstance(statement, ast.Expr):
            results = {ast.unparse(call): run(call, known) for call in calls(statement, known)}
            is_printed = ast.unparse(statement).startswith(("print(", "say("))
            found |= {
                name: shown(text, statement) for name, text in results.items() if is_printed and isinstance(text, str)
            }
            found |= {name: str(table) for name, table in results.items() if isinstance(table, Table)}
    return found


def shown(text: str, statement: ast.stmt) -> str:
    """As it stands on the page: `say` breaks what is too wide."""
    if not ast.unparse(statement).startswith("say("):
        return text
    with contextlib.redirect_stdout(io.StringIO()) as page:
        say(text)
    return page.getvalue()


def lines(text: str) -> list[str]:
    """The lines that a cell shows: with no trailing spaces, which are not seen."""
    return [line.rstrip() for line in text.splitlines()]


def badly_printed(text: str) -> list[str]:
    """Lines that are too wide, or in which a per cent sign sticks to its number."""
    return [line for line in lines(text) if len(line) > COLUMNS or re.search(r"\d%", line)]


@pytest.mark.parametrize("master", [path for path in masters() if path.stem[:2] not in WITHOUT], ids=lambda p: p.stem)
def test_tables_fit_and_write_per_cent_one_way(master):
    found = shown_of(master)
    assert found
    assert not {name: bad for name, text in found.items() if (bad := badly_printed(text))}


def test_the_tables_of_ideas_of_lessons_01_and_07_fit():
    assert not badly_printed(str(patterns_tables.ideas()))
    assert not badly_printed(str(kv_tables.own_texts()))


def test_the_table_of_first_tokens_of_lesson_08_fits():
    assert not badly_printed(str(sinks_tables.first_tokens()))


def test_the_table_of_sentences_before_a_pruned_model_fits():
    assert not badly_printed(str(compress_tables.sentences()))


def test_the_table_of_the_smallest_networks_fits():
    assert not badly_printed(str(classic_tables.smallest()))


def sticking(source: str) -> list[str]:
    """The formats such as {share:.0%} of a program; the names of an experiment's steps are keys and not printed."""
    tree = ast.parse(source)
    of_steps = [node for call in ast.walk(tree) if _is_step(call) for node in ast.walk(call)]
    formats = [node for node in ast.walk(tree) if isinstance(node, ast.FormattedValue) and node not in of_steps]
    return [ast.unparse(each) for each in formats if each.format_spec and ast.unparse(each.format_spec).endswith("%'")]


def _is_step(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Step"


def test_no_number_is_formatted_with_a_sign_that_sticks_to_it():
    assert len(sticking('print(f"{a:.0%}", f"{b:>8.1%}"); Step(f"{c:.0%}"); print(f"{100 * d:.0f} %")')) == 2
    paths = [*(ROOT / "course_lib" / "lessons").rglob("*.py"), *masters()]
    assert not {path.name: found for path in paths if (found := sticking(path.read_text(encoding="utf-8")))}


def test_what_is_wrong_with_a_line_is_seen():
    assert badly_printed("50 % are zero\n50% are zero\n" + 101 * "x" + "\n" + 90 * "x" + 20 * " ") == [
        "50% are zero",
        101 * "x",
    ]


def padded(source: str) -> int:
    """How many formats of a program have an alignment and a width."""
    specs = [node.format_spec for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FormattedValue)]
    return sum(bool(spec and re.match(r"f['\"].?[<>^]", ast.unparse(spec))) for spec in specs)


def test_no_table_is_made_of_padded_text():
    """Formats such as {name:<28} align the columns of a table of text; tables are of the class Table."""
    assert padded('f"{a:<28}{b:>{width}.1f}{c:.2f}{d!r} {e:+.3f} {f:*^9}"') == 3
    folder = ROOT / "course_lib" / "lessons"
    paths = [*(path for path in folder.rglob("*.py") if "exercises" not in path.parts), *masters()]
    found = {path: padded(path.read_text(encoding="utf-8")) for path in paths}
    names = {str(path.relative_to(folder if folder in path.parents else ROOT)): n for path, n in found.items() if n}
    assert names == {}
