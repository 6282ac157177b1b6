"""Streaming perplexity against the model itself, and against attention with a banded mask."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from course_lib.kv.analysis.streaming import BLOCK, StreamingPerplexity, _check, stream_through, streaming_perplexity
from course_lib.kv.cache import evicting
from course_lib.kv.policies.full import Full
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.window import Window
from course_lib.models import blocks, tiny_model, weight_of

IDS = torch.randint(3, 97, (61,), generator=torch.Generator().manual_seed(1))


def sharp_model():
    """Attention of the tiny model is almost even; with larger queries and keys it matters who is seen, and where."""
    model = tiny_model()
    for block in blocks(model):
        for name in ("self_attn.q_proj", "self_attn.k_proj"):
            weight_of(block.get_submodule(name)).mul_(6)
    return model


def own_losses(model, ids, mask=None):
    with torch.no_grad():
        logits = model(ids[None], attention_mask=mask).logits[0, :-1]
    return cross_entropy(logits, ids[1:], reduction="none").double()


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_the_whole_cache_gives_the_models_own_losses(chunk):
    model = sharp_model()
    found = streaming_perplexity(model, IDS, Full(), chunk=chunk)
    torch.testing.assert_close(found.losses, own_losses(model, IDS), rtol=1e-4, atol=1e-5)
    assert found.value == pytest.approx(own_losses(model, IDS).mean().exp().item(), rel=1e-5)
    assert found.n_tokens == 60
    assert found.peak_bytes == 2 * 2 * 2 * 60 * 8 * 4  # keys and values, layers, heads, tokens read, size, float32


@pytest.mark.parametrize("chunk", [1, 4])
def test_a_window_is_a_banded_mask(chunk):
    """A token of a chunk sees the budget before the chunk, and what came since."""
    model = sharp_model()
    query, key = torch.arange(61)[:, None], torch.arange(61)
    allowed = (key <= query) & (key >= query // chunk * chunk - 8)
    band = torch.zeros(61, 61).masked_fill(~allowed, torch.finfo(torch.float32).min)[None, None]
    expected = own_losses(model, IDS, band)
    found = streaming_perplexity(model, IDS, Window(8), chunk=chunk)
    torch.testing.assert_close(found.losses, expected, rtol=1e-4, atol=1e-5)
    assert (expected - own_losses(model, IDS)).abs().max() > 0.01
    assert found.peak_bytes == 2 * 2 * 2 * 8 * 8 * 4
    assert found.peak_allocated > found.peak_bytes


def test_a_gap_does_nothing_to_rolling_positions_and_much_to_the_original_ones():
    model, policy = sharp_model(), StreamingLLM(12, sinks=4)
    none, far = (streaming_perplexity(model, IDS, policy, "rolling", 4, gap=gap).losses for gap in (0, 5000))
    torch.testing.assert_close(none, far, rtol=1e-3, atol=1e-3)  # angles of thousands of radians in float32
    none, far = (streaming_perplexity(model, IDS, policy, "original", 4, gap=gap).losses for gap in (0, 5000))
    torch.testing.assert_close(none[:3], far[:3])
    assert (none[4:] - far[4:]).abs().max() > 0.01


def test_a_gap_before_everything_is_only_a_shift():
    model = sharp_model()
    none, shifted = (streaming_perplexity(model, IDS, H2O(12, recent=4), gap=g, gap_after=0).losses for g in (0, 500))
    torch.testing.assert_close(none, shifted, rtol=1e-3, atol=1e-3)


def test_what_is_skipped_does_not_count_but_is_kept():
    model = sharp_model()
    found = streaming_perplexity(model, IDS, Window(8), chunk=5, skip=20)
    assert len(found.losses) == 60
    assert found.n_tokens == 40
    assert found.value == pytest.approx(found.losses[20:].mean().exp().item())
    assert found.curve(30) == pytest.approx(found.losses.view(2, 30).mean(dim=1).exp().tolist())


def test_standard_error_and_seconds_by_hand():
    losses = torch.cat([torch.full((7,), 9.0), torch.full((BLOCK,), 1.0), torch.full((BLOCK,), 2.0), torch.ones(3)])
    made = StreamingPerplexity(losses.double(), torch.tensor([9.0, 2.0, 2.0, 4.0, 6.0, 4.0]), 2, 7, 0, 0)
    assert made.standard_error == pytest.approx(made.value * math.sqrt(0.5) / math.sqrt(2))
    assert made.seconds_per_token(2) == [1.0, 2.0]
    short = StreamingPerplexity(losses[:BLOCK].double(), torch.ones(3), 2, 0, 0, 0)
    assert math.isnan(short.standard_error)
    assert short.seconds_per_token(8) == [0.5, 0.5, 0.5]
    assert StreamingPerplexity(losses.double(), torch.zeros(0), 2000, 0, 0, 0).seconds_per_token() == []


def test_a_cache_that_is_open_goes_on_where_it_was_left():
    model = sharp_model()
    whole = streaming_perplexity(model, IDS, StreamingLLM(12), chunk=4)
    with evicting(model, StreamingLLM(12)) as cache:
        first = stream_through(model, IDS[:33], cache, 4)
        torch.testing.assert_close(first.losses, whole.losses[:32])
        assert cache.get_seq_length() == 32


@pytest.mark.parametrize(
    ("ids", "settings", "message"),
    [
        (IDS[:1], {}, "one row of 2 token ids or more"),
        (IDS + 90, {}, "expected 0 to 96"),
        (IDS, {"chunk": 0}, "a chunk of 1 or more"),
        (IDS, {"skip": 60}, "60 predictions"),
        (IDS, {"gap": -1}, "negative"),
        (IDS, {"positions": "absolute"}, "got positions"),
    ],
    ids=["one", "vocabulary", "chunk", "skip", "gap", "positions"],
)
def test_bad_input_is_refused(ids, settings, message):
    with pytest.raises(ValueError, match=message):
        streaming_perplexity(tiny_model(), ids, Window(8), **settings)


@pytest.mark.parametrize("ids", [IDS[None], IDS.float(), [5, 6]], ids=["rows", "floats", "list"])
def test_what_is_no_row_of_tokens_is_refused(ids):
    """Asked directly: the annotations of the public function would answer first while tests run."""
    with pytest.raises(ValueError, match="expected one row of 2 token ids"):
        _check(tiny_model(), ids, 1, 0, 0, 0)
