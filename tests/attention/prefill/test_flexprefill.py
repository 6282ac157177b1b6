"""FlexPrefill's rule: against loops, patterns by hand, the share that it promises, and what it refuses."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from prefill_naive import draw, flexprefill

from course_lib.attention.prefill.coverage import coverage
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.prefill.index import always_read, dense_index

SMALL = {"block_size": 8, "min_budget": 8}


@pytest.mark.parametrize("gamma", [0.3, 0.8, 0.95])
@pytest.mark.parametrize("tau", [0.0, 0.22, 9.0])
@pytest.mark.parametrize(("n_tokens", "min_budget"), [(40, 0), (45, 8), (77, 17)])
def test_the_index_is_that_of_loops(gamma, tau, n_tokens, min_budget, generator):
    query, keys, _ = draw(generator, 2, 3, n_tokens)
    rule = FlexPrefill(gamma=gamma, tau=tau, block_size=8, min_budget=min_budget)
    index = rule.index(query, keys, 8**-0.5)
    reads, aware = flexprefill(query, keys, 8**-0.5, 8, gamma, tau, -(-min_budget // 8))
    assert torch.equal(index.query_aware, aware)
    assert torch.equal(index.reads, reads)


def test_both_kinds_of_head_are_among_the_loops_cases(generator):
    query, keys, _ = draw(generator, 2, 3, 77)
    aware = FlexPrefill(tau=0.22, **SMALL).index(query, keys, 8**-0.5).query_aware
    assert 0 < int(aware.sum()) < 6


def test_a_vertical_line_by_hand():
    """All queries look at key 17, in block 2: its column is read, and the first column and the diagonal in any case.

    The last queries, 40 to 47, are 23 to 30 tokens away: alike, an eighth each. A slash at 24 to 30 is partly on the
    third diagonal below the main one, (8 − 0 + … + 8 − 6)/64 = 35/64, that at 23 on it by 7/64: 42/64 there, 1/64 of
    what is 23 away on the second, 21/64 on the fourth; so γ = .9 reads the third and the fourth.
    """
    keys = torch.zeros(1, 48, 2)
    keys[0, 17] = torch.tensor([60.0, 0.0])
    query = torch.tensor([1.0, 0.0]).expand(1, 48, 2)
    reads = FlexPrefill(gamma=0.9, tau=0.0, **SMALL).index(query, keys, 1.0).reads[0]
    rows, columns = torch.arange(6)[:, None], torch.arange(6)
    away = rows - columns
    expected = (away >= 0) & ((columns == 0) | (columns == 2) | (away == 0) | (away == 3) | (away == 4))
    assert torch.equal(reads, expected)


def test_a_head_that_looks_everywhere_alike_is_query_aware():
    """Keys of one kind: block means foretell the attention, but for the last block, half of which is later.

    Row i of the map is 1/(i + 1) throughout, ten rows in all. The first column and the diagonal, 19 blocks, hold
    2 · 2.929 − 1 = 4.858; γ asks for 5, and the largest block that is left is the ⅓ at row 2, column 1.
    """
    query, keys = torch.ones(1, 80, 2), torch.ones(1, 80, 2)
    index = FlexPrefill(gamma=0.5, tau=0.1, block_size=8, min_budget=0).index(query, keys, 1.0)
    assert index.query_aware.tolist() == [True]
    expected = always_read(10)
    expected[2, 1] = True
    assert torch.equal(index.reads[0], expected)


@given(st.integers(0, 2**16), st.floats(0.05, 0.99), st.sampled_from([40, 45, 71]), st.floats(0.1, 6.0), st.booleans())
@settings(deadline=None, max_examples=40)
def test_the_share_is_reached(seed, gamma, n_tokens, sharp, is_ragged_head):
    """A vertical-slash head reads at least γ of what the last queries attend to, by brute force over all keys."""
    n_groups = 3 if is_ragged_head else 1
    query, keys, _ = draw(torch.Generator().manual_seed(seed), 2, n_groups, n_tokens, sharp=sharp)
    index = FlexPrefill(gamma=gamma, tau=0.0, block_size=8, min_budget=0).index(query, keys, 8**-0.5)
    assert not index.query_aware.any()
    assert (coverage(query, keys, index, 8**-0.5, n_last=8) >= gamma - 1e-5).all()  # float32 sums of 71 weights


def test_more_is_read_for_a_larger_share(generator):
    query, keys, _ = draw(generator, 2, 3, 150)
    density = [FlexPrefill(gamma=g, block_size=8, min_budget=0).index(query, keys, 0.35).density for g in
               (0.3, 0.6, 0.9, 0.99, 1.0)]  # fmt: skip
    for less, more in pairwise(density):
        assert (less <= more).all()
    assert (density[0] < 0.7).all()
    assert (density[-1] == 1).all()


def test_a_budget_is_a_floor_for_each_kind_of_line(generator):
    """Of 10 blocks, 4 columns and 4 diagonals at least, in query-aware heads as well."""
    query, keys, _ = draw(generator, 1, 2, 80)
    for tau in (0.0, 9.0):
        reads = FlexPrefill(gamma=0.01, tau=tau, block_size=8, min_budget=32).index(query, keys, 1.0).reads
        columns = (reads | ~torch.ones(10, 10, dtype=torch.bool).tril()).all(dim=1).sum(dim=1)
        assert (columns >= 4).all()
        diagonals = [sum(bool(each.diagonal(-k).all()) for k in range(10)) for each in reads]
        assert min(diagonals) >= 4


@pytest.mark.parametrize("n_tokens", [1, 7, 8, 16])
def test_a_text_of_at_most_two_blocks_is_dense(n_tokens, generator):
    query, keys, _ = draw(generator, 2, 3, n_tokens)
    index = FlexPrefill(gamma=0.1, **SMALL).index(query, keys, 1.0)
    assert torch.equal(index.reads, dense_index(6, n_tokens, 8).reads)


def test_a_text_no_longer_than_the_budget_is_dense(generator):
    query, keys, _ = draw(generator, 1, 1, 64)
    assert FlexPrefill(gamma=0.1, block_size=8, min_budget=64).index(query, keys, 1.0).density.tolist() == [1.0]
    assert FlexPrefill(gamma=0.1, block_size=8, min_budget=8).index(query, keys, 1.0).density.tolist() < [1.0]


@pytest.mark.parametrize("gamma", [0.0, -0.1, 1.01, float("nan")])
def test_a_share_outside_0_to_1_is_refused(gamma):
    with pytest.raises(ValueError, match=r"got gamma .*; expected a fraction of the attention in \(0, 1\]"):
        FlexPrefill(gamma=gamma)


def test_other_impossible_settings_are_refused():
    for bad in ({"tau": -0.1}, {"tau": float("nan")}, {"min_budget": -1}):
        with pytest.raises(ValueError, match="expected a (distance|whole number of tokens).* 0 or more"):
            FlexPrefill(**bad)
    with pytest.raises(ValueError, match="got block_size 0"):
        FlexPrefill(block_size=0)
