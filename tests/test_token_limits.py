"""Token ids outside the vocabulary, and more tokens than learned positions, are refused with what to do."""

import pytest
import torch

from course_lib.attention.delta.spread import key_spread
from course_lib.attention.small_models.training import Schedule
from course_lib.attention.speculative.decode import speculate
from course_lib.attention.speculative.draft import Lookup, model_draft
from course_lib.attention.windowed import attention_weights, windowed
from course_lib.contextual.inputs.teal import Teal
from course_lib.kv.cache import evicting
from course_lib.kv.policies.window import Window
from course_lib.models import tiny_model
from course_lib.pruning.structured.distillation import distil
from course_lib.pruning.structured.recipe import Recipe

LONG = torch.full((1, 257), 3)
LEARNED = ("opt", "gpt2")


def distilled(loss):
    recipe = Recipe(schedule=Schedule(1, 1, 8), loss=loss)
    return lambda model, windows: distil(model, model, windows, recipe, progress=False)


def read_in_window(model, ids):
    with windowed(model, 4), torch.no_grad():
        model(ids, use_cache=False)


CALLS = {"Teal.fit": Teal.fit, "key_spread": key_spread, "attention_weights": attention_weights}
LONG_CALLS = CALLS | {"distil": distilled("kl"), "next token": distilled("next token"), "windowed": read_in_window}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("wrong", [97, -1])
def test_token_ids_outside_the_vocabulary(call, wrong):
    with pytest.raises(ValueError, match=r"got token ids .*; expected 0 to 96\. Make the .* with this model's tokeni"):
        call(tiny_model(), torch.tensor([[3, wrong, 4]]))


@pytest.mark.parametrize("call", LONG_CALLS.values(), ids=LONG_CALLS)
@pytest.mark.parametrize("family", LEARNED)
def test_more_tokens_than_learned_positions(call, family):
    with pytest.raises(ValueError, match=r"257 tokens; expected at most 256, .*\. (Make shorter|Shorten)"):
        call(tiny_model(0, family), LONG)


def test_rope_has_no_such_limit():
    assert attention_weights(tiny_model(), LONG[:, :9]).shape == (2, 6, 9, 9)
    Teal.fit(tiny_model(), LONG)


@pytest.mark.parametrize("family", LEARNED)
def test_speculation_stops_where_positions_end(family):
    model = tiny_model(0, family)
    text = LONG[0, :253]
    assert len(speculate(model, text, 4, Lookup(97)).ids) == 257  # the last token is written and never read
    with pytest.raises(ValueError, match=r"253 tokens and n_new=5; expected at most 257 together.* or lower n_new"):
        speculate(model, text, 5, Lookup(97))
    with pytest.raises(ValueError, match="got texts of 257 tokens; expected at most 256"):  # of the draft
        speculate(tiny_model(), LONG[0], 4, model_draft(model))


@pytest.mark.parametrize("family", LEARNED)
@pytest.mark.parametrize("with_mask", [True, False])
@torch.no_grad()
def test_evicting_does_not_give_positions_back(family, with_mask):
    model = tiny_model(0, family)
    with evicting(model, Window(budget=8)) as cache:
        model(LONG[:, :256], past_key_values=cache, use_cache=True)
        mask = {"attention_mask": torch.ones(1, 257)} if with_mask else {}
        with pytest.raises(ValueError, match="reaches 257 tokens; expected at most 256, .*evicted tokens included"):
            model(LONG[:, 256:], past_key_values=cache, use_cache=True, **mask)


@pytest.mark.parametrize("family", LEARNED)
@torch.no_grad()
def test_padding_takes_no_position(family):
    model = tiny_model(0, family)
    mask = torch.ones(2, 250, dtype=torch.long)
    mask[0, :240] = 0
    with evicting(model, Window(budget=8)) as cache:
        text = model.generate(LONG.expand(2, -1)[:, :250], attention_mask=mask, past_key_values=cache, max_new_tokens=6)
    assert text.shape == (2, 256)
