"""The drawings of a lesson, each a case of a test."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import pytest
from matplotlib.figure import Figure


def every_drawing(drawings: ModuleType) -> Iterator:
    """The public functions of a folder's files that return a figure, as pytest's parameters."""
    for found in pkgutil.iter_modules(drawings.__path__):
        module = importlib.import_module(f"{drawings.__name__}.{found.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            here = function.__module__ == module.__name__ and inspect.signature(function).return_annotation is Figure
            if here and not name.startswith("_"):
                yield pytest.param(function, id=f"{found.name}.{name}")
