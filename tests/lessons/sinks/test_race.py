"""Streaming against recomputing: the count by hand, and what the clock is put on."""

import pytest
import torch

from course_lib.lessons.sinks import race as module
from course_lib.lessons.sinks.race import counted, race
from course_lib.models import blocks, linears, tiny_model, weight_of


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def test_the_count_by_hand(model):
    """Two blocks of width 48; a window of 1 costs the same both ways."""
    weights = sum(weight_of(each).numel() for block in blocks(model) for each in linears(block).values())
    found = counted(model, (1, 3))
    assert found["streaming"] == [2 * weights + 4 * 2 * 48, 2 * weights + 4 * 2 * 48 * 3]
    assert found["recomputing"] == [2 * weights + 4 * 2 * 48, 6 * weights + 4 * 2 * 48 * 6]


def test_recomputing_reads_the_window_and_streaming_one_token(model, monkeypatch):
    clock, read = iter(range(1000)), []
    monkeypatch.setattr(module, "perf_counter", lambda: float(next(clock)))
    handle = model.register_forward_pre_hook(
        lambda _, arguments, settings: read.append((arguments[0].shape[1], settings["use_cache"])), with_kwargs=True
    )
    ids = torch.randint(3, 97, (20,), generator=torch.Generator().manual_seed(0))
    found = race(model, ids, (5, 8), tokens=2)
    handle.remove()
    one = [(5, False), (5, False), (5, True), (1, True), (1, True)]
    assert read == [*one, (8, False), (8, False), (8, True), (1, True), (1, True)]
    assert found == {"streaming": [1.0, 1.0], "recomputing": [1.0, 1.0]}


def test_a_text_that_is_too_short(model):
    with pytest.raises(ValueError, match="got 9 tokens; expected at least 11"):
        race(model, torch.arange(9), (4, 8))
