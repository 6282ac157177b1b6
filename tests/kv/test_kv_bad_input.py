"""What cannot be evicted, and what is said about it."""

import pytest
import torch
from transformers import LlamaForCausalLM

from course_lib.kv.cache import _check, evicting
from course_lib.kv.policies.d2o import D2O
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.kv.recycled import Recycled, recycling
from course_lib.kv.slots import Slots
from course_lib.models import blocks, tiny_model

IDS = torch.randint(3, 97, (2, 10), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("budget", [0, -1, 0.0, 1.5, -0.2, True, "many", None, float("nan")])
def test_a_budget_is_slots_or_a_fraction(budget):
    with pytest.raises((ValueError, TypeError), match="budget"):
        Window(budget=budget)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"budget": 4, "sinks": 4, "recent": 1}, "got 4 sinks and 1 recent tokens in a budget of 4 slots"),
        ({"budget": 8, "sinks": 4, "recent": 1, "by_layer": (0.5, 1.5)}, "in a budget of 4 slots"),
        ({"sinks": -1}, "got sinks -1; expected a whole number of tokens"),
        ({"dropped": 1.0}, "got dropped 1.0; expected a fraction of the budget"),
        ({"dropped": -0.1}, "got dropped -0.1; expected a fraction of the budget"),
        ({"by_head": (1.0, 0.0)}, "got by_head .* expected a tuple of positive factors"),
        ({"by_layer": (float("nan"),)}, "expected a tuple of positive factors"),
        ({"by_layer": (float("inf"), 1.0)}, "expected a tuple of positive factors"),
    ],
)
def test_settings_that_do_not_fit(settings, said):
    with pytest.raises(ValueError, match=said):
        Window(**settings)


@pytest.mark.parametrize(
    ("architecture", "policy", "positions", "said"),
    [
        ("gpt2", Window(4), "rolling", "no rotary position embedding"),
        ("opt", Window(4), "rolling", "no rotary position embedding"),
        ("llama", Window(4), "rollin", 'expected "original" or "rolling"'),
        ("llama", Window(4, by_layer=(1.0,) * 3), "original", "got 3 factors in by_layer; expected 2"),
        ("llama", Window(4, by_head=(1.0,)), "original", "got 1 factors in by_head; expected 2"),
    ],
)
def test_settings_that_a_model_cannot_have(architecture, policy, positions, said):
    model = tiny_model(architecture=architecture)
    with pytest.raises(ValueError, match=said), evicting(model, policy, positions):
        pytest.fail("must not get here")
    assert model.config._attn_implementation == "sdpa"


def test_a_model_of_few_layers_is_not_spared_as_a_whole():
    """D2O spares the first two layers and the last: all that a model of two or three layers has."""
    config = tiny_model().config
    for n_layers in (2, 3):
        config.num_hidden_layers = n_layers
        model = LlamaForCausalLM(config).eval()
        said = rf"got spared \(0, 1, -1\) in a model of {n_layers} layers.* expected fewer, such as spared=\(\)"
        with pytest.raises(ValueError, match=said), evicting(model, D2O(4, sinks=1, recent=1)):
            pytest.fail("must not get here")
        assert model.config._attn_implementation == "sdpa"
        with evicting(model, D2O(4, sinks=1, recent=1, spared=(0, 17))) as cache:
            model(IDS, past_key_values=cache)
        assert cache.slots[0].n == 10 > cache.slots[1].n


def test_a_policy_is_a_policy():
    with pytest.raises(ValueError, match="got policy 'window'; expected an EvictionPolicy"):
        _check(tiny_model(), "window")


def test_a_model_with_windows_of_its_own():
    model = tiny_model(architecture="mistral")
    model.config.sliding_window = 8
    with pytest.raises(ValueError, match="windows of their own"), evicting(model, Window(4)):
        pytest.fail("must not get here")


def test_the_model_is_as_before_also_after_an_error():
    model = tiny_model()
    expected = model(IDS).logits
    with pytest.raises(ValueError, match="expected past_key_values=cache"), evicting(model, Window(4)):
        model(IDS)
    assert torch.equal(model(IDS).logits, expected)


def test_forgetting_the_cache_is_noticed():
    model = tiny_model()
    with evicting(model, Window(4)) as cache:
        with pytest.raises(ValueError, match="expected past_key_values=cache"):
            model(IDS)
        with pytest.raises(ValueError, match="expected past_key_values=cache"):
            model.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=2)
        model(IDS, past_key_values=cache)


