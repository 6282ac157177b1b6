"""Delta attention in a model: exact where it must be, the same decoded as read, counted, restored."""

import pytest
import torch

from course_lib.attention.delta.apply import delta_attention
from course_lib.attention.delta.code import DeltaCode, delta_code, summed_logits
from course_lib.attention.delta.spread import Spread, key_spread, turned
from course_lib.attention.windowed import windowed
from course_lib.models import blocks, rotary_frequencies, tiny_model

SIDES = ["after", "before"]


def text(n=1, length=19, seed=0):
    return torch.randint(3, 97, (n, length), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def logits(model, ids, **settings):
    return model(ids, use_cache=False, **settings).logits


@pytest.mark.parametrize("side", SIDES)
def test_threshold_zero_and_a_wide_window_are_exact(side):
    model, ids = tiny_model(), text(2)
    dense, spread = logits(model, ids), key_spread(model, text(3), side)
    for theta, window in ((0.0, 1), (2.0, 19)):
        with delta_attention(model, theta, spread, window) as watch:
            found = logits(model, ids)
        torch.testing.assert_close(found, dense, atol=1e-5, rtol=0)  # float32: another order, and turned twice
        assert watch.sparsity == 0
    with delta_attention(model, 2.0, spread, window=1):
        assert (logits(model, ids) - dense).abs().max() > 1e-3


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "opt"])
def test_every_family_is_exact_at_zero_and_not_beyond(family):
    model, ids = tiny_model(0, family), text(2)
    dense, spread = logits(model, ids), key_spread(model, text(3))
    with delta_attention(model, 0.0, spread, window=1):
        torch.testing.assert_close(logits(model, ids), dense, atol=1e-5, rtol=0)  # float32
    with delta_attention(model, 1.0, spread, window=1) as watch:
        assert not torch.allclose(logits(model, ids), dense, atol=1e-4)
    assert watch.zeros > 0.3


def keys_by_hand(model, ids):
    """The keys of the first block before RoPE, (H, T, D)."""
    block = blocks(model)[0]
    x = block.input_layernorm(model.model.embed_tokens(ids))
    return block.self_attn.k_proj(x)[0].unflatten(-1, (2, 8)).transpose(0, 1)


@torch.no_grad()
def test_the_spread_is_that_of_each_channel():
    model, ids = tiny_model(), text(1, 40)
    before = keys_by_hand(model, ids)
    spread = key_spread(model, ids, "before")
    torch.testing.assert_close(spread.deviation[0], before.std(dim=1, correction=0), atol=1e-5, rtol=0)  # turned back
    after = turned(before[None], torch.arange(40)[None], rotary_frequencies(model))[0]
    torch.testing.assert_close(key_spread(model, ids).deviation[0], after.std(dim=1, correction=0), atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("side", SIDES)
def test_one_block_by_hand(side):
    """The first block's attention, from its own matrices and the sums over deltas."""
    model, ids, window = tiny_model(), text(), 4
    spread, block, at = key_spread(model, text(3), side), blocks(model)[0], torch.arange(19)[None]
    frequencies = rotary_frequencies(model)

    def turn(vectors):
        return turned(vectors[None], at, frequencies)[0]

    keys, x = keys_by_hand(model, ids), block.input_layernorm(model.model.embed_tokens(ids))
    query = turn(block.self_attn.q_proj(x)[0].unflatten(-1, (6, 8)).transpose(0, 1)) / 8**0.5
    values = block.self_attn.v_proj(x)[0].unflatten(-1, (2, 8)).transpose(0, 1)
    own = turn(keys) if side == "after" else keys
    code = delta_code(own, 0.5 * spread.deviation[0])
    if side == "after":
        every = DeltaCode(*(part.repeat_interleave(3, dim=0) for part in (code.keys, code.sent)))
        far = summed_logits(query, every)
    else:
        far = query @ turn(code.keys).repeat_interleave(3, dim=0).mT
    near = query @ turn(keys).repeat_interleave(3, dim=0).mT
    distance = at[0][:, None] - at[0]
    scores = torch.where(distance < window, near, far).masked_fill(distance < 0, -torch.inf)
    read = (scores.softmax(-1) @ values.repeat_interleave(3, dim=0)).transpose(0, 1).flatten(1)
    expected, found = block.self_attn.o_proj(read), []
    handle = block.self_attn.register_forward_hook(lambda _, args, out: found.append(out[0]))
    with delta_attention(model, 0.5, spread, window):
        logits(model, ids)
    handle.remove()
    torch.testing.assert_close(found[0][0], expected, atol=1e-5, rtol=0)  # float32, other order


@pytest.mark.parametrize("side", SIDES)
@torch.no_grad()
def test_decoding_step_by_step_is_reading_at_once(side):
    model, ids = tiny_model(), text(2, 30)
    spread = key_spread(model, text(3), side)
    with delta_attention(model, 1.0, spread, window=3, sinks=2) as at_once:
        expected = logits(model, ids)
    with delta_attention(model, 1.0, spread, window=3, sinks=2) as by_step:
        past, found = None, []
        for piece in (ids[:, :7], *ids[:, 7:].split(1, dim=1)):
            out = model(piece, past_key_values=past, use_cache=True)
            past = out.past_key_values
            found.append(out.logits)
    torch.testing.assert_close(torch.cat(found, dim=1), expected, atol=1e-5, rtol=0)  # float32, other shapes
    assert (by_step.n_done, by_step.n_causal) == (at_once.n_done, at_once.n_causal)
    assert by_step.zeros == at_once.zeros > 0.1


def test_it_works_with_generate_and_forgets_the_text_before():
    model, ids = tiny_model(), text(1, 12)
    settings = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 2, "eos_token_id": None}
    spread = key_spread(model, text(3))
    with delta_attention(model, 1.0, spread, window=3):
        cached = model.generate(ids, **settings)
        model.generate(text(2, 8, seed=4), **settings)
        again = model.generate(ids, **settings)
        uncached = model.generate(ids, use_cache=False, **settings)
        model.generate(ids, num_beams=3, **settings)
    assert torch.equal(cached, again)
    assert torch.equal(cached, uncached)


