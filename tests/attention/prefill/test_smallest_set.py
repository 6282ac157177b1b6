"""The smallest set that reaches a share: by hand, against all subsets, and what hypothesis finds."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.attention.prefill.cumulative import smallest_set

MASS = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=8).filter(lambda mass: sum(mass) > 1e-3)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.5, [0, 1, 0, 0]),  # the largest holds exactly half
        (0.51, [0, 1, 0, 1]),
        (0.75, [0, 1, 0, 1]),
        (0.8, [1, 1, 0, 1]),
        (1.0, [1, 1, 1, 1]),  # and everything that is 0, too
        (0.0, [0, 1, 0, 0]),  # at least one
    ],
)
def test_by_hand(share, expected):
    mass = torch.tensor([0.25, 0.5, 0.0, 0.25 + 1e-3])
    mass[0] -= 1e-3
    assert smallest_set(mass[None], share)[0].int().tolist() == expected
    assert smallest_set(mass, share).int().tolist() == expected, "a single row"


def test_forced_entries_count_and_a_budget_is_clamped():
    mass = torch.tensor([[0.1, 0.6, 0.3, 0.0]])
    first = torch.tensor([[True, False, False, False]])
    assert smallest_set(mass, 0.69, always=first).int().tolist() == [[1, 1, 0, 0]]
    assert smallest_set(mass, 0.09, always=first).int().tolist() == [[1, 0, 0, 0]]
    assert smallest_set(mass, 0.1, at_least=3).int().tolist() == [[1, 1, 1, 0]]
    assert smallest_set(mass, 0.1, at_least=99).all()


@given(MASS, st.floats(0.01, 0.99))
def test_reaches_the_share_and_no_smaller_set_does(mass, share):
    """Brute force over all subsets. Float64 sums of eight float32 numbers are exact to 1e-15."""
    kept = smallest_set(torch.tensor([mass]), share)[0].tolist()
    held = sum(m for m, keep in zip(mass, kept, strict=True) if keep)
    assert held >= share * sum(mass) - 1e-12
    smaller = combinations(mass, max(sum(kept) - 1, 0))
    assert sum(kept) == 1 or all(sum(some) < share * sum(mass) + 1e-12 for some in smaller)


def test_rows_are_chosen_by_themselves():
    mass = torch.tensor([[0.9, 0.05, 0.05], [0.34, 0.33, 0.33]])
    assert smallest_set(mass, 0.8).sum(dim=1).tolist() == [1, 3]
