"""The named mistakes of an exercise, read from the Markdown file next to it: `score.md` for `score.py`.

    # wanda.accumulate(total, batch)

    - **norms added up**: Norms do not add: ‖(a, b)‖ is not ‖a‖ + ‖b‖. Add squares, and take one root at the very end.
      - `total + batch.flatten(0, 1).norm(dim=0)`

The heading names the exercise and the parameters of its function. Each mistake has a name, an explanation for the
student, and variants, which are different ways to write the same mistake. A variant is one of three things:

- an expression in the parameters;
- steps that replace the reference's own steps, with a semicolon between two of them: `share = y.mean(); return share`.
  A step is known by what it assigns to, or as `return`. One that uses its own result, such as `share = 1 - share`,
  comes after the reference's. Parameters can be changed too, before the first step;
- the name of a function in the exercise's file, which takes the same parameters.

Variants may use every name of the exercise's file. Followed by "for `tiny` in `1e-6, 1e-9`", one line gives
several variants. A long text continues on the next line, indented further.
"""

import ast
import copy
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from course_lib.checking.exercise import Mistake

HEADING = re.compile(r"# (?P<exercise>\w+\.\w+)\((?P<parameters>.*)\)")
MISTAKE = re.compile(r"- \*\*(?P<name>.+?)\*\*: (?P<explanation>.+)")
VARIANT = re.compile(r"  - `(?P<code>[^`]+)`(?P<loops>( for `\w+` in `[^`]+`)*)")
LOOP = re.compile(r" for `(\w+)` in `([^`]+)`")
Values = dict[str, str]  # the replacement of a name, such as {"tiny": "1e-6"}
Written = ast.Lambda | ast.FunctionDef | ast.Name | ast.Attribute


@dataclass(frozen=True)
class Entry:
    """One mistake in its file. Each variant has its line number and the values of its loops."""

    name: str
    explanation: str
    variants: list[tuple[int, str, Values]]


def read_mistakes(names: dict[str, Any], steps_of: Callable | None = None) -> tuple[Mistake, ...]:
    """Read the mistakes of an exercise.

    Args:
        names: the globals of the exercise's file.
        steps_of: the reference, if variants replace its steps.

    Raises:
        ValueError: a text that cannot be read; the message has the line.
    """
    path = Path(names["__file__"]).with_suffix(".md")
    parameters, entries = parsed(path.read_text(encoding="utf-8"), _shown(path))
    return tuple(
        Mistake(
            entry.name,
            entry.explanation,
            tuple(
                WrongAnswer(code, values, f"{_shown(path)}, line {line}", parameters, names, steps_of)
                for line, code, values in entry.variants
            ),
        )
        for entry in entries
    )


def _shown(path: Path) -> str:
    return "/".join(path.parts[-3:])


def parsed(text: str, where: str) -> tuple[str, list[Entry]]:
    """Parse a text; return the parameters in its heading, and all mistakes in order.

    Raises:
        ValueError: a line that cannot be read; the message names it.
    """
    (number, first), *blocks = list(_blocks(text, where)) or [(1, "")]
    heading = HEADING.fullmatch(first)
    if not heading:
        raise ValueError(
            f"{where}, line {number}: got {first!r}; expected a heading such as '# wanda.score(weight, inputs)'."
        )
    entries: list[Entry] = []
    for number, block in blocks:
        if mistake := MISTAKE.fullmatch(block):
            entries.append(Entry(mistake["name"], mistake["explanation"], []))
        elif (variant := VARIANT.fullmatch(block)) and entries:
            loops = _loops(variant["loops"], f"{where}, line {number}")
            entries[-1].variants.extend((number, variant["code"].strip(), values) for values in loops)
        else:
            raise ValueError(
                f"{where}, line {number}: got {block!r}; expected '- **name**: explanation', and below it variants "
                "such as '  - `expression`'."
            )
    if bare := [entry.name for entry in entries if not entry.variants]:
        raise ValueError(f"{where}: the mistake {bare[0]!r} has no variant; expected '  - `expression`' below it.")
    return heading["parameters"], entries


def names_used(text: str) -> set[str]:
    """Return the names in the variants of a text, which include all names that they need from the exercise's file."""
    parameters, entries = parsed(text, "mistakes")
    code = "\n".join("\n".join([code, *values.values()]) for e in entries for _, code, values in e.variants)
    return set(re.findall(r"[A-Za-z_]\w*", code)) - set(parameters.split(", "))


def _blocks(text: str, where: str) -> Iterator[tuple[int, str]]:
    """Yield the heading, mistakes and variants, each as one line, with the number of its first line."""
    started: tuple[int, list[str]] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if line.startswith("  ") and not line.startswith("  - `"):
            if started is None:
                raise ValueError(f"{where}, line {number}: got {line!r}; nothing above it can be continued.")
            started[1].append(line.strip())
            continue
        if started:
            yield started[0], " ".join(started[1])
        started = number, [line.rstrip()]
    if started:
        yield started[0], " ".join(started[1])


def _loops(text: str, where: str) -> list[Values]:
    """Return all combinations of the values of " for `x` in `1, 2` for `y` in `3, 4`"; the last name varies fastest."""
    try:
        loops = {name: ast.parse(f"({values},)", mode="eval").body.elts for name, values in LOOP.findall(text)}
    except SyntaxError as error:
        raise ValueError(f"{where}: the values in {text.strip()!r} are no Python: {error.msg}.") from None
    return [dict(zip(loops, map(ast.unparse, values), strict=True)) for values in product(*loops.values())]


