"""Sparse prefill inside a model: dense where γ = 1, restored on exit, generation, padding, and what it refuses."""

import warnings

import pytest
import torch

from course_lib.attention.prefill.apply import check_rule, prefilling
from course_lib.attention.prefill.baselines import RandomBlocks, SinkAndWindow, VerticalSlash
from course_lib.attention.prefill.flexprefill import FlexPrefill
from course_lib.attention.prefill.padding import real_tokens
from course_lib.attention.windowed import windowed
from course_lib.models import tiny_model

IDS = torch.randint(3, 97, (1, 77), generator=torch.Generator().manual_seed(1))
RULE = FlexPrefill(gamma=0.7, block_size=8, min_budget=8)
DENSE = FlexPrefill(gamma=1.0, block_size=8, min_budget=8)
RULES = [RULE, SinkAndWindow(block_size=8), VerticalSlash(block_size=8), RandomBlocks(block_size=8)]


@torch.no_grad()
def logits(model, ids, **others):
    return model(ids, use_cache=False, **others).logits


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3", "opt", "gpt2"])
def test_a_share_of_1_is_the_dense_model(architecture):
    model = tiny_model(architecture=architecture)
    expected = logits(model, IDS)
    with prefilling(model, DENSE) as watch:
        got = logits(model, IDS)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    assert (watch.density == 1).all()
    torch.testing.assert_close(watch.coverage, torch.ones(2, 6, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_the_model_is_as_before_and_the_watch_knows(rule):
    model = tiny_model()
    before, implementation = logits(model, IDS), model.config._attn_implementation
    with prefilling(model, rule, "all") as watch:
        sparse = logits(model, IDS)
    assert model.config._attn_implementation == implementation
    assert torch.equal(logits(model, IDS), before)
    assert not torch.allclose(sparse, before, atol=1e-5)
    assert watch.density.shape == watch.coverage.shape == watch.query_aware.shape == (2, 6)
    assert (watch.density < 1).any()
    assert ((watch.coverage > 0) & (watch.coverage <= 1 + 1e-6)).all()
    assert (watch.n_sparse, watch.n_short) == (1, 0)


def test_it_is_restored_after_an_error():
    model = tiny_model()
    implementation = model.config._attn_implementation
    with pytest.raises(RuntimeError, match="stop"), prefilling(model, RULE):
        raise RuntimeError("stop")
    assert model.config._attn_implementation == implementation
    with prefilling(model, RULE):
        logits(model, IDS)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_batch_is_its_texts_one_by_one(side):
    model = tiny_model()
    lengths, ids = (77, 50, 20), torch.full((3, 77), 2)
    keep = torch.zeros(3, 77, dtype=torch.long)
    places = [slice(77 - n, 77) if side == "left" else slice(0, n) for n in lengths]
    for row, (n, place) in enumerate(zip(lengths, places, strict=True)):
        ids[row, place], keep[row, place] = IDS[0, :n], 1
    position = (keep.cumsum(dim=1) - 1).clamp(min=0)
    with prefilling(model, RULE) as watch:
        got = logits(model, ids, attention_mask=keep, position_ids=position)
        alone = [logits(model, IDS[:, :n])[0] for n in lengths]
    for row, place in enumerate(places):
        torch.testing.assert_close(got[row, place], alone[row], atol=1e-5, rtol=0)
    assert (watch.n_sparse, watch.n_short) == (6, 0)  # the shortest has three blocks


def test_a_batch_of_one_length_is_its_texts_one_by_one():
    model = tiny_model()
    ids = torch.cat([IDS, IDS.flip(1)])
    with prefilling(model, RULE, "none") as watch:
        both = logits(model, ids)
    with prefilling(model, RULE, "none") as by_one:
        alone = torch.cat([logits(model, row[None]) for row in ids])
    torch.testing.assert_close(both, alone, atol=1e-5, rtol=0)
    torch.testing.assert_close(watch.density, by_one.density)
    torch.testing.assert_close(watch.query_aware, by_one.query_aware)
    assert watch.coverage.isnan().all()
    assert watch.n_sparse == 2


def test_generation_prefills_sparsely_and_decodes_densely():
    """The keys of the prompt come from sparse attention; each new token then reads all of them."""
    model = tiny_model()
    with prefilling(model, RULE) as watch:
        out = model.generate(
            IDS, max_new_tokens=5, do_sample=False, eos_token_id=None, return_dict_in_generate=True, output_logits=True
        )
        prompt = model(IDS, use_cache=True)
    assert watch.n_sparse == 2  # the prompt, and the prompt once more by itself: no step of decoding
    cache, step = prompt.past_key_values, out.sequences[:, 77:78]
    torch.testing.assert_close(out.logits[0], prompt.logits[:, -1], atol=1e-5, rtol=0)
    for i in range(1, 5):  # outside: transformers' own attention over the same cache
        with torch.no_grad():
            expected = model(step, past_key_values=cache, use_cache=True).logits[:, -1]
        torch.testing.assert_close(out.logits[i], expected, atol=1e-5, rtol=0)
        step = out.sequences[:, 77 + i : 78 + i]


def test_a_share_of_1_generates_what_the_model_generates():
    model = tiny_model()
    keep = torch.ones(2, 77, dtype=torch.long)
    keep[1, :30] = 0
    ids = torch.cat([IDS, IDS])
    wanted = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "attention_mask": keep}
    expected = model.generate(ids, **wanted)
    with prefilling(model, DENSE):
        assert torch.equal(model.generate(ids, **wanted), expected)
        with pytest.raises(ValueError, match="got a StaticCache, a cache of fixed size"):  # its prompt was read in full
            model.generate(ids, cache_implementation="static", **wanted)


def test_a_text_that_goes_on_after_a_cache_is_read_in_full():
    model = tiny_model()
    expected = logits(model, IDS)
    with prefilling(model, DENSE), torch.no_grad():
        first = model(IDS[:, :40], use_cache=True)
        rest = model(IDS[:, 40:], past_key_values=first.past_key_values, use_cache=True)
    torch.testing.assert_close(torch.cat([first.logits, rest.logits], dim=1), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("n_tokens", [2, 7, 16])
def test_texts_that_are_too_short_are_said(n_tokens):
    model = tiny_model()
    expected = logits(model, IDS[:, :n_tokens])
    said = pytest.warns(UserWarning, match="no text was longer than 16 tokens, so all attention was dense")
    with said, prefilling(model, RULE) as watch:
        got = logits(model, IDS[:, :n_tokens])
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    assert (watch.n_sparse, watch.n_short) == (0, 1)
    assert (watch.density == 1).all()


def test_a_budget_above_the_length_is_said():
    model = tiny_model()
    said = pytest.warns(UserWarning, match="no text was longer than 512 tokens")
    with said, prefilling(model, FlexPrefill(block_size=8)):
        logits(model, IDS)


def test_nothing_is_said_before_the_first_text():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with prefilling(tiny_model(), RULE) as watch:
            assert watch.density.isnan().all()


def test_two_models_at_once_have_a_rule_each():
    first, second = tiny_model(0), tiny_model(1)
    with prefilling(first, RULE) as one, prefilling(second, DENSE) as other:
        logits(first, IDS)
        logits(second, IDS)
    assert (one.density < 1).any()
    assert (other.density == 1).all()


def test_blocks_are_not_nested():
    model = tiny_model()
    refused = pytest.raises(ValueError, match="'course_prefill' already; leave that `with` block first")
    with prefilling(model, RULE), refused, prefilling(model, RULE):
        pass
    refused = pytest.raises(ValueError, match="'course_bands' already")
    with windowed(model, 8), refused, prefilling(model, RULE):
        pass


def test_a_mask_with_holes_is_refused():
    model, keep = tiny_model(), torch.ones(1, 77, dtype=torch.long)
    keep[0, 40] = 0
    with prefilling(model, RULE), pytest.raises(ValueError, match="a mask with holes in sequence 0; expected None or"):
        logits(model, IDS, attention_mask=keep)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(2, 1, 5, 5).tril(), "type torch.float32; expected None or padding"),
        (torch.ones(2, 3, 5, 5).tril().bool(), "shape .2, 3, 5, 5."),
        (torch.ones(2, 1, 5, 5).bool(), "hides more than padding"),  # not causal
        (torch.ones(2, 1, 5, 5).tril().triu(-2).bool(), "hides more than padding, as of packed texts or a window"),
        (torch.zeros(2, 1, 5, 5).bool(), "no token at all in sequence 0"),
    ],
)
def test_masks_that_are_not_padding_are_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        real_tokens(mask, 2, 5)


def test_a_sliding_window_is_refused_and_so_are_packed_texts():
    model = tiny_model(architecture="mistral")
    model.config.sliding_window = 16
    with prefilling(model, RULE), pytest.raises(ValueError, match="packed texts or a window"):
        logits(model, IDS)
    packed = torch.cat([torch.arange(40), torch.arange(37)])[None]
    model = tiny_model()
    with prefilling(model, RULE), pytest.raises(ValueError, match="packed texts or a window"):
        logits(model, IDS, position_ids=packed)


def test_what_it_cannot_do_is_refused():
    model = tiny_model()
    with pytest.raises(ValueError, match="expected a SparsePrefill"):
        check_rule(0.95)
    refused = pytest.raises(ValueError, match="got measured='some'; expected one of none, last, all")
    with refused, prefilling(model, RULE, "some"):
        pass
    assert not model.config._attn_implementation.startswith("course_")
    model.config.attention_dropout = 0.5
    for block in model.model.layers:
        block.self_attn.attention_dropout = 0.5
    refused = pytest.raises(ValueError, match=r"got a LlamaAttention with dropout; .* model.eval\(\)")
    with prefilling(model.train(), RULE), refused:
        logits(model, IDS)
