"""Find changes that a statement makes without binding: by assigning to a part, or by calling a method or a function.

They include files and folders that it writes, under the names that disk.py gives them.

The analysis reads the text and prefers too many: an unnecessary statement costs a moment, a missing one costs the
points. Standard library only: this runs inside the sandbox.
"""

import ast
import builtins
import re
from collections.abc import Iterable
from dataclasses import dataclass

from course_lib.grading.notebook.changes.sharing import (
    Known,
    Sharing,
    backwards,
    builtin_types,
    constants,
    hands_on,
    reach,
)
from course_lib.grading.notebook.disk import Disk
from course_lib.grading.notebook.names import (
    DEFS,
    LOOPS,
    arguments_of,
    at_once,
    bound_in,
    dotted,
    origins,
    root,
    roots,
    stored,
)

ROUNDS = 8  # rounds in which functions pass their changes on to their callers
# Methods that change their object, wherever they are called; if the value of a call is not used, any method may.
_CHANGES = re.compile(
    "append|appendleft|extend|extendleft|insert|pop|popleft|popitem|remove|discard|clear|sort|reverse|rotate|add|update|"
    r"setdefault|push|put|fill|register|load_state_dict|move_to_end|__(set|del)(item|attr)__|"
    r"(set|add|register|insert|push|put|enable|disable)_\w+|\w*[a-z0-9]_"
)
# Functions that change a package; seeding in a loop or a function is an experiment.
_SETS = re.compile(
    r"(manual_)?seed(_all)?|(set|use|enable|disable|register|add|insert|append|extend|filter|simplefilter|basicConfig)\w*"
)
_SETS_FOR_GOOD = re.compile(r"set_default_\w+|set_grad_enabled|setrecursionlimit")
_SETS_NOTHING = re.compile(r"set_num_\w+|set_printoptions")
_ONLY_READS = re.compile(r"(save|dump|write|show|plot|print)\w*|(manual_)?seed\w*|set_\w+")  # do not change arguments
# Packages that only display their arguments, and time, which passes.
_SHOWS = {"matplotlib", "seaborn", "plotly", "IPython", "ipywidgets", "pprint", "rich", "tqdm", "logging", "warnings"}
_SHOWS |= {"time", "timeit", "gc", "course_lib"}


@dataclass(frozen=True)
class Effect:
    """The changes made by calling a function: global names, and its parameters, by name and by position."""

    changes: frozenset[str] = frozenset()
    parameters: frozenset[str | int] = frozenset()

    def __or__(self, other: "Effect") -> "Effect":
        return Effect(self.changes | other.changes, self.parameters | other.parameters)