def test_a_cache_is_for_one_model_one_batch_and_one_block():
    model, other = tiny_model(), tiny_model(1)
    with evicting(model, Window(4)) as cache:
        model(IDS, past_key_values=cache)
        with evicting(other, Window(4)), pytest.raises(ValueError, match="expected past_key_values=cache"):
            other(IDS, past_key_values=cache)
        cache.reset()
        model(IDS, past_key_values=cache)
        with pytest.raises(ValueError, match=r"got keys of \(1, 2\) sequences and heads in a cache of \(2, 2\)"):
            model(IDS[:1], past_key_values=cache)
        with pytest.raises(ValueError, match="'course_evicting' already"), evicting(model, Window(4)):
            pytest.fail("must not get here")
    with pytest.raises(ValueError, match="after its `with` block"):
        model(IDS, past_key_values=cache)


def test_a_ready_made_mask_is_refused():
    model = tiny_model()
    with evicting(model, Window(4)) as cache, pytest.raises(ValueError, match=r"expected \(sequences, tokens\)"):
        model(IDS, attention_mask=torch.zeros(2, 1, 10, 10), past_key_values=cache)


def test_a_budget_that_was_never_reached_is_said(recwarn):
    model = tiny_model()
    with evicting(model, StreamingLLM(64)) as cache:
        model(IDS, past_key_values=cache)
    assert "nothing was evicted: 10 tokens never filled StreamingLLM(budget=64" in str(recwarn.pop().message)
    for policy in (Full(), StreamingLLM(8)):
        with evicting(model, policy) as cache:
            model(IDS, past_key_values=cache)
    assert len(recwarn) == 0


def test_a_cache_in_a_model_that_does_not_attend_through_it():
    model, other = tiny_model(), tiny_model(1)
    with evicting(model, Full()) as cache:
        with pytest.raises(ValueError, match="got a cache in another model"):
            other(IDS, past_key_values=cache, use_cache=True)
        cache.reset()
        model(IDS, past_key_values=cache, use_cache=True)
        with pytest.raises(ValueError, match=r"got crop\(3\)"):
            cache.crop(3)


@torch.no_grad()
def test_padding_is_on_the_left_and_stays():
    """Padding behind a token would hide the newest one from policies that look at its attention."""
    model, right = tiny_model(), torch.ones_like(IDS)
    right[1, 7:] = 0
    refused = pytest.raises(ValueError, match="got padding after a token; expected it on the left")
    with evicting(model, Full()) as cache, refused:
        model(IDS, attention_mask=right, past_key_values=cache, use_cache=True)
    with evicting(model, Full()) as cache:
        model(IDS[:, :6], attention_mask=torch.ones(2, 6), past_key_values=cache, use_cache=True)
        for mask in (torch.ones(2, 4), torch.cat([torch.zeros(2, 2), torch.ones(2, 8)], dim=1)):
            with pytest.raises(ValueError, match="differs from the last one in earlier tokens"):
                model(IDS[:, 6:], attention_mask=mask.long(), past_key_values=cache, use_cache=True)
            assert cache.get_seq_length() == 6


def stops(*args, **kwargs):
    raise KeyboardInterrupt


def interrupt(patch, model, cache, where):
    """The next pass stops: as the second layer begins, or in a layer when it has taken the new tokens."""
    if where == "before the second layer":
        patch.setattr(blocks(model)[1], "forward", stops)
        return
    layer, own = cache.layers[0 if where == "within the first" else -1], Slots.append_
    here = [id(slots) for slots in (layer.slots, getattr(layer, "everything", None))]

    def append_(slots, *args):
        own(slots, *args)
        return stops() if id(slots) in here else slots

    patch.setattr(Slots, "append_", append_)


@pytest.mark.parametrize(
    "kind", [lambda model: evicting(model, Window(4)), lambda model: recycling(model, Recycled(4))]
)
@pytest.mark.parametrize("where", ["before the second layer", "within the first", "within the last"])
@torch.no_grad()
def test_a_pass_that_was_interrupted_is_not_built_upon(kind, where, monkeypatch):
    model = tiny_model()
    with kind(model) as cache:
        model(IDS[:, :6], past_key_values=cache, use_cache=True)
        with monkeypatch.context() as patch:
            interrupt(patch, model, cache, where)
            with pytest.raises(KeyboardInterrupt):
                model(IDS[:, 6:8], past_key_values=cache, use_cache=True)
        for _ in range(2):
            with pytest.raises(ValueError, match=r"stopped between two layers.* Call cache.reset\(\)"):
                model(IDS[:, 6:8], past_key_values=cache, use_cache=True)
        cache.reset()
        model(IDS[:, :6], past_key_values=cache, use_cache=True)
        again = model(IDS[:, 6:8], past_key_values=cache, use_cache=True).logits
    with kind(model) as fresh:
        model(IDS[:, :6], past_key_values=fresh, use_cache=True)
        assert torch.equal(model(IDS[:, 6:8], past_key_values=fresh, use_cache=True).logits, again)
