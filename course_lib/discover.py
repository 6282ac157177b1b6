"""Find every method: import all files of a folder and list the concrete subclasses of its base."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from types import ModuleType


def modules(package: ModuleType) -> list[ModuleType]:
    """Import every module directly inside a package, and return them in alphabetical order."""
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def nested(package: ModuleType, folders: Iterable[str] | None = None) -> list[ModuleType]:
    """Import the modules one level deeper, in the package's folders: in all of them, or only in those named."""
    if folders is None:
        folders = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if info.ispkg)
    return [module for folder in folders for module in modules(importlib.import_module(f"{package.__name__}.{folder}"))]


def subclasses(package: ModuleType, base: type) -> list[type]:
    """Return the concrete subclasses of `base` defined in the files of `package`, in order of file and name."""
    found = []
    for module in modules(package):
        members = (value for _, value in inspect.getmembers(module, inspect.isclass))
        found += [c for c in members if c.__module__ == module.__name__ and issubclass(c, base)]
    return [c for c in found if not inspect.isabstract(c) and c is not base]
