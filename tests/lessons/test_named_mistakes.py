"""Conformance of the texts of all named mistakes: ruff does not look into them, so every variant is compiled here."""

import ast
import builtins
import dis
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from course_lib.checking.given import stub_names
from course_lib.checking.mistakes import MISTAKE, names_used, parsed
from course_lib.workbook.catalogue import all_exercises, file_of

ROOT = Path(__file__).parents[2]
EXERCISES = all_exercises()


@pytest.fixture(params=EXERCISES, ids=lambda e: e.id)
def exercise(request):
    return request.param


def text_of(exercise) -> str:
    return file_of(exercise).with_suffix(".md").read_text(encoding="utf-8")


def test_the_heading_is_the_exercise_as_its_stub_is_called(exercise):
    first = text_of(exercise).partition("\n")[0]
    assert first == f"# {exercise.id}({', '.join(stub_names(exercise.id))})"


def test_every_variant_compiles_and_every_name_in_it_exists(exercise):
    for mistake in exercise.mistakes:
        for variant in mistake.functions:
            function = variant.function
            known = {*function.__globals__, *dir(builtins)} if hasattr(function, "__code__") else set()
            missing = set(globals_of(function.__code__)) - known if known else set()
            assert not missing, f"{variant}: {', '.join(missing)} is not in the exercise's file"


def globals_of(code: CodeType) -> Iterator[str]:
    """The global names that code reads, functions inside it included."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from globals_of(inner)


def test_no_variant_is_written_twice(exercise):
    for mistake in exercise.mistakes:
        written = Counter(ast.unparse(variant.written) for variant in mistake.functions)
        assert {code for code, n in written.items() if n > 1} == set()


def test_lines_fit(exercise):
    for number, line in enumerate(text_of(exercise).splitlines(), 1):
        assert len(line) <= 140 or len(line.split()) < 4, f"{exercise.id}, line {number} of its text"
        assert line == line.rstrip()


def test_a_text_is_markdown_with_a_list_of_mistakes(exercise):
    _, entries = parsed(text_of(exercise), exercise.id)
    found = [line for line in text_of(exercise).splitlines() if MISTAKE.match(line)]
    assert len(found) == len(entries) == len(exercise.mistakes)


def imported_from(module: str) -> set[str]:
    """What other files of the project import from a module."""
    pattern = re.compile(rf"from {re.escape(module)} import \(?([\w\s,]+)")
    return {name for text in sources() for names in pattern.findall(text) for name in re.findall(r"\w+", names)}


def sources(found: list[str] = []) -> list[str]:  # noqa: B006, read once
    if not found:
        folders = (ROOT / "course_lib", ROOT / "tests", ROOT / "solutions")
        found += [path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")]
    return found


def test_every_import_and_helper_of_an_exercise_is_used(exercise):
    """Ruff is told not to look for imports that nothing uses, since the text of the mistakes may use them."""
    path = file_of(exercise)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    used = names_used(text_of(exercise)) | imported_from(module)
    for node in tree.body:
        others = {inner for other in tree.body if other is not node for inner in ast.walk(other)}
        here = {inner.id for inner in others if isinstance(inner, ast.Name)}
        here |= {w for n in others if isinstance(n, ast.Constant) for w in re.findall(r"\w+", str(n.value)[:60])}
        unused = defined(node) - used - here
        assert not unused, f"{path.name}, line {node.lineno}: nothing uses {', '.join(unused)}"


def defined(node: ast.stmt) -> set[str]:
    """The helpers and imports that a statement makes; the exercise itself is no helper."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign) and getattr(getattr(node.value, "func", None), "id", "") != "Exercise":
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()