@pytest.mark.parametrize("side", SIDES)
def test_a_padded_batch_reads_each_text_as_if_alone(side):
    model, spread = tiny_model(), key_spread(tiny_model(), text(3), side)
    short, long = text(1, 9, seed=1), text(1, 14, seed=2)
    batch = torch.cat([torch.cat([torch.full((1, 5), 2), short], dim=1), long])
    mask = torch.ones(2, 14, dtype=torch.long)
    mask[0, :5] = 0
    with delta_attention(model, 1.0, spread, window=3, sinks=2) as alone:
        one, two = logits(model, short), logits(model, long)
    with delta_attention(model, 1.0, spread, window=3, sinks=2) as together:
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        both = logits(model, batch, attention_mask=mask, position_ids=positions)
    torch.testing.assert_close(both[:1, 5:], one, atol=1e-5, rtol=0)  # float32
    torch.testing.assert_close(both[1:], two, atol=1e-5, rtol=0)
    assert (together.n_done, together.n_causal, together.zeros) == (alone.n_done, alone.n_causal, alone.zeros)


def test_codes_before_rope_save_no_multiplication():
    model, ids = tiny_model(), text()
    with delta_attention(model, 1.0, key_spread(model, text(3), "before"), window=2) as watch:
        logits(model, ids)
    assert watch.sparsity == 0
    assert watch.zeros > 0.3


def test_sparsity_is_what_was_sent_where_the_window_is_one_token():
    model, ids = tiny_model(), text()
    with delta_attention(model, 1.0, key_spread(model, text(3)), window=1) as watch:
        assert watch.sparsity != watch.sparsity  # NaN: nothing was seen
        logits(model, ids)
    assert 0 < watch.sparsity < watch.zeros  # the own token is exact, and the first is sent whole
    assert watch.n_causal == 2 * 6 * 8 * 19 * 20 // 2


def test_sinks_are_exact():
    model, ids = tiny_model(), text()
    with delta_attention(model, 50.0, key_spread(model, text(3)), window=1, sinks=19):
        torch.testing.assert_close(logits(model, ids), logits(tiny_model(), ids), atol=1e-5, rtol=0)  # float32


def test_the_model_is_restored_also_after_an_error():
    model, ids = tiny_model(), text()
    dense, before, spread = logits(model, ids), model.config._attn_implementation, key_spread(model, text(3))
    with pytest.raises(RuntimeError), delta_attention(model, 1.0, spread):
        raise RuntimeError
    assert model.config._attn_implementation == before
    assert torch.equal(logits(model, ids), dense)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"theta": -0.5}, "theta=-0.5"),
        ({"theta": float("nan")}, "theta=nan"),
        ({"theta": float("inf")}, "theta=inf"),
        ({"window": 0}, "window=0"),
        ({"sinks": -1}, "sinks=-1"),
        ({"spread": Spread(torch.ones(2, 3, 8))}, r"\(2, 3, 8\)"),
    ],
)
def test_bad_settings_are_refused(settings, said):
    model = tiny_model()
    with (
        pytest.raises(ValueError, match=said),
        delta_attention(model, **{"theta": 1.0, "spread": Spread(torch.ones(2, 2, 8))} | settings),
    ):
        pass
    assert model.config._attn_implementation == "sdpa"


def test_other_refusals():
    model, ids, spread = tiny_model(), text(), Spread(torch.ones(2, 2, 8))
    with pytest.raises(ValueError, match="RoPE"):
        key_spread(tiny_model(0, "opt"), ids, "before")
    with pytest.raises(ValueError, match="at least two tokens"):
        key_spread(model, ids[:, :1])
    with delta_attention(model, 1.0, spread):
        with pytest.raises(ValueError, match="course_delta"), delta_attention(model, 1.0, spread):
            pass
        with pytest.raises(ValueError, match="on the left"):
            logits(model, ids, attention_mask=torch.tensor([[1] * 18 + [0]]))
        blocks(model)[0].self_attn.attention_dropout = 0.1
        with pytest.raises(ValueError, match="dropout"):
            model.train()(ids)
    sliding = tiny_model(0, "mistral")
    sliding.config.sliding_window = 8
    with pytest.raises(ValueError, match="windows of their own"), delta_attention(sliding, 1.0, spread):
        pass
    with windowed(tiny_model()), pytest.raises(ValueError, match="side 'behind'"):
        key_spread(tiny_model(), ids, "behind")
