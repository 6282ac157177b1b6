"""The comparison is fair about form and strict about values, and its words are true."""

import math

import numpy
import pytest
import torch

from course_lib.checking.compare import close, plain
from course_lib.checking.exercise import Case
from course_lib.checking.short import short
from course_lib.workbook.catalogue import find

T = torch.tensor
ENDLESS = torch.zeros(()).expand(2**40)  # 4 TB, if anybody wrote it out


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
        (T([[0.5]]), 0.5),
        ([[1, 2], [3, 4]], T([[1.0, 2.0], [3.0, 4.0]])),
        ([T(1.0), T(2.0)], T([1.0, 2.0])),
        (T([1.0, 0.0], dtype=torch.float16), T([True, False])),
        (T([-0.0]), T([0.0])),
        (T([7, 255], dtype=torch.uint16), T([7, 255], dtype=torch.uint8)),
        (float(4 * 10**19), 4 * 10**19),  # a count, beyond 64 bits
        (T(3.0e9).item() * 1.0000003, 3_000_000_000),  # a count, computed in float32
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
        # what would pass if entries were converted, broadcast or rounded
        (T([1.0 + 5j, 2.0 - 1j]), T([1.0, 2.0]), "got complex numbers, expected real ones"),
        (T([True, False]), T([1.0, 0.0]), "got True and False, expected numbers"),
        ([True, False], T([1.0, 0.0]), "got True and False, expected numbers"),
        (1 + 2j, 1, "got (1+2j), expected the number 1"),
        (True, 1, "got True, expected the number 1"),
        (T([True]), 1.0, "got True, expected the number 1"),
        (1.0, T([[1.0, 1.0]]), "the shape is (), expected (1, 2)"),
        (T([1.0]), T([[1.0, 1.0]]), "the shape is (1,), expected (1, 2)"),
        ((T([1.0, 2.0]),), T([1.0, 2.0]), "got (tensor (2,) float32 [1, 2]), expected a tensor of shape (2,)"),
        ((T([1.0, 2.0]), T([9.0])), T([1.0, 2.0]), "got (tensor"),
        ((T([1.0]),), T([1.0]), "got (tensor (1,) float32 [1]), expected a tensor of shape (1,)"),
        ((T(1.0),), T(1.0), "got (tensor () float32 [1]), expected a tensor of shape ()"),
        (T([math.inf, 0.0]), T([math.nan, 0.0]), "first different at [0]"),
        (T([math.inf]), T([-math.inf]), "first different at [0]"),
        (T([10_000]), T([10_001]), "first different at [0]: got 10000, expected 10001"),  # an index is exact
        (T([1.4]), T([1]), "first different at [0]: got 1.4, expected 1"),
        (1_000_005, 1_000_000, "got 1000005, expected 1000000"),
        (3_000_000_001, 3_000_000_000, "got 3000000001, expected 3000000000"),  # one too many is wrong at any size
        (10_000_001.0, 10_000_000, "got 10000001.0, expected 10000000"),
        (2.95, 3, "got 2.95, expected 3"),
        (["1", "2"], T([1.0, 2.0]), "got ('1', '2'), expected a tensor of shape (2,)"),
        ([10**30, 1], T([1.0, 1.0]), f"got ({10**30}, 1), expected a tensor of shape (2,)"),
        ({"a": 1, "b": 2}, {"a": 1}, "the keys are ['a', 'b'], expected ['a']"),
        ((1, 2), {"a": 1}, "got 2 values without names, expected a dictionary with the keys ['a']"),
        (((1, 2),), (1, 2), "got 1 values, expected 2"),
        # one tensor where several are asked for: its rows are no values
        (T([[1.0, 2.0], [3.0, 4.0]]), (T([[1.0, 2.0]]), T([5])), "got one tensor of shape (2, 2), expected 2 values"),
        (T([1.0, 2.0, 3.0]), (T([1.0]), T([5])), "got one tensor of shape (3,), expected 2 values"),
    ],
)
def test_differences_are_said(got, expected, said):
    assert close(plain(got), plain(expected)).startswith(said)


