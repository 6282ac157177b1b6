"""Attention steering: by hand, against a naive loop, with caches and padding; what changes nothing; refusals."""

import math

import pytest
import torch

from course_lib.attention.steering.steer import all_heads, steered, steering
from course_lib.models import blocks, tiny_model

SAME = {"atol": 1e-5, "rtol": 0}  # float32, the same numbers in another order
SETTINGS = {"max_new_tokens": 7, "do_sample": False, "pad_token_id": 2, "eos_token_id": None}


def text(n=1, length=13, seed=0):
    return torch.randint(3, 97, (n, length), generator=torch.Generator().manual_seed(seed))


def columns(*places, length=13):
    return torch.isin(torch.arange(length), torch.tensor(places))[None]


@torch.no_grad()
def logits(model, ids, **settings):
    return model(ids, use_cache=False, **settings).logits


def test_by_hand():
    weights = torch.tensor([[0.5, 0.3, 0.2]])
    lowered = torch.tensor([[True, False, True]])
    found = steered(weights.log(), lowered, alpha=0.1).softmax(dim=-1)
    # .05, .3 and .02 are left, and their sum is .37.
    torch.testing.assert_close(found, torch.tensor([[0.05, 0.3, 0.02]]) / 0.37)


def attention_by_hand(model, ids, lowered, chosen, alpha):
    """The first block's output of attention, one query and one head at a time; lowered is a set of columns."""
    block, n = blocks(model)[0], ids.shape[1]
    x = block.input_layernorm(model.model.embed_tokens(ids))
    cos, sin = model.model.rotary_emb(x, torch.arange(n)[None])

    def heads(projection, turn):
        vectors = projection(x)[0].unflatten(-1, (-1, 8)).transpose(0, 1)
        low, high = vectors.chunk(2, dim=-1)
        return vectors * cos[0] + torch.cat([-high, low], dim=-1) * sin[0] if turn else vectors

    attention = block.self_attn
    query, keys, values = heads(attention.q_proj, True), heads(attention.k_proj, True), heads(attention.v_proj, False)
    read = torch.zeros(n, 6, 8)
    for h in range(6):
        for i in range(n):
            weights = [math.exp(float(query[h, i] @ keys[h // 3, j]) / math.sqrt(8)) for j in range(i + 1)]
            if h in chosen:
                weights = [w * alpha if j in lowered else w for j, w in enumerate(weights)]
            read[i, h] = sum(w / sum(weights) * values[h // 3, j] for j, w in enumerate(weights))
    return attention.o_proj(read.flatten(1))


@torch.no_grad()
@pytest.mark.parametrize("spare_first", [True, False])
def test_against_a_naive_loop(spare_first):
    model, ids = tiny_model(), text()
    lowered = set(range(1 if spare_first else 0, 13)) - {4, 5, 6}
    expected, found = attention_by_hand(model, ids, lowered, {1, 5}, 0.05), []
    handle = blocks(model)[0].self_attn.register_forward_hook(lambda _, args, out: found.append(out[0][0]))
    with steering(model, columns(4, 5, 6), [(0, 1), (0, 5)], 0.05, spare_first):
        logits(model, ids)
    handle.remove()
    torch.testing.assert_close(found[0], expected, **SAME)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "opt"])
def test_what_changes_nothing(family):
    model, ids = tiny_model(0, family), text()
    dense = logits(model, ids)
    with steering(model, columns(4, 5), alpha=1.0):
        torch.testing.assert_close(logits(model, ids), dense, **SAME)
    with steering(model, columns(*range(13)), spare_first=False):
        torch.testing.assert_close(logits(model, ids), dense, **SAME)
    with steering(model, columns(4, 5)):
        assert (logits(model, ids) - dense).abs().max() > 1e-3
    assert torch.equal(logits(model, ids), dense)


def test_only_chosen_layers_change():
    model, ids, read = tiny_model(), text(), {}
    for i, block in enumerate(blocks(model)):
        block.register_forward_hook(lambda _, args, out, i=i: read.setdefault(i, []).append(out))
    logits(model, ids)
    with steering(model, columns(4, 5), [(1, 0)]):
        logits(model, ids)
    torch.testing.assert_close(*read[0], **SAME)
    assert (read[1][0] - read[1][1]).abs().max() > 1e-4


@torch.no_grad()
def test_generated_tokens_are_not_lowered_and_the_cache_does_not_matter():
    model, ids, longer = tiny_model(), text(), text(1, 18)
    with steering(model, columns(4, 5, *range(13, 18), length=18)):
        at_once = logits(model, longer)
    with steering(model, columns(4, 5)):
        past, found = None, []
        for piece in (longer[:, :13], *longer[:, 13:].split(1, dim=1)):
            out = model(piece, past_key_values=past, use_cache=True)
            past = out.past_key_values
            found.append(out.logits)
        torch.testing.assert_close(torch.cat(found, dim=1), at_once, **SAME)
        cached = model.generate(ids, **SETTINGS)
        uncached = model.generate(ids, use_cache=False, **SETTINGS)
    assert torch.equal(cached, uncached)
    # The same mask with the columns behind the prompt lowered is another model.
    with steering(model, columns(4, 5, length=18)):
        assert not torch.allclose(logits(model, longer), at_once, atol=1e-4)


@torch.no_grad()
def test_a_padded_batch_is_steered_row_by_row():
    model, short, long = tiny_model(), text(1, 9, seed=1), text(1, 13, seed=2)
    with steering(model, columns(2, 3, length=9)):
        one, one_written = logits(model, short), model.generate(short, **SETTINGS)
    with steering(model, columns(7)):
        two = logits(model, long)
    batch = torch.cat([torch.cat([torch.full((1, 4), 2), short], dim=1), long])
    mask = torch.ones(2, 13, dtype=torch.long)
    mask[0, :4] = 0
    both = torch.cat([columns(6, 7), columns(7)])
    with steering(model, both):
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        found = logits(model, batch, attention_mask=mask, position_ids=positions)
        written = model.generate(batch, attention_mask=mask, **SETTINGS)
    torch.testing.assert_close(found[:1, 4:], one, **SAME)
    torch.testing.assert_close(found[1:], two, **SAME)
    assert torch.equal(written[:1, 4:], one_written)


def released_with_two_sections(logits, sections, alpha):
    """What the public code's "include" path does where several sections are given: it adds log α to each section, and
    then subtracts it from all columns."""
    for section in sections:
        logits = logits + math.log(alpha) * section
    return logits - math.log(alpha)


def released_span_by_span(logits, spans, alpha):
    """What a penalty for each highlighted span adds up to, as in its "exclude" path."""
    for span in spans:
        logits = logits + math.log(alpha) * ~span
    return logits


def test_the_public_codes_sections_are_reversed_below_one():
    """Its include path is right for α = 100, and for α = .01 it highlights all but the sections."""
    weights, section = torch.tensor([0.25, 0.25, 0.5]).log(), torch.tensor([True, False, False])
    ours = steered(weights[None], ~section[None], 0.01).softmax(-1)[0]
    assert ours[0] > 0.9
    assert released_with_two_sections(weights, [section], 100.0).softmax(-1)[0] > 0.9
    assert released_with_two_sections(weights, [section], 0.01).softmax(-1)[0] < 0.01


def test_penalties_span_by_span_lower_every_span():
    """Two spans and one column behind the prompt, which neither speaks of: there, weight goes to what was generated."""
    weights = torch.full((4,), 0.25).log()
    first, second = torch.tensor([True, False, False]), torch.tensor([False, True, False])
    prompt = released_span_by_span(weights[:3], [first, second], 0.01)
    assert torch.cat([prompt, weights[3:]]).softmax(-1)[3] > 0.9
    ours = steered(weights[None, :3], ~(first | second)[None], 0.01)[0]
    torch.testing.assert_close(torch.cat([ours, weights[3:]]).softmax(-1)[[0, 1, 3]], torch.full((3,), 1 / 3.01))


def test_the_model_is_restored_also_after_an_error():
    model, ids = tiny_model(), text()
    dense = logits(model, ids)
    with pytest.raises(RuntimeError), steering(model, columns(4)):
        raise RuntimeError
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(logits(model, ids), dense)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"alpha": 0.0}, "alpha=0.0"),
        ({"alpha": -1.0}, "alpha=-1.0"),
        ({"alpha": float("nan")}, "alpha=nan"),
        ({"heads": [(2, 0)]}, r"heads \[\(2, 0\)\]"),
        ({"heads": [(0, 0), (1, 6)]}, r"heads \[\(1, 6\)\]"),
        ({"heads": []}, "no heads"),
        ({"columns": torch.zeros(1, 13, dtype=torch.bool)}, r"nothing highlighted in prompts \[0\]"),
        ({"columns": torch.zeros(1, 0, dtype=torch.bool)}, r"\(1, 0\)"),
    ],
)
def test_bad_settings_are_refused(settings, said):
    model = tiny_model()
    with pytest.raises(ValueError, match=said), steering(model, **{"columns": columns(4)} | settings):
        pass
    assert model.config._attn_implementation == "sdpa"


def test_other_prompts_are_refused():
    model, ids = tiny_model(), text()
    with steering(model, columns(4)):
        with pytest.raises(ValueError, match="got 3 sequences and the columns of 1"):
            model.generate(ids, num_beams=3, **SETTINGS)
        with pytest.raises(ValueError, match="got 9 tokens and columns for a prompt of 13"):
            logits(model, ids[:, :9])
        logits(model, ids)
        logits(model, text(1, 14))  # as generate does without a cache
        with pytest.raises(ValueError, match="got a text of 16 tokens and columns for a prompt of 13"):
            logits(model, text(1, 16))
        with pytest.raises(ValueError, match="course_steering"), steering(model, columns(4)):
            pass


def test_all_heads():
    assert all_heads(tiny_model()) == tuple((layer, head) for layer in (0, 1) for head in range(6))
