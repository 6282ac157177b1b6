"""Sums over the newest queries, against every query written down."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.kv.history import PARTS, check_window, recent_sum
from course_lib.kv.slots import NewTokens, Slots
from course_lib.kv.vectors import FREE


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([8, 16, 40]),
    st.lists(st.integers(1, 60), min_size=1, max_size=8),
    st.integers(0, 30),
    st.integers(0, 10**6),
)
def test_the_sum_is_over_the_eighths_of_the_window(window, chunks, n_padding, seed):
    """Chunks of any size; the second sequence begins with padding, also whole chunks of it."""
    n_tokens, size = sum(chunks), window // PARTS
    generator = torch.Generator().manual_seed(seed)
    received = torch.rand(2, 1, n_tokens, 3, generator=generator)
    slots = Slots.empty(torch.zeros(2, 1, 0, 2))
    vectors, valid = torch.zeros(2, 1, 3, 2), torch.ones(2, 3, dtype=torch.bool)
    slots = slots.append_(vectors, vectors.clone(), NewTokens.of(valid))
    start = 0
    for chunk in chunks:
        end = start + chunk
        position = torch.stack([torch.arange(start, end), torch.arange(start, end) - n_padding])
        position = torch.where(position < 0, FREE, position)
        new = received[:, :, start:end]
        slots = slots.remember_({"lately": recent_sum(slots, "lately", new, position, window)})
        start = end
        for row, first in enumerate((0, min(n_padding, end))):
            since = ((end - 1 - first) // size - 7) * size  # the eighth under way and the seven before it
            expected = received[row, 0, max(first, first + since) : end].sum(dim=0)
            found = slots.memory("lately", PARTS)[row, 0].sum(dim=1)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
            n_queries = end - max(first, first + since)
            assert n_queries <= window
            assert n_queries > window * 7 // 8 or n_queries == end - first


def test_a_sum_by_hand():
    """A window of 16: each part two queries, 1 each. After 17 the first part, queries 0 and 1, is overwritten by 16."""
    vectors = torch.zeros(1, 1, 1, 2)
    slots = Slots.empty(vectors).append_(vectors, vectors.clone(), NewTokens.of(torch.ones(1, 1, dtype=torch.bool)))
    for i in range(17):
        new = recent_sum(slots, "lately", torch.ones(1, 1, 1, 1), torch.tensor([[i]]), 16)
        slots = slots.remember_({"lately": new})
    assert slots.memory("lately", PARTS).tolist() == [[[[1, 2, 2, 2, 2, 2, 2, 2]]]]


@pytest.mark.parametrize("window", [0, 4, 12, -8, 8.0, "8"])
def test_a_window_has_eighths(window):
    with pytest.raises((ValueError, TypeError), match=r"multiple of 8|window"):
        check_window(window)
