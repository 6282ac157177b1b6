"""A band for a mask is a cache that forgets; what is looked up there is what the model does."""

import math

import pytest
import torch

from course_lib.attention.windowed import Constant, attention_weights, band, first_token, value_lengths, windowed
from course_lib.kv.cache import evicting
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.models import tiny_model

IDS = torch.randint(3, 97, (1, 23), generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def model():
    return tiny_model(seed=3)


@torch.no_grad()
def logits(model, **settings):
    with windowed(model, **settings):
        return model(IDS, use_cache=False).logits


@torch.no_grad()
def streamed(model, policy):
    with evicting(model, policy) as cache:
        return torch.cat(
            [model(IDS[:, i : i + 1], past_key_values=cache, use_cache=True).logits for i in range(IDS.shape[1])], dim=1
        )


def test_the_band_by_hand():
    assert band(5, 2, 1).int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 0, 1, 1, 0],
        [1, 0, 0, 1, 1],
    ]
    assert band(3, None, 0).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


@torch.no_grad()
def test_without_a_window_it_is_the_model(model):
    torch.testing.assert_close(logits(model), model(IDS).logits, atol=1e-5, rtol=1e-5)


# A cache of n slots beside the token that comes is a window of n + 1.
@pytest.mark.parametrize(("policy", "sinks"), [(Window(6), 0), (StreamingLLM(6, sinks=2), 2)], ids=["window", "sinks"])
def test_it_is_the_evicting_cache_in_one_pass(model, policy, sinks):
    ours = logits(model, window=6 - sinks + 1, sinks=sinks)
    torch.testing.assert_close(ours, streamed(model, policy), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(ours, logits(model), atol=1e-3)


@torch.no_grad()
def test_weights_are_those_of_eager_attention(model):
    ids = torch.cat([IDS, IDS.flip(1)])
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    expected = torch.stack(model(ids, output_attentions=True).attentions).mean(dim=1)
    model.set_attn_implementation(before)
    torch.testing.assert_close(attention_weights(model, ids), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_length_of_values(model):
    values = model(IDS, use_cache=True).past_key_values.layers[1].values[0]
    torch.testing.assert_close(value_lengths(model, IDS)[1], values.norm(dim=-1).mean(dim=0))


def test_a_constant_stands_for_a_token(model):
    """A window of all but the first token, and the first token's logits and value as a constant: for two tokens exact.

    Only the second token's output is compared, whose logit with the first is the mean itself.
    """
    short = IDS[:, :2]
    constant = first_token(model, short, start=1)
    with torch.no_grad(), windowed(model, window=1, constant=constant):
        by_constant = model(short, use_cache=False).logits[:, 1]
    with torch.no_grad():
        expected = model(short).logits[:, 1]
    torch.testing.assert_close(by_constant, expected, atol=1e-5, rtol=1e-5)


def test_a_constant_with_a_logit_of_minus_infinity_is_none(model):
    nothing = Constant(torch.full((2, 6), -math.inf), torch.randn(2, 6, 8))
    torch.testing.assert_close(logits(model, window=4, constant=nothing), logits(model, window=4))
    zero = Constant(torch.zeros(2, 6), torch.zeros(2, 6, 8))
    assert not torch.allclose(logits(model, window=4, constant=zero), logits(model, window=4), atol=1e-3)


def test_the_model_is_as_before_also_after_an_error(model):
    before = model.config._attn_implementation
    with pytest.raises(ValueError, match="got a cache or padding"), windowed(model, window=3):
        model.generate(IDS, max_new_tokens=3, do_sample=False)
    assert model.config._attn_implementation == before


OTHER = Constant(torch.zeros(1, 6), torch.zeros(1, 6, 8))


@pytest.mark.parametrize("settings", [{"window": 0}, {"sinks": -1}, {"constant": OTHER}], ids=["0", "-1", "other"])
def test_bad_settings(model, settings):
    with pytest.raises(ValueError, match="expected"), windowed(model, **settings):
        pass
