"""The course's functions for the exercises of lesson 07 agree with the library's policies."""

import pytest
import torch

from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.lessons.common.by_mask import ByMask
from course_lib.lessons.kv import steps
from course_lib.models import tiny_model

TEXT = torch.arange(1, 61)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def losses(model, policy):
    return steps.compare_policies(model, TEXT % model.config.vocab_size, {"it": policy}, chunk=7)["it"].losses


def test_a_window_by_its_mask_is_a_window(model):
    by_mask = ByMask(12, stays=lambda slots: steps.window_keep(slots.position.long(), 12))
    assert torch.equal(losses(model, by_mask), losses(model, Window(12)))


def test_a_mask_gets_the_slots_of_the_cache(model):
    by_mask = ByMask(12, stays=lambda slots: (slots.position < 2) | (slots.position >= int(slots.n_seen) - 10))
    assert torch.equal(losses(model, by_mask), losses(model, StreamingLLM(12, sinks=2)))
    with pytest.raises(ValueError, match="got stays None; expected a function of the slots"):
        ByMask(12)


def test_rounding_by_hand():
    row = torch.tensor([0.0, 0.4, 2.2, 3.0, 0.7, 0.7, 0.7, 0.7])
    assert torch.equal(steps.quantize_row(row, 2, 4), torch.tensor([0.0, 0.0, 2.0, 3.0, 0.7, 0.7, 0.7, 0.7]))
