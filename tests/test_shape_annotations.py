"""Annotations of the library are enforced while tests run, at the first call, and nothing else is imported anew."""

import sys
from collections.abc import Callable, Sequence
from typing import Literal

import pytest
import shape_annotations
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from course_lib.checking.judge import judge
from course_lib.grading import engine
from course_lib.grading.hidden_cases import hidden_cases
from course_lib.kv.policies.window import Window
from course_lib.sparsity.patterns import NofM, sparsity_of
from course_lib.workbook.catalogue import find

FILE = '''"""A file of a package."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor


def doubled(values: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    return values * 2


def halved(values: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return values[: len(values) // 2]


def cut(values: Float[Tensor, "n"], n: int) -> Float[Tensor, "n"]:
    return values[:n]


def summed(values: list[Float[Tensor, "n"]]) -> Float[Tensor, "n"]:
    return sum(values)


def named(name: Literal["short", "long"]) -> str | None:
    return name


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
    with pytest.raises(TypeCheckError, match="budget='many'"):
        Window("many")
    with pytest.raises(TypeCheckError, match="tensor='a mask'"):
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


@pytest.mark.parametrize(
    ("name", "agreeing", "others"),
    [
        ("doubled", (torch.ones(2, 2),), [(torch.ones(2, 3),), (torch.ones(2),), (torch.ones(2, 2).long(),), ([2],)]),
        ("cut", (torch.ones(4), 4), [(torch.ones(4), 3), (torch.ones(4), 4.0)]),
        ("summed", ([torch.ones(2)] * 2,), [([torch.ones(2).long()] * 2,), ((torch.ones(2),) * 2,)]),
        ("summed", ([torch.ones(2)] * 2,), [({0: torch.ones(2)},), ([torch.ones(1, 2)] * 2,)]),
        ("named", ("short",), [("middling",), (None,), (b"short",)]),
    ],
)
def test_calls_that_passed_vouch_for_no_other(package, name, agreeing, others):
    """A call like one that passed is not checked again; these differ in what an annotation asks for."""
    function = getattr(package, name)
    for _ in range(2):
        function(*agreeing)
        for other in others:
            with pytest.raises(TypeCheckError):
                function(*other)


def test_text_and_containers_too_long_to_compare_are_checked_at_every_call(package):
    package.summed([torch.ones(2)] * 20)
    with pytest.raises(TypeCheckError):
        package.summed([torch.ones(2).long()] * 20)
    with pytest.raises(shape_annotations._Unlike):
        shape_annotations.likeness([1, "one"])
    with pytest.raises(shape_annotations._Unlike):
        shape_annotations.likeness({})
    explodes = []
    for _ in range(40):
        explodes = [explodes] * 8
    with pytest.raises(shape_annotations._Unlike):
        shape_annotations.likeness(explodes)


def test_a_call_like_one_that_passed_runs_the_function_itself(package):
    for _ in range(3):
        assert torch.equal(package.doubled(torch.full((2, 2), 3.0)), torch.full((2, 2), 6.0))
        assert package.named(name="short") == "short"


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        *((plain, False) for plain in (int, str | None, dict[str, list[int]], Callable[[int], Tensor], Literal["n"])),
        *((whole, True) for whole in (Float[Tensor, "n"], Float[Tensor, "n"] | None, "int")),
        *((inside, True) for inside in (list[Float[Tensor, "n"]], Callable[[Float[Tensor, "n"]], int])),
        *((inside, True) for inside in (dict[str, tuple[int, Float[Tensor, "n"]]], Sequence["Later"])),
    ],
)
def test_which_annotations_ask_for_a_shape(annotation, expected):
    assert shape_annotations.has_shape(annotation) is expected


def test_a_function_without_annotations_is_left_as_it_is():
    function = lambda values: values  # noqa: E731
    assert shape_annotations.checked(function) is function


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


def test_the_library_is_checked_and_exercises_grading_and_commands_are_not():
    assert hasattr(sparsity_of, "__wrapped__")
    unchecked = (judge, engine.plan, find("wanda.score").reference, hidden_cases)
    assert [function for function in unchecked if hasattr(function, "__wrapped__")] == []