class WrongAnswer:
    """One variant of a mistake. It is compiled at the first call, because most are never called."""

    def __init__(
        self,
        code: str,
        values: Values,
        where: str,
        parameters: str,
        names: dict[str, Any],
        steps_of: Callable | None = None,
    ) -> None:
        self.code, self.values, self.where, self.parameters = code, values, where, parameters
        self.names, self.steps_of = names, steps_of

    def __repr__(self) -> str:
        return f"<{self.where}: {self.code}>"

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    @cached_property
    def function(self) -> Callable:
        """Compile the variant to a function.

        Raises:
            ValueError: a variant that is not Python, or that replaces a step that the reference does not have.
        """
        node = self.written
        if isinstance(node, ast.FunctionDef):
            scope: dict[str, Any] = {}
            module = ast.fix_missing_locations(ast.Module([node], []))
            exec(compile(module, f"<{self.where}>", "exec"), self.names, scope)
            return scope[node.name]
        return eval(compile(ast.fix_missing_locations(ast.Expression(node)), f"<{self.where}>", "eval"), self.names)

    @property
    def written(self) -> Written:
        """Return the variant as Python: a lambda, the reference with other steps, or the name of a function."""
        try:
            body = _Filled(self.values).visit(ast.parse(self.code)).body
            arguments = ast.parse(f"lambda {self.parameters}: 0", mode="eval").body.args
        except SyntaxError as error:
            raise ValueError(f"{self.where}: {self.code!r} is no Python: {error.msg}.") from None
        if len(body) > 1 or not isinstance(body[0], ast.Expr):
            return self._with_steps(body, [argument.arg for argument in arguments.args])
        value, parameters = body[0].value, [argument.arg for argument in arguments.args]
        is_name = isinstance(value, ast.Name | ast.Attribute) and re.fullmatch(r"[\w.]+", self.code)
        if is_name and self.code.partition(".")[0] not in parameters:
            return value
        return ast.Lambda(arguments, value)

    def _with_steps(self, steps: list[ast.stmt], parameters: list[str]) -> ast.FunctionDef:
        definition = self._reference()
        if [argument.arg for argument in definition.args.args][: len(parameters)] != parameters:
            raise ValueError(
                f"{self.where}: the heading has the parameters {', '.join(parameters)}; expected those of "
                f"{definition.name}, whose steps are replaced."
            )
        others: dict[str, list[ast.stmt]] = {}
        for step in steps:
            others.setdefault(_name_of(step), []).append(step)
        bodies = list(_bodies(definition))
        own = Counter(_name_of(step) for body in bodies for step in body)
        new = [name for name in others if not own[name] and all(part in parameters for part in name.split(", "))]
        if wrong := [name for name in others if own[name] != 1 and name not in new]:
            known = ", ".join(name for name in own if name)
            got, n = wrong[0] or ast.unparse(others[wrong[0]][0]), own[wrong[0]]
            raise ValueError(
                f"{self.where}: got {got!r}, which is {n} steps of {definition.name}; expected one of {known}, or a "
                "parameter."
            )
        for body in bodies:
            body[:] = [other for step in body for other in _replaced(step, others.get(_name_of(step)), parameters)]
        definition.body[:0] = [step for name in new for step in others[name]]
        return definition

    def _reference(self) -> ast.FunctionDef:
        """Return a copy of the reference's syntax tree."""
        function, node = inspect.unwrap(self.steps_of) if self.steps_of else None, None
        if inspect.isfunction(function) and not function.__code__.co_freevars:
            node = _definition(function)
        if node is None:
            raise ValueError(
                f"{self.where}: {self.code!r} replaces steps; expected read_mistakes(globals(), steps_of=REFERENCE) "
                "with a function that is written with `def` at the top of a file."
            )
        return copy.deepcopy(node)


class _Filled(ast.NodeTransformer):
    """Replace names with the values of a loop."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(self.values[node.id], mode="eval").body if node.id in self.values else node


def _definition(function: Callable) -> ast.FunctionDef | None:
    try:
        node = ast.parse(inspect.getsource(function)).body[0]
    except (OSError, SyntaxError):  # no file to read, or a lambda in the middle of an expression
        return None
    return node if isinstance(node, ast.FunctionDef) else None


def _bodies(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements in a function, except those of functions inside it."""
    for body in (getattr(node, field, None) for field in ("body", "orelse", "finalbody")):
        if isinstance(body, list):
            yield body
            for inner in body:
                if not isinstance(inner, ast.FunctionDef | ast.ClassDef):
                    yield from _bodies(inner)


def _replaced(step: ast.stmt, others: list[ast.stmt] | None, parameters: list[str]) -> list[ast.stmt]:
    """Replace one step with others. Steps that use their own result, such as `loss = 2 * loss`, come after it."""
    if others is None:
        return [step]
    name = _name_of(step)
    used = {node.id for node in ast.walk(others[0]) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return [step, *others] if name in used and name not in parameters else others


def _name_of(step: ast.stmt) -> str:
    """Return the name of a step: the target that it assigns to, or `return`; empty for any other statement."""
    if isinstance(step, ast.Assign):
        return ast.unparse(step.targets[0]).strip("()")
    if isinstance(step, ast.AugAssign):
        return f"{ast.unparse(step.target)} +="  # whatever the operator
    return "return" if isinstance(step, ast.Return) else ""
