"""Wrong answers made by a machine: an exercise's right answers with one small change each.

`changed_sources` changes one step in the source of a function, or of a function of the course that it calls: `<` for
`<=`, a constant one off, a clamp or a term left out, a mean for a sum. `changed_arguments` leaves the function as it is
and changes what it is given or what it returns: an argument ignored, ties decided together, a matrix transposed.

A changed function runs by exchanging the `__code__` of the original for the length of one call, so that whatever calls
it, closures included, uses the change, and nothing has to be imported again.
"""

import ast
import builtins
import copy
import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

LEVELS = 3  # of functions that call each other
OURS = ("course_lib", "further_answers")


@dataclass(frozen=True)
class Mutant:
    """A changed answer. `where` and `change` say to a person what was changed."""

    where: str
    change: str
    function: Callable
    line: int = 0
    target: types.FunctionType | None = None
    code: types.CodeType | None = None
    sides: types.CodeType | None = None  # where a comparison was changed: the original, which calls SIDES

    def in_place(self) -> "contextmanager[Callable]":
        """The changed function, for as long as the context lasts."""
        return with_code(self.function, self.target, self.code)


@contextmanager
def with_code(function: Callable, target: types.FunctionType | None, code: types.CodeType | None) -> Iterator[Callable]:
    """A function, while another one that it calls has other code."""
    if target is None:
        yield function
        return
    before = target.__code__
    target.__code__ = code
    try:
        yield function
    finally:
        target.__code__ = before


SIDES = "__sides_of_a_comparison__"  # among the builtins: what is compared is handed to it


def sides_of(mutant: Mutant, arguments: tuple) -> list[tuple]:
    """Both sides of the comparison that a mutant changes, in the order of the calls, in the right answer."""
    found = []

    def compare(left: object, right: object, op: str) -> object:
        found.append((left, right))
        return getattr(operator, op)(left, right)

    with with_code(mutant.function, mutant.target, mutant.sides) as function:
        setattr(builtins, SIDES, compare)
        try:
            function(*copy.deepcopy(arguments))
        except Exception:
            return []
        finally:
            delattr(builtins, SIDES)
    return found


# Which functions there are to change


def reachable(function: Callable, levels: int = LEVELS) -> list[types.FunctionType]:
    """A function and those of the course that it calls, so many levels deep, without repetition."""
    found, level = [], [function]
    for _ in range(levels):
        below = []
        for each in level:
            plain = _unwrapped(each)
            if plain is None or plain in found:
                continue
            found.append(plain)
            below += _called(plain)
        level = below
    return found


