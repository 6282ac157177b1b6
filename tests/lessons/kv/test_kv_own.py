"""What lesson 07 runs in place of a student's functions is what the library does."""

import pytest
import torch

from course_lib.kv.cache import evicting
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.lessons.common.by_mask import ByMask
from course_lib.lessons.kv.running import own
from course_lib.lessons.kv.running.measure import race
from course_lib.models import tiny_model

TEXT = torch.arange(1, 61)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def losses(model, policy):
    return race(model, TEXT % model.config.vocab_size, {"it": policy}, chunk=7)["it"].losses


def test_a_window_by_its_mask_is_a_window(model):
    by_mask = ByMask(12, stays=lambda slots: own.window_keep(slots.position.long(), 12))
    assert torch.equal(losses(model, by_mask), losses(model, Window(12)))


def test_a_mask_is_asked_for_the_slots_that_there_are(model):
    by_mask = ByMask(12, stays=lambda slots: (slots.position < 2) | (slots.position >= int(slots.n_seen) - 10))
    assert torch.equal(losses(model, by_mask), losses(model, StreamingLLM(12, sinks=2)))
    with pytest.raises(ValueError, match="got stays None; expected a function of the slots"):
        ByMask(12)


def test_h2o_of_two_functions_is_h2o(model):
    by_step = own.ByStep(12, recent=4, mass=own.group_mass, step=own.h2o_step)
    torch.testing.assert_close(losses(model, by_step), losses(model, H2O(12, recent=4)), rtol=1e-5, atol=1e-6)


def test_rounding_by_hand():
    row = torch.tensor([0.0, 0.4, 2.2, 3.0, 0.7, 0.7, 0.7, 0.7])
    assert torch.equal(own.quantize_row(row, 2, 4), torch.tensor([0.0, 0.0, 2.0, 3.0, 0.7, 0.7, 0.7, 0.7]))


def test_losses_behind_a_prompt_are_those_of_the_whole_text_while_nothing_is_rounded(model):
    ids = TEXT % model.config.vocab_size
    exact, same = own.losses_after(model, ids, 40), own.losses_after(model, ids, 40, lambda vectors: vectors)
    with torch.no_grad(), evicting(model, Full()) as cache:
        logits = model(ids[None, :-1], past_key_values=cache, use_cache=True).logits[0]
    whole = torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none")[40:]
    torch.testing.assert_close(exact, whole, rtol=1e-4, atol=1e-5)
    assert torch.equal(exact, same)
    assert not torch.equal(exact, own.losses_after(model, ids, 40, torch.zeros_like))
