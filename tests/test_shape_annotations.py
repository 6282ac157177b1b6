"""Annotations of the library are enforced while tests run, at the first call, and nothing else is imported anew."""

import sys

import pytest
import shape_annotations
import torch
from jaxtyping import TypeCheckError

from course_lib.kv.policies.window import Window
from course_lib.sparsity.patterns import NofM, sparsity_of

FILE = '''"""A file of a package."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


def doubled(values: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    return values * 2


def halved(values: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return values[: len(values) // 2]


def outer(n: int):
    def inner(m: int) -> int:
        return m

    return inner(n / 2)


class Holder:
    @staticmethod
    def plain(n: int) -> int:
        return n

    @classmethod
    def of_class(cls, n: int) -> int:
        return n

    @property
    def wrong(self) -> int:
        return "text"


@dataclass
class Record:
    n: int


@contextmanager
def opened(n: int):
    yield n
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of one file, imported with checks."""
    (tmp_path / "typed_package").mkdir()
    (tmp_path / "typed_package" / "__init__.py").touch()
    (tmp_path / "typed_package" / "parts.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    shape_annotations.enforce("typed_package")
    from typed_package import parts

    yield parts
    for name in ("typed_package", "typed_package.parts"):
        del sys.modules[name]


def test_the_library_is_imported_with_its_checks():
    with pytest.raises(TypeCheckError, match="'budget'"):
        Window("many")
    with pytest.raises(TypeCheckError, match="'tensor'"):
        sparsity_of("a mask")
    with pytest.raises(TypeCheckError):
        NofM(2, 4).keep(torch.ones(4))


@pytest.mark.parametrize(
    "call",
    [
        lambda parts: parts.doubled(torch.ones(2, 3)),
        lambda parts: parts.doubled(torch.ones(2)),
        lambda parts: parts.halved(torch.ones(4)),
        lambda parts: parts.outer(3),
        lambda parts: parts.Holder.plain("1"),
        lambda parts: parts.Holder.of_class("1"),
        lambda parts: parts.Holder().wrong,
        lambda parts: parts.Record("1"),
        lambda parts: parts.opened("1").__enter__(),
    ],
)
def test_what_contradicts_an_annotation_is_refused_at_every_call(package, call):
    for _ in range(2):
        with pytest.raises(TypeCheckError):
            call(package)


def test_what_agrees_passes(package):
    assert package.doubled(torch.ones(2, 2)).sum() == 8
    assert package.Holder.plain(1) == package.Holder().of_class(1) == package.Record(1).n == 1
    with package.opened(3) as n:
        assert n == 3
    assert package.__doc__ == "A file of a package."
    assert package.doubled.__name__ == "doubled"


def test_only_the_package_itself_is_imported_another_way(package):
    assert isinstance(package.__spec__.loader, shape_annotations._Loader)
    assert not isinstance(package.json.__spec__.loader, shape_annotations._Loader)