def _unwrapped(function: object) -> types.FunctionType | None:
    """The function itself, without decorators; None for what is no function of the course."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function) if callable(function) else function
    is_ours = isinstance(function, types.FunctionType) and function.__module__.startswith(OURS)
    return function if is_ours else None


def _called(function: types.FunctionType) -> list[object]:
    """Functions that a function may call: globals it names, what it closes over, and its defaults."""
    named = [function.__globals__.get(name) for name in sorted(_names(function.__code__))]
    held = [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]
    values = [*held, *(function.__defaults__ or ()), *named]
    return [each for value in values for each in (value if isinstance(value, tuple) else (value,)) if callable(each)]


def _is_full(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _names(code: types.CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


# From a changed tree to code that fits the function


@functools.cache
def _functions_of(path: str) -> list[ast.FunctionDef]:
    """Every function and lambda of a file, each as a definition without annotations, defaults and decorators."""
    found = []
    for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            found.append(_bare(node.name, node, node.body))
        elif isinstance(node, ast.Lambda):
            body = ast.copy_location(ast.Return(node.body), node.body)
            found.append(_bare("<lambda>", node, [body]))
    return found


def _bare(name: str, node: ast.FunctionDef | ast.Lambda, body: list[ast.stmt]) -> ast.FunctionDef:
    arguments = copy.deepcopy(node.args)
    arguments.defaults, arguments.kw_defaults = [], [None] * len(arguments.kwonlyargs)
    for argument in ast.walk(arguments):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return ast.copy_location(ast.FunctionDef(name=name, args=arguments, body=body, decorator_list=[]), node)


def _compiled(tree: ast.FunctionDef, free: tuple[str, ...], path: str, keep_free: bool = True) -> types.CodeType:
    """The code of a definition inside a function that has those variables; all of them stay free variables."""
    if free and keep_free:
        names = ast.Tuple([ast.Name(name, ast.Load()) for name in free], ast.Load())
        unused = ast.If(ast.Constant(0), [ast.Expr(names)], [])
        tree = ast.copy_location(
            ast.FunctionDef(name=tree.name, args=tree.args, body=[unused, *tree.body], decorator_list=[]), tree
        )
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(n) for n in free], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    outer = ast.FunctionDef(name="outer", args=arguments, body=[tree], decorator_list=[])
    module = ast.fix_missing_locations(ast.Module([outer], []))
    code = compile(module, path, "exec")
    for _ in range(2):
        code = next(const for const in code.co_consts if isinstance(const, types.CodeType))
    return code


def _tree_of(function: types.FunctionType) -> ast.FunctionDef | None:
    """The definition of a function in its file."""
    code = function.__code__
    candidates = [t for t in _functions_of(code.co_filename) if t.name == code.co_name]
    candidates.sort(key=lambda tree: abs(tree.lineno - code.co_firstlineno))
    for tree in candidates[:6]:
        again = _compiled(tree, code.co_freevars, code.co_filename, keep_free=False)
        if _likeness(again) == _likeness(code):
            return tree
    return None


def _likeness(code: types.CodeType) -> tuple:
    """What tells the functions of a file apart; the bytes of the code depend on what the file imports, too."""
    constants = [const for const in code.co_consts if not isinstance(const, types.CodeType)]
    return code.co_names, code.co_varnames, code.co_freevars, repr(constants)


def _tensor_parameters(function: Callable, example: tuple) -> dict[types.CodeType, set[str]]:
    """Names of the parameters that are tensors of numbers, of each function that runs."""
    found: dict[types.CodeType, set[str]] = {}

    def look(frame: types.FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and frame.f_globals.get("__name__", "").startswith(OURS):
            values = {name: frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]}
            found.setdefault(code, set()).update(
                name for name, x in values.items() if isinstance(x, Tensor) and x.is_floating_point()
            )

    before = sys.gettrace()
    sys.settrace(look)
    try:
        function(*copy.deepcopy(example))
    except Exception:
        return {}
    finally:
        sys.settrace(before)
    return found


def changed_sources(function: Callable, example: tuple = ()) -> Iterator[Mutant]:
    """One change at a time to the source of a function, or of those that it calls.

    Args:
        example: arguments of a case, which say which parameters are tensors of numbers.
    """
    tensors = _tensor_parameters(function, example)
    for target in reachable(function):
        tree = _tree_of(target)
        if tree is None:
            continue
        path, free = target.__code__.co_filename, target.__code__.co_freevars
        for node, other, text in _changes(tree, target, tensors.get(target.__code__, set())):
            code = _compiled(copy.deepcopy(tree, {id(node): other}), free, path)
            sides = _compiled(copy.deepcopy(tree, {id(node): _told(node)}), free, path) if _has_sides(node) else None
            line = getattr(node, "lineno", tree.lineno)
            yield Mutant(f"{Path(path).name}:{line}", text, function, line, target, code, sides)


def _has_sides(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPPED_COMPARISON


def _told(node: ast.Compare) -> ast.Call:
    return _function(SIDES, node.left, node.comparators[0], ast.Constant(OPERATORS[type(node.ops[0])]))


# The changes

OPERATORS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
SWAPPED_COMPARISON = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
LEFT_OUT = {
    *("clamp", "clamp_min", "clamp_max", "relu", "abs", "square", "sqrt", "floor", "ceil", "round", "exp", "log"),
    *("softmax", "cumsum", "cumprod", "tril", "triu", "flip", "masked_fill", "where", "nan_to_num", "index_fill"),
    *("scatter", "add", "sub"),
}
RENAMED = {
    "sum": ("mean", "amax", "prod"),
    "mean": ("sum", "median"),
    "nanmean": ("nansum",),
    "amax": ("amin", "sum"),
    "amin": ("amax",),
    "max": ("min", "sum"),
    "min": ("max",),
    "argmax": ("argmin",),
    "argmin": ("argmax",),
    "any": ("all",),
    "all": ("any",),
    "floor": ("round", "ceil"),
    "ceil": ("floor", "round"),
    "round": ("floor", "ceil"),
    "square": ("abs",),
    "abs": ("square", "relu"),
    "log": ("log1p",),
    "std": ("var",),
    "maximum": ("minimum",),
    "minimum": ("maximum",),
}
PICKED = {"max", "min", "maximum", "minimum", "where"}  # functions of several values: one of these alone
ROUNDED = {"floor": ("ceil", "trunc"), "ceil": ("floor",)}  # of math
Change = tuple[ast.AST, ast.AST, str]


def _changes(tree: ast.FunctionDef, function: types.FunctionType, tensors: set[str]) -> Iterator[Change]:
    constants = {name: value for name, value in _numbers_of(function).items() if name not in _bound(tree)}
    parameters = [argument.arg for argument in tree.args.args if argument.arg in tensors]
    for node in [each for statement in tree.body for each in ast.walk(statement)]:
        for other in _others(node, constants, parameters):
            yield node, other, f"{_text(node)} -> {_text(other)}"


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split())
    return text if len(text) < 90 else text[:87] + "..."


def _numbers_of(function: types.FunctionType) -> dict[str, float]:
    """Numbers that a function names without being given them, by their name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    named = {name: function.__globals__.get(name) for name in _names(function.__code__)}
    named |= {name: cell.cell_contents for name, cell in cells if _is_full(cell)}
    return {name: value for name, value in named.items() if type(value) in (int, float)}


