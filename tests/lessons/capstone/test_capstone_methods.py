"""What lesson 12's exercises ask for, from the library: by hand, and against what computes it otherwise."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.lessons.capstone.methods import (
    levels_within,
    most_kept,
    pareto_front,
    pruned_and_rounded,
    tokens_and_gain,
    tokens_of_a_pass,
    ways_to_store,
    windows_needed,
)
from course_lib.prompts.compressed.layouts import NonZeroCodes
from course_lib.quantization.grid import Quantization

SEEDS = st.integers(0, 10_000)


def test_three_ways_by_hand():
    """2 × 16, 15 left, 4 bits, groups of 8: grids of 2 · (2 · 2 + 1) bytes, 8 of codes, 12 of starts."""
    weight = torch.zeros(2, 16)
    weight[0, :9] = weight[1, 10:] = 1.0
    assert ways_to_store(weight, 4, 8) == {"all codes": 16 + 10, "bitmap": 8 + 12 + 4 + 10, "index": 8 + 12 + 30 + 10}


@given(st.integers(1, 9), st.integers(1, 70), st.sampled_from([2, 4, 8]), st.integers(1, 40), SEEDS)
@settings(max_examples=30, deadline=None)
def test_the_bitmap_takes_what_the_stored_tensors_of_a_recipe_take(rows, columns, bits, group, seed):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator) * (torch.rand(rows, columns, generator=generator) < 0.5)
    stored = NonZeroCodes(Quantization(bits, group)).encode(weight, weight)
    n_stored = sum(part.nbytes for part in stored.values())
    left = torch.count_nonzero(NonZeroCodes(Quantization(bits, group)).decode(stored, (rows, columns)))
    if left == weight.count_nonzero():  # small weights may round to 0
        assert ways_to_store(weight, bits, group)["bitmap"] == n_stored


def test_mask_and_grid_by_hand():
    """Kept 1, 4.5, 7: values 1, 3, 5, 7. Kept −4, 1, 5: values −4, −1, 2, 5."""
    weight = torch.tensor([[1.0, 7.0, 4.5, -2.0], [-4.0, 5.0, 1.0, 4.0]])
    made = pruned_and_rounded(weight, torch.tensor([1.0, 1.0, 1.0, 0.125]), 3, 2, 4)
    assert made.tolist() == [[1, 7, 5, 0], [-4, 5, 2, 0]]


def test_one_weight_of_a_group_stays_as_it_is_and_none_leaves_zeros():
    made = pruned_and_rounded(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.ones(4), 1, 2, 2)
    assert made.tolist() == [[3, 0, 0, 0]]


@given(st.integers(1, 12), st.integers(2, 4), SEEDS)
@settings(max_examples=30, deadline=None)
def test_rounding_moves_a_weight_by_half_a_step_at_most_and_keeps_as_many(n_kept, bits, seed):
    generator = torch.Generator().manual_seed(seed)
    weight, norm = torch.randn(5, 12, generator=generator), torch.rand(12, generator=generator) + 0.1
    made = pruned_and_rounded(weight, norm, n_kept, bits, 4)
    keep = made != 0
    assert (keep.sum(dim=1) <= n_kept).all()  # a value of a grid may be 0
    widest = (weight.amax(dim=1) - weight.amin(dim=1))[:, None]
    # Half a step of the widest grid there can be, and rounding of float32.
    assert ((made - weight).abs()[keep] <= (widest / (2**bits - 1) / 2 + 1e-6).expand_as(weight)[keep]).all()


def test_most_kept_by_hand():
    """2 × 64 at 4 bits: 64 bytes of codes, 12 of row starts, 16 of a bitmap. 70 codes take 35 bytes, and 20 take 10."""
    assert most_kept(2, 64, 4, 32) == (70, 20)
    assert most_kept(50, 12, 2, 16) == (-1, -1)


@given(st.integers(1, 9), st.integers(1, 90), st.sampled_from([2, 4, 8]), st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_one_weight_more_than_most_kept_takes_as_many_bytes_as_all_codes(rows, columns, bits, group):
    for way, most in zip(("bitmap", "index"), most_kept(rows, columns, bits, group), strict=True):
        for n_kept in {max(most, 0), most + 1}:
            weight = (torch.arange(rows * columns) < n_kept).float().reshape(rows, columns)
            sizes = ways_to_store(weight, bits, group)
            assert (sizes[way] < sizes["all codes"]) is (n_kept <= most)


def test_windows_needed_by_hand():
    """Differences ¼, ½, ¼, 0 have the variance 1/24; the windows 2, 3, 4, 3 and 2¼, 3½, 4¼, 3 have 2/3 and 17/24."""
    dense = torch.tensor([2.0, 3.0, 4.0, 3.0])
    losses = dense + torch.tensor([0.25, 0.5, 0.25, 0.0])
    factor = math.exp(0.1)  # 2 s / √n ≤ 0.1: n ≥ 400 s²
    variance = float(losses.var())
    assert windows_needed(losses, dense, factor) == (math.ceil(400 / 24), math.ceil(400 * (2 / 3 + variance)))
    assert windows_needed(dense + 0.5, dense, factor)[0] == 2


def test_front_by_hand():
    """The third is worse on average, but not by more than two errors; the last is the second at a higher cost."""
    losses = torch.tensor([[2.0, 4.0], [1.0, 3.0], [1.25, 5.25], [2.0, 4.25], [1.0, 3.0]])
    assert pareto_front(torch.tensor([4.0, 5.0, 6.0, 7.0, 8.0]), losses).tolist() == [True, True, True, False, False]


def draws(k, n_words, seed):
    generator = torch.Generator().manual_seed(seed)
    p = torch.randn(k + 1, n_words, generator=generator, dtype=torch.float64).softmax(dim=1)
    return torch.randn(k, n_words, generator=generator, dtype=torch.float64).softmax(dim=1), p


def test_a_pass_gives_the_models_distribution():
    """Every drafted word with its q, every luck on a fine grid: what comes first is distributed as p, to 1 / n."""
    (q, p), n, found = draws(1, 4, 0), 60, torch.zeros(4, dtype=torch.float64)
    ticks = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    for word, first, last in itertools.product(range(4), ticks, ticks):
        token = tokens_of_a_pass(torch.tensor([word]), q, p, torch.stack([first, last]), -1)[0]
        found[token] += q[0, word] / n**2
    # Each of two numbers of luck is off by half a tick at most at each border.
    assert (found - p[0]).abs().max() < 2 / n


def test_a_pass_ends_behind_stop():
    q, p = draws(3, 6, 1)
    drafted, luck = torch.tensor([2, 4, 1]), torch.tensor([0.0, 0.0, 0.0, 0.5])
    whole = tokens_of_a_pass(drafted, q, p, luck, -1)
    assert whole[:3] == (2, 4, 1)
    assert len(whole) == 4
    assert tokens_of_a_pass(drafted, q, p, luck, 4) == (2, 4)
    assert tokens_of_a_pass(drafted, q, p, luck, whole[3]) == whole[: whole.index(whole[3]) + 1]


@pytest.mark.parametrize(("acceptance", "tokens"), [(0.5, 1.75), (1.0, 3.0), (0.0, 1.0)])
def test_gain_by_hand(acceptance, tokens):
    assert tokens_and_gain(acceptance, 2, 7.0, 0.25, 0.25) == pytest.approx((tokens, 7 - 8 / tokens))


def test_split_by_hand():
    sizes = torch.tensor([[10, 30, 50], [10, 15, 45], [20, 26, 30]])
    losses = torch.tensor([[1.0, 0.5, 0.25], [0.75, 0.5, 0.0], [0.375, 0.25, 0.125]])
    assert levels_within(sizes, losses, 75).tolist() == [1, 1, 2]
    assert levels_within(sizes, losses, 74).tolist() == [1, 1, 1]


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_no_split_of_as_many_bytes_loses_less_where_steps_are_worth_less_and_less(seed):
    """Fox: the greedy split of the bytes it uses is the best of all that use as many or fewer."""
    generator = torch.Generator().manual_seed(seed)
    more = torch.randint(1, 20, (3, 3), generator=generator)
    sizes = torch.cat([torch.full((3, 1), 5), more], dim=1).cumsum(dim=1)
    worth = torch.rand(3, 3, generator=generator, dtype=torch.float64).sort(dim=1, descending=True).values
    saved = worth * more
    losses = torch.cat([saved.sum(1, keepdim=True), saved.sum(1, keepdim=True) - saved.cumsum(1)], dim=1)
    levels = levels_within(sizes, losses, 40)
    parts = torch.arange(3)
    used, lost = sizes[parts, levels].sum(), losses[parts, levels].sum()
    steps = sorted((float(w), p, i) for p, row in enumerate(worth) for i, w in enumerate(row))[::-1]
    taken = sum(levels.tolist())
    if [levels[p] > i for _, p, i in steps] != [n < taken for n in range(len(steps))]:
        return  # a step that did not fit was passed over: then others may do better
    for other in itertools.product(range(4), repeat=3):
        if sizes[parts, list(other)].sum() <= used:
            assert losses[parts, list(other)].sum() >= lost - 1e-12  # sums in another order