class Effects:
    """The functions of a notebook, and the changes that statements make directly or by calling them.

    Args:
        statements: the statements of its top level.
        answers: functions that exercises require. A change that an experiment makes by calling one is not setup code.
    """

    def __init__(self, statements: list[ast.stmt], answers: set[str]):
        self.imported = origins(statements)
        self.types = builtin_types(statements)
        self.disk = Disk(statements, self.imported)
        self.functions: dict[str, list[ast.AST]] = {}
        self.classes: dict[str, list[ast.ClassDef]] = {}
        self.same: dict[str, set[str]] = {}  # other names of the same value
        self.effects: dict[str, Effect] = {}
        for node in (inner for statement in statements for inner in ast.walk(statement)):
            if isinstance(node, DEFS):
                self.functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                self.classes.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for name in {name for target in node.targets for name in roots(target)}:
                    self.functions.setdefault(name, []).append(node.value)
        for statement in statements:
            if isinstance(statement, ast.Assign):
                self._are_the_same(statement)
        own = self.functions.keys() | self.classes.keys()
        passing = {name for name, nodes in self.functions.items() if name not in answers and any(map(hands_on, nodes))}
        fixed = constants(statements)
        self.known = Known(
            own, lambda name: name in passing or name not in self.functions, lambda names: self._values(names) - fixed
        )
        self.sharing = Sharing()
        for statement in statements:
            self.sharing.add((part for part, _ in at_once(statement)), self.known)
        self.shared = backwards(self.sharing.values)
        self._follow_calls(answers)

    def _are_the_same(self, statement: ast.Assign) -> None:
        values = set() if isinstance(statement.value, (ast.Tuple, ast.List)) else roots(statement.value) - self.types
        values = {name for name in values if self.imported.get(name) != "builtins"}  # whose parts are complete values
        names = {target.id for target in statement.targets if isinstance(target, ast.Name)} | values
        for name in names if len(names) > 1 else ():
            self.same.setdefault(name, set()).update(names - {name})

    def _follow_calls(self, answers: set[str]) -> None:
        """Propagate changes until nothing is added: a function changes whatever its callees change."""
        bodies = {
            name: [(node, [(part, True) for part in _body(node)]) for node in nodes if name not in answers]
            for name, nodes in self.functions.items()
        }
        for _ in range(ROUNDS):
            before = dict(self.effects)
            for name, found in bodies.items():
                for node, parts in found:
                    self.effects[name] = self.effects.get(name, Effect()) | self._of_function(node, parts)
            for name, nodes in self.classes.items():
                self.effects[name] = self._of_class(nodes)
            if self.effects == before:
                return

    def _of_function(self, function: ast.AST, parts: list[tuple[ast.AST, bool]]) -> Effect:
        changed = self._changed(parts)
        inner = [part for part, _ in parts if isinstance(part, (*DEFS, ast.Lambda))]
        own = set().union(*(bound_in(each) for each in (function, *inner)))
        shared = {name for part, _ in parts if isinstance(part, ast.Global) for name in part.names} & stored(function)
        names = [argument.arg for argument in arguments_of(function)]
        positions = {place for place, name in enumerate(names) if name in changed}
        return Effect(frozenset((changed - own) | shared), frozenset(positions | set(names) & changed))

    def _of_class(self, nodes: list[ast.ClassDef]) -> Effect:
        """Return the changes of creating an object, which may be those of any method."""
        methods = {part.name for node in nodes for part in node.body if isinstance(part, DEFS)}
        known = [self.effects.get(name, Effect()) for name in methods]
        given = self.effects.get("__init__", Effect()).parameters if "__init__" in methods else ()
        shifted = {place - 1 if isinstance(place, int) else place for place in given}
        return Effect(frozenset().union(*(each.changes for each in known)), frozenset(shifted))

    def changes(self, statement: ast.stmt, through_others: bool = True) -> frozenset[str]:
        """Return names whose value a statement of the top level may change in place.

        Args:
            through_others: include values from which the changed ones were made, and other values made from those.
        """
        changed = reach(self._changed(list(at_once(statement))), self.same)
        if through_others:
            made_from = reach(changed, self.same, self.sharing.values)
            changed = made_from | (reach(made_from, self.same, self.shared) - stored(statement))
        return frozenset(changed)

    def _changed(self, parts: list[tuple[ast.AST, bool]]) -> set[str]:
        discarded = {id(_awaited(part.value)) for part, _ in parts if isinstance(part, ast.Expr)}
        changed: set[str] = set()
        handed_on: dict[str, set[str]] = {}  # a loop variable is a part of its sequence
        local = Sharing()
        local.add((part for part, _ in parts), self.known)
        for part, again in parts:
            changed |= self._by(part, again, id(part) in discarded) | self.disk.writes(part, id(part) in discarded)
            if isinstance(part, ast.Call):
                changed |= self._by_another_name(part, id(part) in discarded, local)
            for target, value in _handed_on(part):
                for name in _named(target):
                    handed_on.setdefault(name, set()).update(self._values(_named(value)))
        return reach(changed, handed_on) - self.types

    def _by_another_name(self, call: ast.Call, discarded: bool, local: Sharing) -> set[str]:
        """Return names changed by a call of a function under another name, or of a part of a value made here."""
        first, method = root(call.func), isinstance(call.func, ast.Attribute)
        changed: set[str] = set()
        own = first in self.known.functions or first in self.imported
        if first and not own and (discarded or not method):
            for function in local.called(first, self.sharing):
                effect = self._effect(function)
                changed |= effect.changes | self._values(self._given(call, effect, 0))
            if discarded and not method and (local.values.get(first) or self.sharing.values.get(first)):
                changed.add(first)
        name = getattr(call.func, "attr", None) or getattr(call.func, "id", "")
        if dotted(call.func, self.imported).split(".")[0] not in _SHOWS and not _ONLY_READS.fullmatch(name):
            for given in {root(each) for each in (*call.args, *(keyword.value for keyword in call.keywords))} - {""}:
                for function in local.functions.get(given, set()) | self.sharing.functions.get(given, set()):
                    changed |= self._effect(function).changes
        return changed

    def _by(self, part: ast.AST, again: bool, discarded: bool) -> set[str]:
        if isinstance(part, (ast.Subscript, ast.Attribute)) and isinstance(part.ctx, (ast.Store, ast.Del)):
            return ({root(part)} - {""}) | self._settings(part.value)
        if isinstance(part, ast.Attribute) and _CHANGES.fullmatch(part.attr):
            return {root(part)} - {""} - self.imported.keys()
        if isinstance(part, ast.AugAssign):
            return {root(part.target)} - {""}
        if isinstance(part, ast.Call):
            return self._by_call(part, again, discarded)
        changed = {name for decorator in getattr(part, "decorator_list", ()) for name in self._by_decorator(decorator)}
        if isinstance(part, ast.ClassDef):  # because a base class may keep a list of them
            bases = roots(ast.Tuple(part.bases)) & self.classes.keys()
            if bases and "__init_subclass__" in self.functions:
                changed |= bases | self._effect("__init_subclass__").changes
        return changed

    def _settings(self, value: ast.expr) -> set[str]:
        """Return all names of a package whose function returns the object to set: `decimal.getcontext().prec = 50`."""
        package = dotted(value.func, self.imported).split(".")[0] if isinstance(value, ast.Call) else ""
        if not package or package in _SHOWS:
            return set()
        return {name for name, full in self.imported.items() if full.split(".")[0] == package}

    def _by_decorator(self, decorator: ast.expr) -> set[str]:
        call = decorator if isinstance(decorator, ast.Call) else ast.Call(decorator, [], [])
        return self._by_call(call, False, True) - self.imported.keys()

    def _by_call(self, call: ast.Call, again: bool, discarded: bool) -> set[str]:
        called, first = call.func, root(call.func)
        name = getattr(called, "attr", None) or getattr(called, "id", "")
        method, package = isinstance(called, ast.Attribute), first in self.imported
        changed = {name for keyword in call.keywords if keyword.arg == "out" for name in roots(keyword.value)}
        if name in ("setattr", "delattr", "next") and call.args:
            changed |= roots(call.args[0])
        handed = {part.id for part in ast.walk(call) if isinstance(part, ast.Name)}
        for function in handed & self.functions.keys():  # it is called, or passed to a function that may call it
            changed |= self._effect(function).changes
        own = None if package else self.effects.get(name)
        if own:
            changed |= own.changes | self._given(call, own, int(method))
            if method and 0 in own.parameters:
                changed.add(first)
        if not discarded:
            return changed - {""}
        if (method and not package) or (package and _sets(name, again)):
            changed.add(first)
        of_a_type = method and hasattr(builtins, first)
        shows = dotted(called, self.imported).split(".")[0] in _SHOWS or _ONLY_READS.fullmatch(name)
        if own is None and (package or of_a_type) and not shows:
            changed |= self._values({name for argument in call.args for name in roots(argument)})
        return changed - {""}

    def _effect(self, function: str) -> Effect:
        return self.effects.get(function, Effect())

    def _given(self, call: ast.Call, own: Effect, shift: int) -> set[str]:
        """Return the arguments for those parameters that a function of the notebook changes."""
        given = [argument for place, argument in enumerate(call.args) if place + shift in own.parameters]
        given += [keyword.value for keyword in call.keywords if keyword.arg in own.parameters]
        return {name for argument in given for name in roots(argument)}

    def _values(self, names: Iterable[str]) -> set[str]:
        """Return the names without functions, classes, builtin types and packages, because nothing fills those."""
        return set(names) - self.functions.keys() - self.classes.keys() - self.imported.keys() - self.types


def _body(function: ast.AST) -> Iterable[ast.AST]:
    body = function.body if isinstance(function.body, list) else [function.body]
    return [part for statement in body for part in ast.walk(statement)]


def _awaited(value: ast.expr) -> ast.expr:
    return value.value if isinstance(value, ast.Await) else value


def _sets(name: str, again: bool) -> bool:
    """Check by its name whether a function of a package changes something in the package."""
    if again:
        return bool(_SETS_FOR_GOOD.fullmatch(name))
    return bool(_SETS.fullmatch(name)) and not _SETS_NOTHING.fullmatch(name)


def _handed_on(part: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """Return pairs of a target and a value, for statements that put names into parts of another value."""
    if isinstance(part, LOOPS) and not isinstance(part, ast.While):
        return [(part.target, part.iter)]
    if isinstance(part, ast.withitem) and part.optional_vars is not None:
        return [(part.optional_vars, part.context_expr)]
    if isinstance(part, ast.Assign) and isinstance(part.value, (ast.Name, ast.Attribute, ast.Subscript)):
        return [(target, part.value) for target in part.targets]
    return []


def _named(expression: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(expression) if isinstance(part, ast.Name)}
