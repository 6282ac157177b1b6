"""Four ways to read a long text, chats in a small cache, and starts of a stream: what is measured."""

import pytest
import torch

from course_lib.kv.policies.full import Full
from course_lib.lessons.sinks.experiments import dialogue, first_tokens, four_ways
from course_lib.models import blocks, linears, tiny_model, weight_of


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(3, 97, (60,), generator=torch.Generator().manual_seed(0))


def all_losses(model, ids):
    with torch.no_grad():
        logits = model(ids[None, :-1], use_cache=False).logits[0]
    return torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none")


def test_the_count_by_hand(model):
    """10 weights, one layer of width 2: 20 a token and 8 a pair; of a window of 3 all pairs are 1 + 2 + 3."""
    assert four_ways.flops_a_token(10, 1, 2, 5, 3) == (60, 44, 108)
    assert four_ways.flops_a_token(10, 1, 2, 2, 3) == (36, 36, 64)
    weights = sum(weight_of(each).numel() for block in blocks(model) for each in linears(block).values())
    assert four_ways.shape(model) == (weights, 2, 48)


def test_reading_in_passes_with_everything_kept_is_reading_at_once(model, ids):
    found = four_ways.streamed(model, ids, Full(), "original", slow_from=32)
    assert found == pytest.approx(all_losses(model, ids), abs=1e-4)


def test_a_recomputed_window_sees_its_tokens_and_nothing_else(model, ids):
    (found,) = four_ways.read_afresh(model, ids, [40], 8)
    assert found == pytest.approx(all_losses(model, ids[33:42])[-1].item(), abs=1e-4)


def test_predictions_are_compared_beyond_the_trained_length():
    assert four_ways.compared_at(9024, 48, 8192)[0] == 8256
    assert four_ways.compared_at(9024, 48, 8192)[-1] == 9008
    with pytest.raises(ValueError, match="beyond 8192"):
        four_ways.compared_at(9024, 60, 8192)


def test_a_chat_in_a_cache_that_holds_it_all_is_that_of_everything(model):
    asked = [torch.randint(3, 97, (2, n), generator=torch.Generator().manual_seed(n)) for n in (5, 4)]
    whole, starts = dialogue.talk(model, asked, dialogue.EVERYTHING, 6, 64, never=0, seed=3)
    with pytest.warns(UserWarning, match="nothing was evicted"):
        same, _ = dialogue.talk(model, asked, dialogue.NEWEST, 6, 64, never=0, seed=3)
    assert whole.shape == (2, 21)
    assert starts == [5, 15]
    assert torch.equal(whole, same)
    assert torch.equal(whole[:, 11:15], asked[1])
    judged = dialogue.judged(model, whole, 15, 6)
    assert judged == pytest.approx([all_losses(model, row)[14:].mean().item() for row in whole], abs=1e-4)


def test_bad_starts_are_refused(model):
    tokenizer = Letters()
    for start, what in ((17, "17 tokens"), ("a" * 17, "17 tokens"), (True, "got True"), (None, "got None")):
        with pytest.raises(ValueError, match=what):
            first_tokens.start_of(tokenizer, start)
    before, n_kept = first_tokens.start_of(tokenizer, "abc")
    assert (len(before), n_kept) == (3, 3)
    before, n_kept = first_tokens.start_of(tokenizer, 4)
    assert (len(before), n_kept) == (0, 4)


class Letters:
    """A tokenizer with one token per letter."""

    def __call__(self, text, add_special_tokens=False):
        self.input_ids = [ord(letter) for letter in text]
        return self
