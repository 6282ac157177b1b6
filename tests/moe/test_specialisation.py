"""How much a byte says about its expert: by hand, bounds, and against chance."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.moe.small_models.specialisation import by_chance, counted, entropy, known_share


def test_counts_by_hand():
    """Byte 2 goes to experts 0 and 1, then to 1 and 2; byte 0 to 0 and 2."""
    chosen = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 1]]).bool()
    assert counted(torch.tensor([2, 2, 0]), chosen, 3).tolist() == [[1, 0, 1], [0, 0, 0], [1, 2, 1]]


def test_shares_by_hand():
    """One byte to each expert: all. The same for all bytes: nothing. Half of the bytes known: ½ of ln 2, by hand."""
    assert known_share(torch.tensor([[3, 0], [0, 3]])) == pytest.approx(1)
    assert known_share(torch.tensor([[2, 1], [4, 2]])) == pytest.approx(0, abs=1e-12)
    # Bytes 0 and 1 decide, 2 does not: H(expert) = ln 2, H(expert | byte) = ½ ln 2.
    assert known_share(torch.tensor([[2, 0], [0, 2], [2, 2]])) == pytest.approx(0.5)
    assert known_share(torch.tensor([[5, 0], [9, 0]])) == 0.0  # of one expert there is nothing to know
    assert entropy(torch.tensor([1, 1, 2, 0])) == pytest.approx(1.5 * math.log(2))


@settings(max_examples=40, deadline=None)
@given(n_tokens=st.integers(1, 60), n_experts=st.integers(1, 6), n_values=st.integers(1, 9), seed=st.integers(0, 999))
def test_a_share_lies_between_nothing_and_all(n_tokens, n_experts, n_values, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(n_values, (n_tokens,), generator=generator)
    chosen = torch.zeros(n_tokens, n_experts, dtype=torch.bool)
    chosen[torch.arange(n_tokens), torch.randint(n_experts, (n_tokens,), generator=generator)] = True
    counts = counted(ids, chosen)
    assert counts.sum() == n_tokens
    assert -1e-12 < known_share(counts) < 1 + 1e-12
    assert known_share(counts) == pytest.approx(known_share(counts.flip(0)))  # names of bytes say nothing


def test_chance_feigns_little_where_there_are_many_tokens():
    """Byte i mod 4 goes to expert i mod 4; in random order (V − 1)(E − 1) / 2T / ln E = 0.0006 is expected."""
    ids = torch.arange(6000) % 4
    chosen = torch.eye(4, dtype=torch.bool)[ids]
    assert known_share(counted(ids, chosen)) == pytest.approx(1)
    assert 0 < by_chance(ids, chosen) < 0.003
    assert by_chance(ids, chosen) == by_chance(ids, chosen)
    with pytest.raises(ValueError, match="one row for each"):
        counted(ids[:5], chosen)
