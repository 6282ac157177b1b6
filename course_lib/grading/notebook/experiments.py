"""Find statements that are never run: those that load a model, data or an experiment, and those that read the result.

Standard library only: this runs inside the sandbox.
"""

import ast
import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from course_lib.grading.notebook.bindings import Facts, Item, facts, item
from course_lib.grading.notebook.changes.effects import Effects
from course_lib.grading.notebook.disk import FILE
from course_lib.grading.notebook.magics import MAGIC
from course_lib.grading.notebook.names import IMPORTS, at_once, dotted
from course_lib.grading.notebook.statements import DEFINITIONS, TRIES, WITHS, Judge, Statement, head, leaves

# Not available in grading: models, texts, figures and experiments of lessons, and tools for notebooks.
_OURS = re.compile(r"course_lib\.(models|data|lessons|workbook)\b.*")
_LOADS = {"from_pretrained", "load_dataset", "snapshot_download", "hf_hub_download"}
_OF_THE_WORKBOOK = {"check", "check_all", "hint", "mine", "show_progress"}  # need no import in a notebook
_EVERYBODYS = {"torch", "sys", "builtins"}  # all exercises share these
_READS = "it reads "
_SHOWN = 60  # characters of a statement


@dataclass(frozen=True)
class Skipped:
    """A statement that is not run. `touches`: names that it would bind or change; `before`: number of items above."""

    touches: frozenset[str]
    before: int
    number: int  # number of the cell
    text: str
    reason: str


class Reader(Judge):
    """Read the top-level statements of a notebook one by one: what each binds, changes and reads, and if it may run.

    Args:
        answers: functions that are given to checks.
    """

    def __init__(self, statements: list[ast.stmt], answers: set[str]):
        self._facts: dict[ast.stmt, Facts] = {}
        self._changes: dict[ast.stmt, frozenset[str]] = {}
        self._touched: dict[ast.stmt, frozenset[str]] = {}
        self._heads: dict[ast.stmt, ast.stmt | None] = {}
        self._effects = Effects(statements, answers)
        parts = [part for whole in statements for part in leaves(whole)]
        known = []
        for part in parts:
            with contextlib.suppress(RecursionError):  # reported when its cell is read
                known.append((part, self._known(part)))
        self._experiments = Experiments(self._effects, known)

    def item(self, node: ast.stmt, statement: Statement, position: int, number: int) -> Item:
        """Return the item of a statement of the top level that may run."""
        changes = self._changed(node)
        known = self._known(node)
        others = changes - known.binds  # if it also binds the name, only the notebook's own value is changed
        everywhere = any(self._effects.imported.get(name, "").split(".")[0] in _EVERYBODYS for name in others)
        return item(node, known, statement, position=position, number=number, changes=changes, everywhere=everywhere)

    def reason(self, node: ast.stmt) -> str:
        """Explain why a statement is not run; for a compound statement, why its test or context is not."""
        if isinstance(node, TRIES):
            return ""
        if node not in self._heads:
            self._heads[node] = head(node)
        decides = self._heads[node] or node
        return self._experiments.why(decides, self._known(decides))

    def acts(self, node: ast.stmt) -> bool:
        """Check whether it, or a statement inside it, binds or changes a name."""
        if isinstance(node, (ast.If, *TRIES, *WITHS)):
            return any(self.acts(part) for part in leaves(node))
        return bool(self._known(node).star) or bool(self.touches(node))

    def only_writes(self, node: ast.stmt) -> bool:
        """Check whether it changes only files on the disk."""
        touched = self.touches(node)
        return bool(touched) and all(name.startswith(FILE) for name in touched)

    def touches(self, node: ast.stmt) -> frozenset[str]:
        """Return names that it binds or changes itself, without those that it may change through shared values."""
        known = self._known(node)
        if node not in self._touched:
            self._touched[node] = self._effects.changes(node, through_others=False)
        return known.binds | known.files | known.deletes | self._touched[node]

    def skipped(self, whole: ast.stmt) -> list[tuple[ast.stmt, str]]:
        """Return the statements inside of one that are not run although something may need them, and why."""
        parts = list(leaves(whole))
        reason = self.reason(whole) if whole not in parts else ""
        if isinstance(whole, WITHS) and not reason:  # entered for all of its body, or not at all
            reason = next((why for part in parts if (why := self.reason(part))), "")
        free = (*DEFINITIONS, *IMPORTS)
        found = [(part, self.reason(part) or ("" if isinstance(part, free) else reason)) for part in parts]
        return [(part, why) for part, why in found if why and self.touches(part)]

    def _known(self, node: ast.stmt) -> Facts:
        if node not in self._facts:
            try:
                self._facts[node] = self._with_files(facts(node, ast.unparse(node)), node)
            except SyntaxError:  # statements that only make sense inside of it, such as `break`
                self._facts[node] = Facts()
        return self._facts[node]

    def _with_files(self, known: Facts, node: ast.stmt) -> Facts:
        """Add the files that it reads: when it runs, and when a function that it defines is called."""
        files = frozenset(self._effects.disk.reads(node))
        at_once = frozenset() if isinstance(node, DEFINITIONS) else files
        return replace(known, eager=known.eager | at_once, late=known.late | files)

    def _changed(self, node: ast.stmt) -> frozenset[str]:
        if node not in self._changes:
            self._changes[node] = self._effects.changes(node)
        return self._changes[node]


