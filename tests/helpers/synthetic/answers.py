"""Answers as text, right and wrong ones: taken from the file of each exercise, where each has its name.

Nothing is typed in twice: what the conformance tests know as a function, a made-up student writes into a notebook.
"""

import ast
import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import torch

from course_lib.checking.exercise import Exercise
from course_lib.workbook.catalogue import file_of


@dataclass(frozen=True)
class Known:
    """One way to answer an exercise, as text and as the function that it is.

    Args:
        label: "reference", or the name of a variant or a mistake.
        mistake: its name when it is one.
        node: a `def` with the usual name of the function.
        needs: the imports and helpers that it uses, in an order that runs.
    """

    exercise: str
    label: str
    mistake: str
    node: ast.FunctionDef
    needs: tuple[str, ...]
    function: Callable

    @property
    def text(self) -> str:
        return ast.unparse(self.node)


def known(module: ModuleType, functions: dict[str, str]) -> dict[str, list[Known]]:
    """By exercise: the reference first, then what is also right, then every form of every named mistake.

    Args:
        functions: the usual name of the function of each exercise.
    """
    common = Path(module.__file__).with_name("common.py")
    shared = common.read_text(encoding="utf-8") if common.exists() else ""
    ways = {}
    for exercise in module.EXERCISES:
        tree = ast.parse(f"{shared}\n{file_of(exercise).read_text(encoding='utf-8')}")  # as if it were one file
        tops, usual = _top_level(tree), functions[exercise.id]
        call = next(node for node in ast.walk(tree) if getattr(getattr(node, "func", None), "id", "") == "Exercise")
        ways[exercise.id] = [
            Known(exercise.id, label, mistake, *_written(written, usual, tops), function)
            for label, mistake, written, function in _listed(call, exercise)
        ]
    return ways


def _listed(node: ast.Call, exercise: Exercise) -> Iterator[tuple[str, str, ast.expr, Callable]]:
    """Each way to answer: its label, the mistake it is, how it is written, what it does."""
    yield "reference", "", _argument(node, "reference"), exercise.reference
    for call, variant in zip(_argument(node, "also_right").elts, exercise.also_right, strict=True):
        yield variant.name, "", _argument(call, "function", 1), variant.function
    for mistake in exercise.mistakes:
        for variant in mistake.functions:
            yield mistake.name, mistake.name, variant.written, variant


def _argument(call: ast.Call, name: str, position: int = 99) -> ast.expr | None:
    if position < len(call.args):
        return call.args[position]
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _written(
    node: ast.expr | ast.FunctionDef, usual: str, tops: dict[str, ast.stmt]
) -> tuple[ast.FunctionDef, tuple[str, ...]]:
    """A lambda, a definition, or the name of one, as a `def` of the usual name; and the statements that it needs."""
    if isinstance(node, ast.Lambda):
        definition = ast.FunctionDef(usual, node.args, [ast.Return(node.body)], [], None, None)
    elif isinstance(node, ast.FunctionDef):
        definition = node
        definition.name = usual
    elif isinstance(node, ast.Name) and isinstance(tops.get(node.id), ast.FunctionDef):
        definition = copy.deepcopy(tops[node.id])
        definition.name = usual
    else:  # a function of another library, by its name
        definition = ast.parse(f"def {usual}(*arguments): return {ast.unparse(node)}(*arguments)").body[0]
    definition = ast.fix_missing_locations(definition)
    return definition, _needed(definition, tops)


def _needed(node: ast.AST, tops: dict[str, ast.stmt]) -> tuple[str, ...]:
    """The parts of the top level that a definition needs, also indirectly: imports first, then in the file's order."""
    needed: dict[str, ast.stmt] = {}
    waiting = [node]
    while waiting:
        names = {inner.id for inner in ast.walk(waiting.pop()) if isinstance(inner, ast.Name)} & tops.keys()
        fresh = names - needed.keys()
        needed |= {name: tops[name] for name in fresh}
        waiting += [tops[name] for name in fresh]
    ordered = sorted(
        needed.values(),
        key=lambda statement: (not isinstance(statement, ast.Import | ast.ImportFrom), statement.lineno),
    )
    return tuple(dict.fromkeys(ast.unparse(statement) for statement in ordered))


