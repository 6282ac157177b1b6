"""What students do not get: passages marked for instructors, and the answers in a file of exercises."""

import ast
import re

BEGIN, END = "BEGIN INSTRUCTORS", "END INSTRUCTORS"
NOTE = "Without the answers: what they give on the cases of `check` is data, in the file beside this one."
_REGION = re.compile(rf"^[ \t]*(?:#|<!--) {BEGIN}.*\n(?:.*\n)*?[ \t]*(?:#|<!--) {END}.*\n+", re.MULTILINE)
_INSTEAD = re.compile(r"^<!-- FOR STUDENTS\n((?:.*\n)*?)-->\n", re.MULTILINE)
_MARKER = re.compile(rf"^[ \t]*(?:#|<!--) (?:{BEGIN}|{END}|FOR STUDENTS).*", re.MULTILINE)
_ROW = re.compile(r"^\| \[.*?\]\((notebooks/[^)]+)\).*\n", re.MULTILINE)

Keywords = dict[str, ast.expr]  # by the id of the exercise


def for_students(text: str, where: str) -> str:
    """A text without the passages between `# BEGIN INSTRUCTORS` and `# END INSTRUCTORS`, or the same as <!-- … -->.

    A comment <!-- FOR STUDENTS … --> becomes text: what is said in place of a passage.

    Raises:
        ValueError: when a marker has no partner, so that nothing slips through.
    """
    text = _INSTEAD.sub(r"\1", _REGION.sub("", text))
    if left := _MARKER.search(text):
        raise ValueError(
            f"{where}: the marker {left[0].strip()!r} has no partner; expected a {BEGIN} before each {END}."
        )
    return text


def without_rows(text: str, notebooks: set[str]) -> str:
    """The README without the table rows of lessons that are not in this release."""
    return _ROW.sub(lambda row: row[0] if row[1] in notebooks else "", text)


def without_answers(source: str, where: str) -> str:
    """A file of exercises of which only the way in which answers are compared and drawn is left, and what that needs.

    Nothing stays for any other reason. The rest is data, and read from the file beside it.

    Raises:
        ValueError: for a file that is not of the form LESSON = ..., NAME = Exercise(id="...", ...), EXERCISES = ...
    """
    tree = ast.parse(source)
    definitions = {name: node for node in tree.body for name in _defined(node)}
    exercises = [node.value for node in tree.body if _is_exercise(node)]
    agree, picture = (_keyword(exercises, keyword, where) for keyword in ("agree", "picture"))
    needed = needs([*agree.values(), *picture.values()], definitions)
    kept = [node for node in tree.body if needed & _defined(node)]
    if any(map(_is_exercise, kept)) or "LESSON" not in definitions:
        raise ValueError(f"{where}: expected a LESSON, and comparisons and pictures that use no Exercise.")
    parts = [
        f'"""{ast.get_docstring(tree)}\n\n{NOTE}\n"""\n\n{_imports(kept, needed, source)}',
        ast.get_source_segment(source, definitions["LESSON"]),
        *(_source(node, source) for node in kept if not isinstance(node, ast.Import | ast.ImportFrom)),
        "\n".join(["EXERCISES = recorded(", "    __file__,", _table("agree", agree), _table("picture", picture), ")"]),
    ]
    return "\n\n\n".join(parts) + "\n"


def exercise_ids(source: str, where: str) -> list[str]:
    """The exercises that a file defines, in order."""
    return [_id(node.value, where) for node in ast.parse(source).body if _is_exercise(node)]


def shared_with_answers(source: str) -> set[str]:
    """What a comparison or a picture needs and an answer or a mistake too, imports aside: it would be given away."""
    tree = ast.parse(source)
    definitions = {name: node for node in tree.body for name in _defined(node)}
    exercises = [node.value for node in tree.body if _is_exercise(node)]
    kinds = ("agree", "picture"), ("reference", "mistakes", "also_right")
    stays, leaves = (
        needs([value for word in kind for value in _keyword(exercises, word, "").values()], definitions)
        for kind in kinds
    )
    return {name for name in stays & leaves if not isinstance(definitions[name], ast.Import | ast.ImportFrom)}


def needs(expressions: list[ast.expr], definitions: dict[str, ast.stmt]) -> set[str]:
    """The names of a file's definitions that some expressions use, directly or through others."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(expressions)
    while waiting:
        used = {node.id for node in ast.walk(waiting.pop()) if isinstance(node, ast.Name)} & definitions.keys()
        waiting += [definitions[name] for name in used - found]
        found |= used
    return found


def _defined(node: ast.stmt) -> set[str]:
    """The names that a statement at the top of a file gives a meaning."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return set()


def _is_exercise(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Assign) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Exercise"


def _id(call: ast.Call, where: str) -> str:
    found = [word.value for word in call.keywords if word.arg == "id" and isinstance(word.value, ast.Constant)]
    if not found:
        raise ValueError(f'{where}, line {call.lineno}: expected Exercise(id="...", ...) with the id as it is.')
    return found[0].value


def _keyword(exercises: list[ast.Call], keyword: str, where: str) -> Keywords:
    return {_id(call, where): word.value for call in exercises for word in call.keywords if word.arg == keyword}


def _imports(kept: list[ast.stmt], needed: set[str], source: str) -> str:
    """The imports that are still used, in their groups, and the one that reads the data."""
    lines, last = source.splitlines(), 0
    text: list[str] = []
    for node in kept:
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [alias for alias in node.names if (alias.asname or alias.name).split(".")[0] in needed]
            text += [""] * (bool(last) and "" in lines[last : node.lineno]) + [ast.unparse(node)]
            last = node.end_lineno
    own = bool(text) and "course_lib" not in text[-1]
    return "\n".join([*text, *[""] * own, "from course_lib.checking.recorded import recorded"])


def _source(node: ast.stmt, source: str) -> str:
    """A definition as it was written, decorators included."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno])


def _table(name: str, entries: Keywords) -> str:
    rows = [f'        "{exercise}": {ast.unparse(value)},' for exercise, value in entries.items()]
    return "\n".join([f"    {name}={{", *rows, "    },"]) if rows else f"    {name}={{}},"