def _bound(tree: ast.FunctionDef) -> set[str]:
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {argument.arg for argument in ast.walk(tree.args) if isinstance(argument, ast.arg)}


def _others(node: ast.AST, constants: dict[str, float], parameters: list[str]) -> Iterator[ast.AST]:
    """Replacements of one node."""
    match node:
        case ast.Compare(ops=[_], comparators=[_]):
            yield from _other_comparisons(node, parameters)
        case ast.keyword(arg="strict" | "stable" | "keepdim" | "dim", value=ast.Constant(value=bool())):
            return
        case ast.keyword(value=ast.Constant(value=bool() as value)):
            yield ast.keyword(node.arg, ast.Constant(not value))
        case ast.Constant(value=bool()):
            return
        case ast.Constant(value=int() | float() as value):
            yield from map(ast.Constant, _other_numbers(value))
        case ast.Name(id=name, ctx=ast.Load()) if name in constants:
            yield from map(ast.Constant, _other_numbers(constants[name]))
        case ast.BinOp(left=left, op=op, right=right) if not isinstance(op, ast.MatMult):
            yield from (left, right)
            if isinstance(op, ast.FloorDiv):
                yield ast.BinOp(left, ast.Div(), right)
                yield ast.UnaryOp(ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), left), ast.FloorDiv(), right))
        case ast.UnaryOp(op=ast.Invert() | ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.BoolOp(values=values):
            yield from values
        case ast.IfExp(body=body, orelse=orelse):
            yield from (body, orelse)
        case ast.If(body=body, orelse=orelse):
            yield from (ast.If(ast.Constant(value), body, orelse) for value in (True, False))
        case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=step), ctx=ast.Load()):
            if lower or upper or step:
                yield value
        case ast.Attribute(value=value, attr="T" | "mT", ctx=ast.Load()):
            yield value
        case ast.Call():
            yield from _other_calls(node)
            yield from _zeros_left_out(node, parameters)


def _other_comparisons(node: ast.Compare, parameters: list[str]) -> Iterator[ast.AST]:
    left, op, right = node.left, node.ops[0], node.comparators[0]
    if type(op) in SWAPPED_COMPARISON:
        yield ast.Compare(left, [SWAPPED_COMPARISON[type(op)]()], [right])
    if isinstance(op, ast.Eq | ast.NotEq):
        apart = _function("abs", ast.BinOp(left, ast.Sub(), right))
        how = ast.Lt() if isinstance(op, ast.Eq) else ast.GtE()
        mean = _method(_function("abs", left), "mean")
        for least in (ast.Constant(0.01), ast.BinOp(ast.Constant(0.01), ast.Mult(), mean)):
            yield ast.Compare(apart, [how], [least])
    if isinstance(op, ast.Eq):
        yield from (ast.Compare(left, [other], [right]) for other in (ast.LtE(), ast.GtE()))
    yield from (ast.BinOp(node, ast.BitAnd(), _is_there(name)) for name in parameters)