@pytest.mark.parametrize("expected", [1.0, 3, True, "a", None, T([1.0, 2.0]), (1.0, 2.0), (T([1.0]), T([2])), {"a": 1}])
@pytest.mark.parametrize(
    "got",
    [
        ENDLESS,
        ENDLESS[:, None].expand(-1, 2**20),
        torch.zeros(0, 2**40),
        torch.zeros(2**40, 0),
        torch.zeros(2**40, 0, dtype=torch.int32),
        (ENDLESS, ENDLESS),
        {"a": ENDLESS},
        10**5000,
        (10**5000, 10**5000),
        tuple(range(100_000)),
        dict.fromkeys(range(100_000), "x" * 1000),
        {"a": ((((((((1,),),),),),),),)},
        math.nan,
        "x" * 1_000_000,
        None,
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_comes_is_wrong_and_said_in_a_line(got, expected):
    """A grader compares values that nobody has looked at: none is written out, taken apart or repeated."""
    if got is expected:
        return
    assert 0 < len(close(got, expected)) < 500
    assert 0 < len(short(got)) <= 200


def test_plain_takes_data_only():
    assert plain(numpy.float32(0.5)) == 0.5
    assert plain(numpy.arange(3)).tolist() == [0, 1, 2]
    assert plain([1, [2]]) == (1, (2,))
    assert plain({7, 0, 3}) == (0, 3, 7)  # what has no order gets one
    parameter = torch.nn.Parameter(torch.ones(2))
    assert not plain(parameter).requires_grad
    with pytest.raises(ValueError, match="got a value of type module; expected a tensor"):
        plain(math)
    with pytest.raises(ValueError, match="got a value of type dict; expected a tensor"):
        plain({(1, 2): 3})


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
    assert short(tuple(range(20))) == "(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...)"
    assert short({"a": 1 / 3, "b": (T([2]),)}) == "{'a': 0.333333, 'b': (tensor (1,) int64 [2])}"
    assert short(10**5000) == "a int too long to write"
    assert short(torch.zeros(0, 2**40, dtype=torch.int8)) == "tensor (0, 1099511627776) int8"


ANY = Case("", ())  # for comparisons that are the same whatever the case
SCORE, KEEP = T([[4.0, 1e-12, 3e-12, 2e-12]]), T([[True, False, True, False]])
BY_ROW, BY_BLOCK, RANKS, PAIRS, FACTOR = (
    find(name).agree
    for name in ("wanda.keep_rows", "sparsegpt.mask", "wanda.score", "patterns.nofm", "sparsegpt.factor")
)


def test_masks_are_compared_by_what_they_keep_at_any_scale():
    row, block = Case("", (SCORE, 0.5)), Case("", (SCORE, torch.ones(4), 0.5))
    for agree, case in ((BY_ROW, row), (BY_BLOCK, block)):
        assert agree(KEEP.double(), KEEP, case) is None
        assert agree(T([[1, 0, 0, 1]]), KEEP, case)  # a loud entry must not drown the choice among quiet ones
        assert agree(T([[1, 1, 0, 0]]), KEEP, case)
        assert agree(T([[1, 1, 1, 0]]), KEEP, case)
        assert agree(2 * KEEP, KEEP, case)
        assert agree(KEEP * math.nan, KEEP, case)
        assert agree(KEEP * (1 + 1j), KEEP, case) == "got complex numbers, expected real ones"
        assert agree(KEEP[0], KEEP, case) == "the shape is (4,), expected (1, 4)"
    ties = Case("", (T([[1.0, 1.0, 2.0, 2.0]]), 0.25))
    for free in ([[0, 1, 1, 1]], [[1, 0, 1, 1]]):
        assert BY_ROW(T(free), T([[False, True, True, True]]), ties) is None


def test_one_wrong_choice_among_a_thousand_is_seen():
    weight = torch.arange(1.0, 1001.0)[None]
    right = weight > 400
    wrong = right.clone()
    wrong[0, [399, 400]] = T([True, False])
    assert BY_BLOCK(wrong, right, Case("", (weight, torch.ones(1000), 0.4)))


def test_scores_agree_by_rank_and_are_finite_numbers():
    expected = T([[1.0, 3.0, 2.0], [5.0, 5.0, 4.0]])
    assert RANKS(expected.square() + 7, expected, ANY) is None
    assert RANKS(T([[0, 2, 1], [4, 4, 3]], dtype=torch.int8), expected, ANY) is None
    assert "rows must keep one scale" in RANKS(T([[0, 2, 1], [1, 2, 0]], dtype=torch.int8), expected, ANY)
    said = RANKS(expected[:, [0, 2, 1]], expected, ANY)
    assert "row 0: your 2 lowest scores include a weight whose true score is 3" in said
    for nothing in (expected * 0, expected * math.nan, expected > 1, expected + 1j, expected[:1], expected.T):
        assert RANKS(nothing, expected, ANY)


def test_pairs_have_whole_places_in_ascending_order():
    expected = T([[5.0, 6.0]]), T([[1, 2]])
    byte = torch.uint8
    assert PAIRS((expected[0], expected[1].to(byte)), expected, ANY) is None
    for places in (
        T([[1.5, 2.0]]),
        T([[2, 1]], dtype=byte),
        T([[1, 1]]),
        T([[-1, 2]]),
        T([[1, 4]]),
        T([[math.nan, 2]]),
    ):
        assert PAIRS((expected[0], places), expected, ANY)
    assert PAIRS((expected[0].flip(1), T([[2, 1]], dtype=byte)), expected, ANY)
    zero = T([[0.0, 6.0]])
    weight = Case("a group with three zeros", (T([[0.0, 0.0, 6.0, 0.0]]),))
    assert PAIRS((zero, T([[0, 2]])), (zero, T([[1, 2]])), weight) is None  # where a zero stood is free


def test_a_factor_is_real_and_upper():
    upper = T([[2.0, 1.0], [0.0, 1.0]])
    assert FACTOR(-upper, upper, ANY) is None
    for wrong in (upper.T, upper * math.nan, upper * math.inf, upper * (1 + 0j), upper * 1j, upper[None], upper != 0):
        assert FACTOR(wrong, upper, ANY)
