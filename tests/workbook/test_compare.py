"""The comparison is fair about form and strict about values, and its words are true."""

import math

import numpy
import pytest
import torch

from course_lib.workbook.compare import close, plain, short

T = torch.tensor


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (T([1.0, 2.0]), T([1.0, 2.0])),
        (T([1.0, 2.0], dtype=torch.float64), T([1.0, 2.0])),
        (T([1, 2]), T([1.0, 2.0])),
        (T([1.0, 2.00001]), T([1.0, 2.0])),  # float32 rounding of a long sum
        ((1.0, 2.0), T([1.0, 2.0])),
        (T([1, 0]), T([True, False])),
        (T([math.nan]), T([math.nan])),
        (T([math.inf]), T([math.inf])),
        (3, 3.0),
        (T(3.0), 3),
        (T([0.5]), 0.5),
        ((1, "a"), (1, "a")),
        (T([1.0, 2.0]), (1.0, 2.0)),
        ({"a": 1.0}, {"a": 1}),
    ],
)
def test_the_same_written_differently_agrees(got, expected):
    assert close(plain(got), plain(expected)) is None


@pytest.mark.parametrize(
    ("got", "expected", "said"),
    [
        (T([1.0, 2.1]), T([1.0, 2.0]), "first different at [1]: got 2.1, expected 2; 1 of 2 entries differ"),
        (T([[1.0], [2.0]]), T([[1.0, 2.0]]), "the shape is (2, 1), expected (1, 2)"),
        (T([0.5, 0.0]), T([True, False]), "got float32 values, expected True and False"),
        (T([math.nan]), T([1.0]), "first different at [0]: got nan, expected 1"),
        (T([1e-9]), T([1e-3]), "first different at [0]"),
        (None, T([1.0]), "got None, expected a tensor of shape (1,)"),
        ("3", 3, "got '3', expected the number 3"),
        (3.1, 3, "got 3.1, expected 3"),
        ((1, 2), (1, 2, 3), "got 2 values, expected 3"),
        ((1, 2), (1, 3), "value 1: got 2, expected 3"),
        ({"a": 1}, {"b": 1}, "the keys are ['a'], expected ['b']"),
        ({"a": 1}, {"a": 2}, "under 'a': got 1, expected 2"),
        (False, True, "got False, expected True"),
    ],
)
def test_differences_are_said(got, expected, said):
    assert close(plain(got), plain(expected)).startswith(said)


def test_plain_takes_data_only():
    assert plain(numpy.float32(0.5)) == 0.5
    assert plain(numpy.arange(3)).tolist() == [0, 1, 2]
    assert plain([1, [2]]) == (1, (2,))
    parameter = torch.nn.Parameter(torch.ones(2))
    assert not plain(parameter).requires_grad
    with pytest.raises(ValueError, match="got a module; expected a tensor"):
        plain(math)


def test_plain_copies():
    x = torch.zeros(2)
    y = plain(x)
    x += 1
    assert y.tolist() == [0, 0]


def test_short_fits_a_line():
    assert short(T([1.0, 0.33333])) == "tensor (2,) float32 [1, 0.3333]"
    assert short(torch.zeros(40, 50)) == "tensor (40, 50) float32"
    assert short(T([True, False])) == "tensor (2,) bool [True, False]"
    assert short(1 / 3) == "0.333333"
    assert len(short("x" * 1000)) == 200