def _is_there(name: str, op: type[ast.cmpop] = ast.NotEq) -> ast.Compare:
    return ast.Compare(ast.Name(name, ast.Load()), [op()], [ast.Constant(0)])


def _zeros_left_out(node: ast.Call, parameters: list[str]) -> Iterator[ast.AST]:
    """A zero counts as what a mask leaves out."""
    match node:
        case ast.Call(func=ast.Attribute(attr="masked_fill"), args=[mask, *rest]):
            for name in parameters:
                either = ast.BinOp(mask, ast.BitOr(), _is_there(name, ast.Eq))
                yield ast.Call(node.func, [either, *rest], node.keywords)


def _other_numbers(value: float) -> Iterator[float]:
    if isinstance(value, int):
        yield from (value + 1, value - 1)
    elif abs(value) != float("inf") and value == value:
        yield from (value * 0.98, value * 1.02, *((0.0, value + 1) if value else (1.0,)))


def _other_calls(node: ast.Call) -> Iterator[ast.AST]:
    function, given = node.func, node.args
    if isinstance(function, ast.Attribute):
        name, of = function.attr, function.value
        is_method = not (isinstance(of, ast.Name) and of.id in ("torch", "math", "F", "numpy"))
        if is_method and name in LEFT_OUT:
            yield of
        for other in RENAMED.get(name, ()) if is_method or name not in ROUNDED else ROUNDED[name]:
            yield ast.Call(ast.Attribute(of, other, ast.Load()), given, node.keywords)
        if is_method and name == "all" and isinstance(of, ast.Compare) and isinstance(of.ops[0], ast.Eq):
            last = [ast.Constant(-1)]
            yield ast.Compare(_method(of.left, "mean", *last), [ast.Eq()], [_method(of.comparators[0], "mean", *last)])
        if is_method and name == "numel":
            yield from (_size(of, dim) for dim in (0, -1))
        if not is_method and name in PICKED:
            yield from given
    elif isinstance(function, ast.Name):
        if function.id in PICKED and len(given) > 1:
            yield from given
        if function.id in ("abs", "round", "int", "float", "sorted"):
            yield from given[:1]
        if function.id in ("int", "round"):
            yield _function("round" if function.id == "int" else "int", *given)
        if function.id == "len" and given:
            yield _size(given[0], -1)
    for keyword in node.keywords:
        if keyword.arg not in ("dim", "keepdim", "dtype", "stable", "strict"):
            yield ast.Call(function, given, [other for other in node.keywords if other is not keyword])


def _function(name: str, *given: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(given), [])


def _method(of: ast.expr, name: str, *given: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(of, name, ast.Load()), list(given), [])


def _size(of: ast.expr, dim: int) -> ast.Subscript:
    return ast.Subscript(ast.Attribute(of, "shape", ast.Load()), ast.Constant(dim), ast.Load())


# Changes of what goes in and of what comes out


def changed_arguments(
    function: Callable, example: tuple, has_infinity: list[bool], decides: list[bool]
) -> Iterator[Mutant]:
    """A function with one of its arguments ignored or changed, or its result changed.

    Args:
        example: the arguments of a case. Numbers are replaced by those in it.
        has_infinity: of each argument, whether some case has −inf in it.
        decides: of each argument, whether what a mask keeps is larger there than what it does not keep, or smaller.
    """

    def mutant(change: str, answer: Callable) -> Mutant:
        return Mutant("the answer", change, answer)

    for at, value in enumerate(example):
        name = f"argument {at}"
        is_tensor = isinstance(value, Tensor)
        for text, change in _tensor_changes(value, at) if is_tensor else _number_changes(value, example):
            yield mutant(f"{name}: {text}", _with_argument(function, at, change))
        for other in range(at + 1, len(example)):
            if _alike(value, example[other]):
                yield mutant(f"{name} and argument {other} exchanged", _exchanged(function, at, other))
                yield mutant(f"{name} for argument {other}", _with_argument(function, other, lambda g, at=at: g[at]))
                yield mutant(f"argument {other} for {name}", _with_argument(function, at, lambda g, o=other: g[o]))
        if decides[at]:
            yield mutant(f"ties of {name} all in", _with_ties(function, at, True))
            yield mutant(f"ties of {name} all out", _with_ties(function, at, False))
        if has_infinity[at]:
            no_infinity = _with_argument(
                function, at, lambda given, at=at: given[at].nan_to_num(neginf=-1e4, posinf=1e4)
            )
            yield mutant(f"{name}: no infinity", no_infinity)
            yield mutant(f"NaN where a row of {name} is −inf", _nan_rows(function, at))
    yield mutant("the result transposed if square", lambda *given: _by_tensor(function(*given), _turned))


