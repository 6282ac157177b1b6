"""Write the exercises of a student's copy: keep the code that compares and generates inputs, remove the answers."""

import ast
import re

from course_lib.checking.mistakes import names_used

NOTE = "Without the answers: their results on the cases of `check` are data, in the file next to this one."
NOTE_IN_COMMON = "Without the answers: what the comparisons need is all that is left."
_EXERCISES = re.compile(r"course_lib\.lessons\.\w+\.exercises\b")
_COMMON = re.compile(r"course_lib\.lessons\.\w+\.exercises\.common")  # the file that the exercises of a lesson share
ASKED = ("agree", "picture", "library")  # parts of an exercise that are kept
ANSWERED = ("reference", "mistakes", "also_right", "trivial")  # and parts that are removed

Definitions = dict[str, ast.stmt]  # for each name at the top of a file, the statement that defines it


def without_answers(source: str, where: str) -> str:
    """Return the file of an exercise with only its comparison, its inputs, and the course's function.

    Only code that these parts need is kept. The rest is data, in the file next to it.

    Raises:
        ValueError: if the file does not define one exercise of the form NAME = Exercise(id="...", ...), or
            imports from another exercise's file.
    """
    tree = ast.parse(source)
    name, exercise = _exercise(tree, where)
    stays = _keywords(exercise, ASKED)
    needed = needs(list(stays.values()), _definitions(tree))
    _check_imports(tree, where)
    if name in needed:
        raise ValueError(f"{where}: expected a comparison, a picture and a library function that use no Exercise.")
    arguments = ["__file__", *(f"{keyword}={ast.unparse(value)}" for keyword, value in stays.items())]
    recorded = "from course_lib.checking.recorded import recorded"
    return _written(tree, needed, source, NOTE, recorded) + f"\n\n\n{name} = recorded({', '.join(arguments)})\n"


def only(source: str, needed: set[str], note: str = NOTE_IN_COMMON) -> str:
    """Return a file with only some names, and the code that these need."""
    tree = ast.parse(source)
    definitions = _definitions(tree)
    return _written(tree, needed | needs([definitions[name] for name in needed], definitions), source, note) + "\n"


def from_common(source: str) -> set[str]:
    """Find the names that an exercise imports from the file that all exercises of its lesson share."""
    return {alias.name for node in ast.parse(source).body if _is_of_common(node) for alias in node.names}


def exercise_id(source: str, where: str) -> str:
    """Return the id of the exercise in a file."""
    _, exercise = _exercise(ast.parse(source), where)
    return ast.literal_eval(_keywords(exercise, ("id",))["id"])


def check_index(source: str, where: str) -> None:
    """Check that the file that lists the exercises of a lesson, which students get as it is, contains none of them.

    Raises:
        ValueError: for anything except a docstring, imports, and names for constants and for tuples of names.
    """
    listing = (ast.Module, ast.Expr, ast.ImportFrom, ast.alias, ast.Assign, ast.Name, ast.Tuple, ast.Constant)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (*listing, ast.expr_context)):
            raise ValueError(f"{where}, line {node.lineno}: expected imports, LESSON and EXERCISES, and nothing else.")


def shared_with_answers(sources: list[tuple[str, str]], common: str = "") -> set[str]:
    """Find code that a comparison or picture shares with an answer or mistake of a lesson: releasing it would leak.

    Args:
        sources: for each exercise its file and the text of its mistakes. Imports may be shared, except those from
            `common`, the file that all exercises of the lesson share.
    """
    below = {name: node for name, node in _definitions(ast.parse(common)).items() if not _is_import(node)}
    given: set[str] = set()
    stays_below: set[str] = set()
    leaves_below: set[str] = set()
    for source, mistakes in sources:
        tree = ast.parse(source)
        own = {name: node for name, node in _definitions(tree).items() if not _is_import(node)}
        _, exercise = _exercise(tree, "")
        stays, leaves = (needs(list(_keywords(exercise, kind).values()), below | own) for kind in (ASKED, ANSWERED))
        leaves |= needs([ast.Name(name) for name in names_used(mistakes)], below | own)
        given |= stays & leaves & own.keys()
        stays_below |= stays - own.keys()
        leaves_below |= leaves - own.keys()
    return given | stays_below & leaves_below


def needs(expressions: list[ast.AST], definitions: Definitions) -> set[str]:
    """Return the names of a file's definitions that some expressions use, directly or through others."""
    reached: set[str] = set()
    waiting = list(expressions)
    while waiting:
        used = {node.id for node in ast.walk(waiting.pop()) if isinstance(node, ast.Name)} & definitions.keys()
        waiting += [definitions[name] for name in used - reached]
        reached |= used
    return reached


def _definitions(tree: ast.Module) -> Definitions:
    return {name: node for node in tree.body for name in _defined(node)}


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement at the top of a file defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return set()


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_of_common(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and bool(_COMMON.fullmatch(node.module or ""))


def _exercise(tree: ast.Module, where: str) -> tuple[str, ast.Call]:
    """Return the one exercise of a file, and its variable name."""
    exercises = [
        (node.targets[0].id, node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", "") == "Exercise"
    ]
    if len(exercises) != 1:
        raise ValueError(f'{where}: got {len(exercises)} exercises; expected one, as NAME = Exercise(id="...", ...).')
    ((name, exercise),) = exercises
    if not isinstance(_keywords(exercise, ("id",)).get("id"), ast.Constant):
        raise ValueError(f'{where}, line {exercise.lineno}: expected Exercise(id="...", ...) with the id as it is.')
    return name, exercise


def _check_imports(tree: ast.Module, where: str) -> None:
    """Check that imports from other files with answers are visible: names of common.py, not renamed, and no others."""
    for node in filter(_is_import, tree.body):
        modules = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        plainly = _is_of_common(node) and not any(alias.asname for alias in node.names)
        if any(_EXERCISES.match(module or "") for module in modules) and not plainly:
            raise ValueError(
                f"{where}, line {node.lineno}: of other files of exercises, expected only `from ...exercises.common "
                "import NAME`. What two exercises share belongs there."
            )


def _keywords(call: ast.Call, names: tuple[str, ...]) -> dict[str, ast.expr]:
    return {word.arg: word.value for word in call.keywords if word.arg in names}


def _written(tree: ast.Module, needed: set[str], source: str, note: str, *imports: str) -> str:
    """Return the docstring with a note, the imports that are still used, and the needed definitions, unchanged."""
    kept = [node for node in tree.body if needed & _defined(node)]
    head = [f'"""{ast.get_docstring(tree)}\n\n{note}\n"""', _imports(kept, needed, source, imports)]
    body = [_source(node, source) for node in kept if not _is_import(node)]
    return "\n\n\n".join(["\n\n".join(part for part in head if part), *body])


def _imports(kept: list[ast.stmt], needed: set[str], source: str, more: tuple[str, ...]) -> str:
    """Return the imports that are still used, in their groups, and additional imports from the course."""
    lines, last = source.splitlines(), 0
    text: list[str] = []
    for node in filter(_is_import, kept):
        node.names = [alias for alias in node.names if (alias.asname or alias.name).split(".")[0] in needed]
        text += [""] * (bool(last) and "" in lines[last : node.lineno]) + [ast.unparse(node)]
        last = node.end_lineno
    own = sorted(line for line in [*text, *more] if line.startswith("from course_lib"))
    others = "\n".join(line for line in text if line not in own).rstrip()
    return "\n\n".join(filter(None, [others, "\n".join(own)]))


def _source(node: ast.stmt, source: str) -> str:
    """Return the source of a definition, with decorators."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno])
