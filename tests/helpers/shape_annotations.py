"""The library's annotations, shapes included, enforced while tests run: jaxtyping and beartype, at the first call.

`jaxtyping.install_import_hook` writes the checks of every function when its file is imported, in every process, though
a test calls a few; and while it imports a file it looks for the compiled form of all other packages under a name of
its own, where there is none. Here a function's checks are written when it is first called, and other packages are
imported as ever. What is checked, and what an error says, is the same.
"""

import ast
import dataclasses
import functools
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from unittest.mock import patch

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
    checks = None

    @functools.wraps(part)
    def wrapper(*arguments, **named):
        __tracebackhide__ = True
        nonlocal checks
        if checks is None:
            checks = _with_checks(part)
        return checks(*arguments, **named)

    return wrapper


def _with_checks(function: Callable) -> Callable:
    from beartype import beartype
    from jaxtyping import jaxtyped

    return jaxtyped(function, typechecker=beartype)


class _Finder:
    """Finds what Python would find, and has it loaded with the decorators."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        if name.split(".")[0] not in self.packages:
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