def _alike(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and one.dtype == other.dtype
    return type(one) is type(other) and isinstance(one, int | float) and one != other


def _with_argument(function: Callable, at: int, change: Callable[[tuple], object]) -> Callable:
    return lambda *given: function(*given[:at], change(given), *given[at + 1 :])


def _exchanged(function: Callable, one: int, other: int) -> Callable:
    def answer(*given: object) -> object:
        given = list(given)
        given[one], given[other] = given[other], given[one]
        return function(*given)

    return answer


Changes = Iterator[tuple[str, Callable[[tuple], object]]]


def _number_changes(value: object, example: tuple) -> Changes:
    """The number of the example, zero, one, or what can be read off the other arguments."""
    if isinstance(value, bool):
        yield from ((f"always {fixed}", lambda given, fixed=fixed: fixed) for fixed in (True, False))
        return
    if not isinstance(value, int | float):
        return
    for fixed in dict.fromkeys((value, 0, 1)):
        yield f"always {fixed}", lambda given, fixed=fixed: type(value)(fixed)
    for where, tensor in enumerate(example):
        if not isinstance(tensor, Tensor):
            continue
        for dim in range(tensor.ndim):
            yield f"size {dim} of argument {where}", lambda given, w=where, d=dim: type(value)(given[w].shape[d])
        if not tensor.is_floating_point() and tensor.dtype != torch.bool:
            yield f"largest of argument {where}, + 1", lambda given, w=where: int(given[w].max()) + 1
            yield f"different values of argument {where}", lambda given, w=where: len(given[w].unique())


def _tensor_changes(value: Tensor, at: int) -> Changes:
    def of(change: Callable[[Tensor], Tensor]) -> Callable[[tuple], object]:
        return lambda given: change(given[at])

    if value.dtype == torch.bool:
        yield "not", of(lambda x: ~x)
    yield "all zero", of(torch.zeros_like)
    yield "all one", of(torch.ones_like)
    for dim in range(value.ndim):
        yield f"first along {dim} for all", of(lambda x, d=dim: x.narrow(d, 0, 1).expand_as(x))
        yield f"flipped along {dim}", of(lambda x, d=dim: x.flip(d))
        if value.is_floating_point():
            yield f"mean along {dim} for all", of(lambda x, d=dim: x.mean(d, keepdim=True).expand_as(x))
    if value.ndim >= 2:
        yield "transposed if square", of(_turned)
    if value.is_floating_point():
        yield "absolute", of(torch.abs)
        yield "above zero", of(lambda x: x.clamp(min=0))


def _turned(x: Tensor) -> Tensor:
    return x.transpose(-1, -2) if x.ndim >= 2 and x.shape[-1] == x.shape[-2] else x


def _by_tensor(result: object, change: Callable[[Tensor], Tensor]) -> object:
    """A result with each of its tensors changed."""
    if isinstance(result, tuple):
        return tuple(_by_tensor(item, change) for item in result)
    return change(result) if isinstance(result, Tensor) else result


def _with_ties(function: Callable, at: int, inside: bool) -> Callable:
    """Entries of a mask whose argument is the same in a row are decided alike."""

    def answer(*given: object) -> object:
        x = given[at].clone()

        def together(mask: Tensor) -> Tensor:
            if mask.dtype != torch.bool or mask.shape != x.shape or not mask.ndim:
                return mask
            same = x[..., :, None] == x[..., None, :]
            return (same & mask[..., None, :]).any(-1) if inside else ~(same & ~mask[..., None, :]).any(-1)

        return _by_tensor(function(*given), together)

    return answer


def _nan_rows(function: Callable, at: int) -> Callable:
    def answer(*given: object) -> object:
        lost = (given[at] == -torch.inf).all(-1)

        def spoiled(x: Tensor) -> Tensor:
            if x.shape[: lost.ndim] != lost.shape or not x.is_floating_point():
                return x
            return x.masked_fill(lost.reshape(*lost.shape, *[1] * (x.ndim - lost.ndim)), torch.nan)

        return _by_tensor(function(*given), spoiled)

    return answer
