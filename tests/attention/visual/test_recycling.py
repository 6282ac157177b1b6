"""Recycling by hand, against loops, and its counts, which are exact; how many the public code leaves."""

from math import ceil

import pytest
import torch
import visual_naive
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.attention.visual.as_released import left_after_recycling
from course_lib.attention.visual.model import GRID
from course_lib.attention.visual.recycle import Left, cells, highest, recycled

N = GRID**2


def made(importance: torch.Tensor, width: int = 3, seed: int = 0) -> Left:
    tokens = torch.randn(*importance.shape, width, generator=torch.Generator().manual_seed(seed))
    return Left(tokens, torch.arange(N).expand(len(importance), -1), importance)


def test_by_hand():
    """Cells of 6 × 6: four. All but the first cell and patch 143 matter little: their cells become one token each.

    In the last cell the least 35 are pruned, of weights 1, and 2 at patch 142; the mean of 0 … 0 and 37 there is
    (34 · 0 + 2 · 37) / 36, and it stands at patch 142.
    """
    importance = torch.ones(1, N)
    first = cells(6) == 0
    importance[0, first], importance[0, 143], importance[0, 142] = 100.0, 50.0, 2.0
    tokens = torch.zeros(1, N, 1)
    tokens[0, 142] = 37.0
    got = recycled(Left(tokens, torch.arange(N)[None], importance), count=36 + 1 + 3, side=6)
    assert got.position.shape == (1, 40)
    assert set(first.nonzero()[:, 0].tolist()) < set(got.position[0].tolist())
    rest = [i for i in got.position[0].tolist() if not first[i]]
    assert rest == [6, 72, 142, 143]  # of equals the first, and the strongest
    at = got.position[0].tolist().index(142)
    assert got.tokens[0, at, 0] == pytest.approx(2 * 37 / 36)
    assert got.importance[0, at] == 2


@settings(max_examples=30, deadline=None)
@given(st.integers(1, GRID), st.integers(0, 2**31), st.booleans(), st.data())
def test_against_loops(side, seed, ties, data):
    count = data.draw(st.integers(ceil(GRID / side) ** 2, N))
    generator = torch.Generator().manual_seed(seed)
    importance = torch.rand(2, N, generator=generator) + 0.01
    if ties:
        importance = (4 * importance).ceil()
    left = made(importance, seed=seed)
    got = recycled(left, count, side)
    assert got.tokens.shape == (2, count, 3)
    for image in range(2):
        tokens, position = visual_naive.recycled(left.tokens[image], importance[image].tolist(), count, side)
        assert got.position[image].tolist() == position
        torch.testing.assert_close(got.tokens[image].double(), tokens, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(got.importance[image], importance[image][position])


@pytest.mark.parametrize("side", [1, 4, 12])
def test_keeping_all_changes_no_bit(side):
    left = made(torch.rand(2, N, generator=torch.Generator().manual_seed(1)))
    for got in (recycled(left, N, side), highest(left, N)):
        assert all(torch.equal(a, b) for a, b in zip(got, left, strict=True))


def test_a_cell_of_one_patch_fuses_nothing():
    """Side 1 has as many cells as tokens, so that it can only keep all: fewer is told."""
    with pytest.raises(ValueError, match="144 cells; expected 144 tokens, and at most as many cells as tokens"):
        recycled(made(torch.rand(1, N)), N - 1, 1)


def test_tokens_that_do_not_matter_at_all_weigh_alike():
    """All importances 0: the fused token is the plain mean of its cell."""
    left = made(torch.zeros(1, N))
    got = recycled(left, 1, GRID)
    torch.testing.assert_close(got.tokens[0, 0], left.tokens[0].mean(dim=0), atol=1e-5, rtol=0)
    assert got.position.tolist() == [[0]]


def test_highest_by_hand():
    """Of equals the first; in the order that they had."""
    left = Left(torch.arange(5.0).view(1, 5, 1), torch.arange(5)[None] * 10, torch.tensor([[1.0, 3.0, 0.5, 3.0, 1.0]]))
    got = highest(left, 3)
    assert got.position.tolist() == [[0, 10, 30]]
    assert got.tokens[0, :, 0].tolist() == [0.0, 1.0, 3.0]


@pytest.mark.parametrize("count", [0, N + 1])
def test_more_than_there_are_or_none(count):
    left = made(torch.rand(1, N))
    with pytest.raises(ValueError, match="expected 1 to 144"):
        highest(left, count)
    with pytest.raises(ValueError, match="at most as many cells as tokens to keep"):
        recycled(left, count, 12)


def test_a_cell_of_no_size():
    with pytest.raises(ValueError, match="got side 0"):
        recycled(made(torch.rand(1, N)), 20, 0)


def test_how_many_the_public_code_leaves():
    """72 to keep, side 6: it prunes 72 + 4. Here these 76 lie in three cells, so that 71 are left; scattered ones hit
    all four cells, and 72 are."""
    importance = torch.arange(float(N))[None]  # rows 0 to 5 are cells 0 and 1; the next four patches are of cell 2
    assert left_after_recycling(importance, 72, 6).tolist() == [71]
    assert recycled(made(importance), 72, 6).tokens.shape[1] == 72
    scattered = torch.rand(50, N, generator=torch.Generator().manual_seed(0))
    assert set(left_after_recycling(scattered, 72, 6).tolist()) == {72}