def _top_level(tree: ast.Module) -> dict[str, ast.stmt]:
    """The statement that makes each name of the file: an import of that alone, a `def`, a class, an assignment."""
    definitions = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            definitions[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            definitions[node.targets[0].id] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            definitions[node.target.id] = node
        elif isinstance(node, ast.Import | ast.ImportFrom) and not _of_common(node):
            for alias in node.names:
                alone = copy.copy(node)
                alone.names = [alias]
                definitions[alias.asname or alias.name.split(".")[0]] = alone
    return definitions


def _of_common(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether it brings what a lesson's exercises share, which is defined in front."""
    return isinstance(node, ast.ImportFrom) and node.module.endswith(".exercises.common")


# How students write: the same function in another dress ----------------------------------------------------------


def plainly(answer: Known) -> str:
    return answer.text


def in_steps(answer: Known) -> str:
    """The result in a variable before it is returned, and a remark."""
    node = copy.deepcopy(answer.node)
    if isinstance(node.body[-1], ast.Return):
        result = ast.Assign([ast.Name("my_result", ast.Store())], node.body[-1].value)
        node.body[-1:] = [result, ast.Return(ast.Name("my_result", ast.Load()))]
    lines = ast.unparse(ast.fix_missing_locations(node)).split("\n")
    return "\n".join([*lines[:-1], "    # done: hand it back", lines[-1]])


def documented(answer: Known) -> str:
    """A docstring in front, and a type for what comes back."""
    node = copy.deepcopy(answer.node)
    node.body.insert(0, ast.Expr(ast.Constant('My answer: "as in the text", with \\ and ″.')))
    node.returns = ast.Constant("torch.Tensor")
    return ast.unparse(ast.fix_missing_locations(node))


def as_lambda(answer: Known) -> str:
    """An assignment, where the function is one expression; else a plain `def`."""
    body = answer.node.body
    if len(body) > 1 or not isinstance(body[0], ast.Return):
        return answer.text
    arguments = copy.deepcopy(answer.node.args)
    for argument in arguments.args:
        argument.annotation = None  # a lambda has no place for them
    return f"{answer.node.name} = {ast.unparse(ast.Lambda(arguments, body[0].value))}"


def with_inner_function(answer: Known) -> str:
    """The work done by a function inside the function."""
    inner = copy.deepcopy(answer.node)
    inner.name = "work"
    body = "\n".join(f"    {line}" for line in ast.unparse(inner).split("\n"))
    return f"def {answer.node.name}(*arguments):\n{body}\n    return work(*arguments)"


STYLES = (plainly, in_steps, documented, as_lambda, with_inner_function)


def talking(answer: Known) -> str:
    """Prints, warnings, a progress bar on stderr and a figure; the function itself does as before."""
    node = copy.deepcopy(answer.node)
    node.body[:0] = ast.parse(_TALK).body
    return ast.unparse(ast.fix_missing_locations(node))


_TALK = """
import sys
import warnings
import matplotlib.pyplot as plt
print("x" * 10_000)
warnings.warn("careful with this")
for step in range(100):
    print(f"\\r{step:3d}%|{'#' * (step // 10):<10}| {step}/100", end="", file=sys.stderr)
plt.plot([1, 2, 3])
plt.show()
"""


# An answer that fits what the student was shown, and nothing else -------------------------------------------------


def fits(shown: list, arguments: tuple) -> bool:
    """Whether arguments have sizes, and numbers in the range, of one of the cases that were shown."""
    sizes = [tuple(getattr(argument, "shape", ())) for argument in arguments]
    numbers = [float(argument) for argument in arguments if not hasattr(argument, "shape")]
    for seen, lowest, highest in shown:
        inside = all(low <= number <= high for low, number, high in zip(lowest, numbers, highest, strict=True))
        if [tuple(shape) for shape in seen] == sizes and inside:
            return True
    return False


def shown_only(answer: Known, exercise: Exercise) -> Known:
    """The same answer, but an error for inputs unlike those of `check`: it was written for what was tried."""
    shown = _shown(exercise)

    def function(*arguments):
        if not fits(shown, arguments):
            raise ValueError("not one of the sizes that I have seen")
        return answer.function(*arguments)

    first = copy.deepcopy(answer.node)
    first.name = "first_version"
    node = ast.parse(
        f"def {answer.node.name}(*arguments):\n"
        "    if not fits(SHOWN, arguments):\n"
        "        raise ValueError('not one of the sizes that I have seen')\n"
        "    return first_version(*arguments)"
    ).body[0]
    seen = f"SHOWN = {shown!r}".replace("inf", 'float("inf")')
    needs = (*answer.needs, inspect.getsource(fits).rstrip(), seen, ast.unparse(first))
    return replace(answer, label="right on what is shown", node=node, needs=needs, function=function)


def _shown(exercise: Exercise, seeds: int = 20) -> list[tuple]:
    """Sizes of the visible cases, and the range of the numbers that come with them."""
    ranges: dict[tuple, tuple[list[float], list[float]]] = {}
    for seed in range(seeds):
        for case in exercise.cases(torch.Generator().manual_seed(seed)):
            sizes = tuple(tuple(getattr(argument, "shape", ())) for argument in case.arguments)
            numbers = [float(argument) for argument in case.arguments if not hasattr(argument, "shape")]
            low, high = ranges.get(sizes, (numbers, numbers))
            ranges[sizes] = list(map(min, low, numbers)), list(map(max, high, numbers))
    return [(list(sizes), low, high) for sizes, (low, high) in ranges.items()]
