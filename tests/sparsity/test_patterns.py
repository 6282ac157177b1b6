"""Sparsity patterns: hand-worked masks, exact counts, ties, a brute-force twin, and refusals."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from course_lib.sparsity.patterns import Block, Columns, NofM, Rows, Unstructured, keep_across, sparsity_of
from course_lib.sparsity.ranking import all_finite, check_score, keep_highest, n_pruned

SCORE = torch.tensor([[4.0, 1.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0], [0.0, 9.0, 8.0, 7.0]])


def bits(*rows: str) -> torch.Tensor:
    return torch.tensor([[digit == "1" for digit in row] for row in rows])


GOLDEN = {
    # rows [4 1 3 2], [5 5 5 5], [0 9 8 7]: the two lowest of each leave, and of four equal ones the first two
    "per row": (Unstructured(0.5, "row"), bits("1010", "0011", "0110")),
    # columns [4 5 0], [1 5 9], [3 5 8], [2 5 7]: one of three leaves
    "per column": (Unstructured(0.4, "column"), bits("1000", "1111", "0111")),
    # in order 0 1 2 3 4 5 5 5 5 7 8 9: six leave, so the first of the four fives goes
    "layer": (Unstructured(0.5, "layer"), bits("0000", "0111", "0111")),
    # two rows compete (4 1 3 2 5 5 5 5, four leave), the ragged third alone (0 9 8 7, two leave)
    "two rows a group": (Unstructured(0.5, "row", 2), bits("0000", "1111", "0110")),
    # 4 1 3 5 5 5 0 9 8: four of nine leave (0 1 3 4); the ragged fourth column 2 5 7 loses one
    "three columns a group": (Unstructured(0.5, "column", 3), bits("0000", "1111", "0111")),
    "2:4": (NofM(2, 4), bits("1010", "0011", "0110")),
    "1:2": (NofM(1, 2), bits("1010", "0101", "0110")),
    "1:4": (NofM(1, 4), bits("1000", "0001", "0100")),
    # row totals 10, 20, 24
    "rows": (Rows(0.34), bits("0000", "1111", "1111")),
    # column totals 9, 15, 16, 14
    "columns": (Columns(0.5), bits("0110", "0110", "0110")),
    # totals of the 3 x 2 tiles: 24 and 30; of the 1 x 2 tiles: 5 5 | 10 10 | 9 15
    "tall blocks": (Block(3, 2, 0.5), bits("0011", "0011", "0011")),
    "flat blocks": (Block(1, 2, 0.5), bits("0000", "1111", "0011")),
    "nothing leaves": (Unstructured(0.0), bits("1111", "1111", "1111")),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_masks_worked_by_hand(name):
    pattern, expected = GOLDEN[name]
    assert torch.equal(pattern.keep(SCORE), expected)


@pytest.mark.parametrize(
    ("size", "sparsity", "expected"),
    [(100, 0.29, 29), (10, 0.3, 3), (7, 0.5, 3), (3, 1 / 3, 1), (3, 2 / 3, 2), (5, 0.0, 0), (1, 0.999, 0), (0, 0.5, 0)],
)
def test_counts_do_not_lose_one_to_float_error(size, sparsity, expected):
    assert n_pruned(size, sparsity) == expected


@given(size=st.integers(1, 10**6), percent=st.integers(0, 99))
def test_counts_agree_with_exact_fractions(size, percent):
    assert n_pruned(size, percent / 100) == math.floor(Fraction(percent, 100) * size)


def naive_keep(score, groups, sparsity):
    """One comparison group at a time, one removal at a time: the lowest score, the first of equals."""
    keep = torch.ones(score.shape, dtype=torch.bool)
    for group in groups:
        left = list(group)
        for _ in range(n_pruned(len(group), sparsity)):
            lowest = min(left, key=lambda cell: score[cell].item())
            left.remove(lowest)
            keep[lowest] = False
    return keep


def bands(indices, size):
    return [indices[start : start + size] for start in range(0, len(indices), size)]


def groups_of(shape, per, size):
    rows, columns = range(shape[0]), range(shape[1])
    if per == "layer":
        return [list(itertools.product(rows, columns))]
    if per == "row":
        return [list(itertools.product(band, columns)) for band in bands(rows, size)]
    # along an input, ties leave by input first, as the transposed matrix is read
    return [[(row, column) for column in band for row in rows] for band in bands(columns, size)]


few_levels = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**31)).map(
    lambda drawn: torch.randint(0, 4, drawn[:2], generator=torch.Generator().manual_seed(drawn[2])).float()
)


@settings(max_examples=60, deadline=None)
@given(
    score=few_levels,
    sparsity=st.floats(0, 0.99),
    per=st.sampled_from(["row", "column", "layer"]),
    size=st.integers(1, 4),
)
def test_equals_removing_one_weight_at_a_time(score, sparsity, per, size):
    expected = naive_keep(score, groups_of(score.shape, per, size), sparsity)
    assert torch.equal(Unstructured(sparsity, per, size).keep(score), expected)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31), rows=st.integers(1, 6), groups=st.integers(1, 4), m=st.integers(2, 8), data=st.data()
)
def test_n_of_every_m_stay_and_they_are_the_best(seed, rows, groups, m, data):
    n = data.draw(st.integers(1, m - 1))
    score = torch.randn(rows, groups * m, generator=torch.Generator().manual_seed(seed))
    keep = NofM(n, m).keep(score)
    assert (keep.reshape(-1, m).sum(1) == n).all()
    for values, kept in zip(score.reshape(-1, m), keep.reshape(-1, m), strict=True):
        best = max(itertools.combinations(range(m), n), key=lambda chosen: values[list(chosen)].sum().item())
        assert kept.nonzero().flatten().tolist() == list(best)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    tile=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    sparsity=st.floats(0, 0.99),
)
def test_blocks_leave_whole_and_none_that_stays_scores_less(seed, shape, tile, sparsity):
    score = torch.rand(shape[0] * tile[0], shape[1] * tile[1], generator=torch.Generator().manual_seed(seed))
    keep = Block(*tile, sparsity).keep(score)
    totals, kept = [], []
    for top, left in itertools.product(range(0, score.shape[0], tile[0]), range(0, score.shape[1], tile[1])):
        inside = (slice(top, top + tile[0]), slice(left, left + tile[1]))
        assert keep[inside].all() or not keep[inside].any()
        totals.append(score[inside].sum().item())
        kept.append(bool(keep[inside].all()))
    assert kept.count(False) == n_pruned(len(kept), sparsity)
    leaving = [total for total, stays in zip(totals, kept, strict=True) if not stays]
    staying = [total for total, stays in zip(totals, kept, strict=True) if stays]
    assert max(leaving, default=-1.0) <= min(staying) + 1e-5


@settings(max_examples=120, deadline=None)
@given(
    score=few_levels,
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    data=st.data(),
)
def test_every_selection_equals_a_stable_sort(score, dtype, data):
    """Few levels make ties; signs, infinities and both zeros are among them; widths run over both ways."""
    levels = data.draw(st.sampled_from([[0.0, -0.0, 1.5, -2.0], [float("-inf"), -1e-30, 0.0, float("inf")]]))
    score = torch.tensor(levels)[score.long()].to(dtype)
    n_leaving = data.draw(st.integers(0, score.shape[1] - 1))
    order = score.sort(dim=1, stable=True).indices
    expected = torch.ones_like(score, dtype=torch.bool).scatter(1, order[:, :n_leaving], False)
    assert torch.equal(keep_highest(score, n_leaving), expected)


@pytest.mark.parametrize("width", [3, 4, 5, 97])
def test_selection_among_many_different_scores_equals_a_stable_sort(width, generator):
    score = torch.randn(50, width, generator=generator) * 10.0 ** torch.randint(-20, 20, (50, 1), generator=generator)
    order = score.sort(dim=1, stable=True).indices
    for n_leaving in {1, width // 2, width - 1}:
        expected = torch.ones_like(score, dtype=torch.bool).scatter(1, order[:, :n_leaving], False)
        assert torch.equal(keep_highest(score, n_leaving), expected)


@pytest.mark.parametrize("pattern", [Unstructured(0.5), Unstructured(0.5, "column"), NofM(2, 4), Block(2, 2, 0.5)])
def test_only_the_order_of_scores_matters(pattern):
    """Block totals do change under a curve, so for blocks only the scale is free."""
    score = torch.rand(8, 16, generator=torch.Generator().manual_seed(1))
    if not isinstance(pattern, Block):
        assert torch.equal(pattern.keep(score), pattern.keep(score.exp()))
    assert torch.equal(pattern.keep(score), pattern.keep(score * 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("pattern", [Unstructured(0.5, "layer"), NofM(2, 4), Rows(0.5), Columns(0.5), Block(2, 2, 0.5)])
def test_a_constant_score_loses_exactly_half(pattern, dtype):
    """The trap of thresholds: with all scores equal they take everything. 6e4 also overflows a half-precision sum."""
    assert sparsity_of(pattern.keep(torch.full((8, 16), 6e4, dtype=dtype))) == 0.5


def test_a_non_contiguous_score_gives_the_same_mask(generator):
    score = torch.rand(12, 8, generator=generator)
    for pattern in (Unstructured(0.5), Unstructured(0.5, "column"), NofM(), Rows(), Columns(), Block(2, 4, 0.5)):
        assert torch.equal(pattern.keep(score.T.contiguous().T), pattern.keep(score))
        assert pattern.keep(score).is_contiguous()


def test_infinite_scores_leave_first_and_last():
    score = torch.tensor([[math.inf, 1.0, -math.inf, 2.0]])
    assert torch.equal(Unstructured(0.5).keep(score), bits("1001"))


def test_keep_across_ranks_the_whole_model():
    scores = {"first": torch.tensor([[1.0, 2.0, 3.0]]), "second": torch.tensor([[4.0], [0.5], [2.0]])}
    keep = keep_across(scores, 0.5)  # 0.5 1 2 | 2 3 4: of the two twos the first layer's leaves
    assert torch.equal(keep["first"], bits("001"))
    assert torch.equal(keep["second"], bits("1", "0", "1"))


def test_sparsity_counts_exact_zeros():
    assert sparsity_of(torch.tensor([0.0, -0.0, 1e-30, 2.0])) == 0.5
    assert sparsity_of(torch.zeros(0)) == 0.0


REFUSED = {
    "sparsity of one": (lambda: Unstructured(1.0), r"sparsity=1.0.*\[0, 1\)"),
    "negative sparsity": (lambda: Rows(-0.1), r"sparsity=-0.1"),
    "NaN sparsity": (lambda: Columns(math.nan), r"sparsity=nan"),
    "percent for a fraction": (lambda: Block(4, 4, 50.0), r"sparsity=50"),
    "unknown group": (lambda: Unstructured(0.5, "input"), r"per='input'.*'row'"),
    "group of none": (lambda: Unstructured(0.5, "row", 0), r"size=0"),
    "keep all": (lambda: NofM(4, 4), r"4:4.*n < m"),
    "keep none": (lambda: NofM(0, 4), r"n=0"),
    "more than all": (lambda: NofM(4, 2), r"4:2"),
    "empty block": (lambda: Block(0, 4, 0.5), r"rows=0"),
    "ragged inputs": (lambda: NofM(2, 4).keep(torch.ones(2, 6)), r"6 inputs.*multiple of 4"),
    "ragged blocks": (lambda: Block(2, 4, 0.5).keep(torch.ones(3, 8)), r"\(3, 8\).*2 x 4"),
    "NaN": (lambda: NofM().keep(torch.tensor([[1.0, math.nan, 2.0, 3.0]])), r"1 NaN of 4"),
    "no data": (lambda: Rows().keep(torch.ones(2, 2, device="meta")), r"meta device"),
    "infinities cancel": (lambda: Rows().keep(torch.tensor([[math.inf, -math.inf]] * 2)), r"\+inf and -inf"),
    "vector": (lambda: check_score(torch.ones(3)), r"\(3,\).*matrix"),
    "integers": (lambda: check_score(torch.ones(3, 2, dtype=torch.int64)), r"int64.*\.float\(\)"),
    "NaN in one layer": (lambda: keep_across({"up": torch.full((1, 1), math.nan)}, 0.5), r"'up'.*NaN"),
    "no layers": (lambda: keep_across({}, 0.5), r"no scores"),
    "model sparsity": (lambda: keep_across({"up": torch.ones(1, 1)}, 1.0), r"sparsity=1.0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_with_what_was_got(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_a_vector_does_not_get_through_keep():
    with pytest.raises((ValueError, TypeCheckError)):
        Unstructured().keep(torch.ones(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_what_is_not_finite_is_found_and_a_sum_may_overflow(dtype):
    values = torch.full((3, 70), torch.finfo(dtype).max, dtype=dtype)
    assert all_finite(values)
    assert all_finite(-values)
    for wrong in (torch.nan, torch.inf, -torch.inf):
        values[1, 2] = wrong
        assert not all_finite(values)
    assert not all_finite(torch.tensor([[torch.inf, -torch.inf]], dtype=dtype))