def shown(node: ast.stmt) -> str:
    """Return the first line of a statement, or of a command for a shell."""
    call = getattr(node, "value", None)
    shell = isinstance(call, ast.Call) and getattr(call.func, "id", "") == MAGIC
    first = call.args[0].value if shell else ast.unparse(node).strip().split("\n")[0]
    return first if len(first) <= _SHOWN else f"{first[: _SHOWN - 1]}…"


class Experiments:
    """The reasons why statements are not run.

    Args:
        known: the top-level statements after `if`, `try` and `with` are split, and what they bind and read.
    """

    def __init__(self, effects: Effects, known: Iterable[tuple[ast.stmt, Facts]]):
        self.effects = effects
        self.loads: set[str] = set()  # functions of the notebook that load something
        self.loaded: dict[str, str] = {}  # names that only such a statement binds, and why it is not run
        statements = list(known)
        functions = [(name, *_of_function(node)) for name, nodes in effects.functions.items() for node in nodes]
        self._calls = {node: _calls(part for part, _ in at_once(node, lambdas=False)) for node, _ in statements}
        while True:
            before = len(self.loads) + len(self.loaded)
            for name, called, read in functions:
                if name not in self.loads and (read & self.loaded.keys() or any(map(self._loads, called))):
                    self.loads.add(name)
            missing, bound = {}, set()
            for node, found in statements:
                if why := self.why(node, found):
                    first = why.partition(", and ")[2] if why.startswith(_READS) else why
                    missing |= dict.fromkeys(found.binds, first)
                else:
                    bound |= found.binds
            self.loaded |= {name: why for name, why in missing.items() if name not in bound | self.loaded.keys()}
            if len(self.loads) + len(self.loaded) == before:
                return

    def why(self, node: ast.stmt, found: Facts) -> str:
        """Explain why a statement is not run; "" if it may run, as all definitions and imports."""
        if isinstance(node, (*DEFINITIONS, *IMPORTS)):
            return ""
        if MAGIC in found.eager:
            return "grading runs no shell and no magics"
        if self.effects.disk.starts_a_program(node):
            return "grading starts no other programs"
        if node not in self._calls:
            self._calls[node] = _calls(part for part, _ in at_once(node, lambdas=False))
        for called in self._calls[node]:
            if self._loads(called):
                return f"grading loads no model, data or experiment ({ast.unparse(called)[:_SHOWN]})"
        read = sorted(found.eager & self.loaded.keys())
        return f"{_READS}{read[0]}, and {self.loaded[read[0]]}" if read else ""

    def _loads(self, called: ast.expr) -> bool:
        full, name = dotted(called, self.effects.imported), getattr(called, "attr", None) or getattr(called, "id", "")
        own = isinstance(called, ast.Name) and (name in self.effects.functions or name in self.effects.classes)
        if own and name not in self.effects.imported:
            return name in self.loads
        if isinstance(called, ast.Attribute) and name in self.loads:
            return True
        bare = isinstance(called, ast.Name) and name not in self.effects.imported and name in _OF_THE_WORKBOOK
        return bare or name in _LOADS or bool(_OURS.fullmatch(full))


def _calls(parts: Iterable[ast.AST]) -> list[ast.expr]:
    return [part.func for part in parts if isinstance(part, ast.Call)]


def _of_function(function: ast.AST) -> tuple[list[ast.expr], set[str]]:
    """Return the calls of a function, and the names that it reads and does not bind."""
    parts = list(ast.walk(function))
    names = [part for part in parts if isinstance(part, ast.Name)]
    own = {part.id for part in names if not isinstance(part.ctx, ast.Load)}
    own |= {part.arg for part in parts if isinstance(part, ast.arg)}
    return _calls(parts), {part.id for part in names if isinstance(part.ctx, ast.Load)} - own
