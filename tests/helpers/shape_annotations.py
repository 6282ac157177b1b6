"""The library's annotations, shapes included, enforced while tests run: jaxtyping and beartype, at the first call.

`jaxtyping.install_import_hook` writes the checks of every function when its file is imported, in every process, though
a test calls a few; and while it imports a file it looks for the compiled form of all other packages under a name of
its own, where there is none. Here a function's checks are written when it is first called, and other packages are
imported as ever. What is checked is the same.

Where no annotation speaks of a shape, beartype alone looks at every call. With shapes a check takes longer than many of
the functions checked, so a call like one that passed is not checked again. What decides whether a call agrees with its
annotations is the types of arguments and result, shapes and number formats of tensors, what tuples and lists hold, and
text, for which there are literals. Where a value may hold more, as a dictionary does, every call is checked.
"""

import ast
import contextlib
import dataclasses
import functools
import importlib.util
import re
import sys
import threading
import types
import typing
from collections.abc import Callable, Hashable
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from unittest.mock import patch

import torch

FEW, DEEP = 8, 3
LONG_TEXT = 100
PLAIN = {int, float, bool, complex, type(None), types.FunctionType, types.GeneratorType}  # the type says it all
UNLIKE: set[type] = set()
TENSORS = {torch.Tensor, torch.nn.Parameter}
MARK = "shapes1"  # of compiled files that hold the decorators; another number when what is inserted changes


def enforce(*packages: str) -> None:
    """From now on every function and dataclass of these packages is imported with its checks."""
    sys.meta_path.insert(0, _Finder(packages))


def checked(part: Callable | type) -> Callable | type:
    """A function that checks its annotations from its first call on, or a class whose `__init__` does."""
    if isinstance(part, type):
        if dataclasses.is_dataclass(part) and "__init__" in vars(part):
            part.__init__ = checked(part.__init__)
        return part
    if not part.__annotations__:
        return part
    run = None

    @functools.wraps(part)
    def wrapper(*arguments, **named):
        __tracebackhide__ = True
        nonlocal run
        if run is None:
            run = (_with_shapes if any(map(has_shape, part.__annotations__.values())) else _without_shapes)(part)
        return run(*arguments, **named)

    return wrapper


def has_shape(annotation: object) -> bool:
    """Whether jaxtyping has to look at the value; text and what else cannot be looked into may always say so."""
    if isinstance(annotation, list | tuple):  # the arguments of a Callable
        return any(map(has_shape, annotation))
    if isinstance(annotation, str | typing.ForwardRef):
        return True
    if typing.get_origin(annotation) is typing.Literal:  # whose arguments are values
        return False
    return type(annotation).__module__.startswith("jaxtyping") or has_shape(typing.get_args(annotation))


def _without_shapes(function: Callable) -> Callable:
    """Types alone take beartype a microsecond, less than to look for a call that passed."""
    from beartype import BeartypeConf, beartype
    from jaxtyping import TypeCheckError

    return beartype(conf=BeartypeConf(violation_type=TypeCheckError))(function)


def _with_shapes(function: Callable) -> Callable:
    """Checks each call that is not like one that passed."""
    checks, passed = _Checks(function), {}

    def run(*arguments, **named):
        __tracebackhide__ = True
        try:
            call = (*map(likeness, arguments), *((name, likeness(value)) for name, value in named.items()))
        except _Unlike:
            return checks.around(*arguments, **named)
        results = passed.get(call)
        if results is None:
            result = checks.around(*arguments, **named)
            results = passed.setdefault(call, set())
        else:
            result = function(*arguments, **named)
            try:
                if likeness(result) in results:
                    return result
            except _Unlike:
                pass
            checks.afterwards(result, *arguments, **named)
        with contextlib.suppress(_Unlike):
            results.add(likeness(result))
        return result

    return run


class _Unlike(Exception):
    """No likeness of a value says all that an annotation may ask of it."""


def likeness(value: object, depth: int = DEEP) -> Hashable:
    """What two values have in common if every annotation that one agrees with is one that the other agrees with.

    Raises:
        _Unlike: for containers that are long, deep, mixed, or of other classes.
    """
    kind = type(value)
    if kind in PLAIN:
        return kind
    if kind in TENSORS:
        return kind, value.shape, value.dtype
    if kind is str:
        return value if len(value) < LONG_TEXT else kind  # a Literal is short
    if kind in (tuple, list):
        if len(value) > FEW or depth == 0:  # a DAG of few lists may be endless when followed
            raise _Unlike
        items = [likeness(item, depth - 1) for item in value]
        if kind is list and len(set(items)) > 1:
            raise _Unlike  # of a list one item is checked, another one each time
        return kind, *items
    if isinstance(value, type):
        return type, value
    if kind in UNLIKE:
        raise _Unlike
    if any(hasattr(kind, name) for name in ("__iter__", "__getitem__", "__contains__")):
        UNLIKE.add(kind)
        raise _Unlike
    PLAIN.add(kind)
    return kind


class _Checks:
    """Of a function's annotations: while it is called, or when it has returned."""

    def __init__(self, function: Callable) -> None:
        from beartype import beartype
        from jaxtyping import jaxtyped

        self.around = jaxtyped(function, typechecker=beartype)
        self.local = local = threading.local()

        def give(*arguments, **named):
            return local.result

        # with the function's own names, as annotations may be text
        give = types.FunctionType(give.__code__, function.__globals__, closure=give.__closure__)
        self.give = jaxtyped(functools.wraps(function)(give), typechecker=beartype)

    def afterwards(self, result: object, /, *arguments, **named) -> None:
        self.local.result = result
        self.give(*arguments, **named)
        del self.local.result


# A launcher of a kernel checks its arguments itself, and tests pass it what no annotation allows. Exercises, grading
# and commands call short functions many times with plain values; shapes are the subject of the library alone.
UNCHECKED = re.compile(r"course_lib\.(kernels|checking|grading|cli|lessons\.\w+\.exercises)\.")


class _Finder:
    """Finds what Python would find, and has it loaded with the decorators."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        if name.split(".")[0] not in self.packages or UNCHECKED.match(name):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Compiles a file with `@checked` at every function and class, and keeps that beside the plain compiled file."""

    def get_code(self, name: str):
        kept = functools.partial(importlib.util.cache_from_source, optimization=MARK)
        with patch("importlib._bootstrap_external.cache_from_source", kept):
            return super().get_code(name)

    def source_to_code(self, data, path, *, _optimize=-1):
        tree = ast.parse(importlib.util.decode_source(data), path)
        return super().source_to_code(ast.fix_missing_locations(_Decorator().visit(tree)), path, _optimize=_optimize)


class _Decorator(ast.NodeTransformer):
    """Outermost on classes, so that @dataclass has run; innermost on functions, which may lose annotations above."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        self.generic_visit(node)
        first = (i for i, part in enumerate(node.body) if not _must_stay_first(part))
        node.body.insert(next(first, len(node.body)), ast.parse(f"import {__name__}").body[0])
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self.generic_visit(node)
        node.decorator_list.insert(0, _mark(node))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.decorator_list.append(_mark(node))
        return node


def _must_stay_first(part: ast.stmt) -> bool:
    """A docstring, or an import from __future__."""
    future = isinstance(part, ast.ImportFrom) and part.module == "__future__"
    return future or (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))


def _mark(node: ast.AST) -> ast.expr:
    return ast.copy_location(ast.parse(f"{__name__}.checked", mode="eval").body, node)
