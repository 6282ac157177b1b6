"""The cache against naive loops that compute everything anew at every step."""

from copy import deepcopy

import pytest
import torch
from kv_naive import sharp_model

from course_lib.kv.cache import evicting
from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.kv.policies.tova import TOVA
from course_lib.kv.policies.window import Window
from course_lib.kv.rotation import Rotation
from course_lib.kv.slots import NewTokens, Slots
from course_lib.models import blocks, tiny_model

IDS = torch.randint(3, 97, (1, 24), generator=torch.Generator().manual_seed(1))


def one_by_one(model, cache, ids, offset=0):
    with torch.no_grad():
        steps = [
            model(ids[:, i : i + 1], position_ids=torch.tensor([[i + offset]]), past_key_values=cache, use_cache=True)
            for i in range(ids.shape[1])
        ]
    return torch.cat([step.logits for step in steps], dim=1)


def naive_h2o(weights, budget, recent, normalised=False, n_leave=1):
    """Kept tokens by step, from loops over one head group's attention: `weights(kept, i)` gives a row a query head.

    Zhang and others, Algorithm 1, for the cache of one key-value head; `n_leave` tokens at once.
    """
    kept, mass, born = [], {}, {}
    for i in range(IDS.shape[1]):
        kept.append(i)
        mass[i], born[i] = 0.0, i
        for row in weights(kept, i):
            for j, weight in zip(kept, row, strict=True):
                mass[j] += weight
        if len(kept) > budget:
            old = [j for j in kept if j <= i - recent]
            worth = {j: mass[j] / (i + 1 - born[j]) if normalised else mass[j] for j in old}
            for j in sorted(old, key=worth.get)[:n_leave]:
                kept.remove(j)
        yield i, sorted(kept)


class Recorder:
    """First-layer queries and keys, which no eviction changes: layer 0 reads embeddings."""

    def __init__(self, model):
        attention, norm = blocks(model)[0].self_attn, blocks(model)[0].input_layernorm
        hidden = norm(model.model.embed_tokens(IDS))
        cos, sin = model.model.rotary_emb(hidden, torch.arange(IDS.shape[1])[None])
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        query = attention.q_proj(hidden).view(1, -1, 6, 8).transpose(1, 2)
        key = attention.k_proj(hidden).view(1, -1, 2, 8).transpose(1, 2)
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        self.query, self.key = query[0].double(), key[0].double()

    def rows(self, head):
        """softmax rows of the three query heads that share this key-value head, over the kept tokens."""

        def weights(kept, i):
            return [
                torch.softmax(self.key[head, kept] @ self.query[3 * head + g, i] / 8**0.5, dim=0).tolist()
                for g in range(3)
            ]

        return weights


@pytest.mark.parametrize(("dropped", "n_leave"), [(0.0, 1), (0.5, 5)])
@pytest.mark.parametrize("normalised", [False, True])
@torch.no_grad()
def test_h2o_keeps_what_the_loop_keeps_at_every_step(normalised, dropped, n_leave):
    """One token too many leaves alone, or with the half of eight slots."""
    model = sharp_model()
    recorded = Recorder(model)
    expected = [dict(naive_h2o(recorded.rows(head), 8, 3, normalised, n_leave)) for head in range(2)]
    with evicting(model, H2O(budget=8, recent=3, normalised=normalised, dropped=dropped)) as cache:
        for i in range(IDS.shape[1]):
            model(IDS[:, i : i + 1], past_key_values=cache, use_cache=True)
            kept = cache.slots[0].position[0].sort(dim=1).values.tolist()
            assert kept == [expected[head][i] for head in range(2)]


def eager_attention(model):
    """The attention weights (1, 6, 24, 24) of each layer, as transformers computes them without a cache of ours."""
    model.set_attn_implementation("eager")
    weights = model(IDS, output_attentions=True).attentions
    model.set_attn_implementation("sdpa")
    return weights


@torch.no_grad()
def test_h2o_after_a_prompt_has_the_column_sums_of_full_attention():
    """In chunks of any size, to 1e-5 of eager's (float32 sums in another order)."""
    model = tiny_model()
    weights = eager_attention(model)
    for size in (2**21, 600):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("course_lib.kv.attend.CHUNK", size)
            with evicting(model, H2O(budget=1.0)) as cache:
                model(IDS, past_key_values=cache, use_cache=True)
        for slots, layer in zip(cache.slots, weights, strict=True):
            expected = layer.view(1, 2, 3, 24, 24).sum(dim=(2, 3))
            torch.testing.assert_close(slots.memory("mass"), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_padding_is_hidden_from_every_chunk_of_a_prompt(monkeypatch):
    """The column sums of a padded row, in small chunks, are those of the row alone, to 1e-5 as above."""
    model, mask = tiny_model(), torch.ones(2, 24, dtype=torch.long)
    mask[1, :8] = 0
    with evicting(model, H2O(budget=1.0)) as alone:
        model(IDS[:, 8:], past_key_values=alone, use_cache=True)
    monkeypatch.setattr("course_lib.kv.attend.CHUNK", 600)
    with evicting(model, H2O(budget=1.0)) as padded:
        model(IDS.expand(2, -1), attention_mask=mask, past_key_values=padded, use_cache=True)
    for one, both in zip(alone.slots, padded.slots, strict=True):
        torch.testing.assert_close(both.memory("mass")[1:, :, 8:], one.memory("mass"), rtol=0, atol=1e-5)


@torch.no_grad()
def test_tova_after_a_prompt_keeps_what_the_last_row_says():
    model = sharp_model()
    weights = eager_attention(model)
    with evicting(model, TOVA(budget=6)) as cache:
        model(IDS, past_key_values=cache, use_cache=True)
    for slots, layer in zip(cache.slots, weights, strict=True):
        row = layer[0, :, -1].mean(dim=0)
        row[-1] = 2  # the newest stays
        expected = row.topk(6).indices.sort().values.tolist()
        assert slots.position[0].sort(dim=1).values.tolist() == [expected, expected]


@pytest.mark.parametrize("sinks", [0, 2])
def test_rolling_positions_are_those_of_a_text_that_never_was_longer(sinks):
    """With one layer the cached keys depend on nothing before them: each step equals a fresh run over what is kept."""
    model = tiny_model()
    model.config.num_hidden_layers = 1
    del blocks(model)[1]
    with evicting(model, StreamingLLM(budget=7, sinks=sinks), "rolling") as cache:
        found = one_by_one(model, cache, IDS)
    for i in range(IDS.shape[1]):
        kept = list(range(i + 1)) if i < 8 else [*range(sinks), *range(i - 7 + sinks, i + 1)]
        with torch.no_grad():
            expected = model(IDS[:, kept]).logits[:, -1]  # places 0, 1, 2 … in the cache
        torch.testing.assert_close(found[:, i], expected, rtol=1e-4, atol=1e-5)


def test_a_plain_window_does_not_care_how_positions_are_counted():
    """RoPE knows distances alone, and in a window they are the same either way."""
    model, found = tiny_model(), []
    for positions in ("original", "rolling"):
        with evicting(model, Window(budget=6), positions) as cache:
            found.append(one_by_one(model, cache, IDS))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_far_beyond_the_trained_length_rolling_positions_are_as_good_as_at_the_start():
    model, found = tiny_model(), []
    for offset in (0, 20_000):
        with evicting(model, StreamingLLM(budget=7, sinks=2), "rolling") as cache:
            found.append(one_by_one(model, cache, IDS, offset))
    torch.testing.assert_close(*found, rtol=0, atol=2e-3)  # angles of 20,000 radians lose 1e-3 in float32
    with evicting(model, StreamingLLM(budget=7, sinks=2), "original") as cache:
        original = one_by_one(model, cache, IDS, 20_000)
    torch.testing.assert_close(original[:, :7], found[0][:, :7], rtol=0, atol=2e-3)  # nothing has left yet


def test_a_hand_made_head():
    """Two queries, two tokens: the first token collects 1 + 0.25, the second 0.75; with one slot the second leaves."""
    keys = torch.zeros(1, 1, 2, 2)
    slots = Slots.empty(keys).append_(keys, keys, NewTokens.of(torch.ones(1, 2, dtype=torch.bool)))
    policy = H2O(budget=1, recent=0)
    from course_lib.kv.policy import Observed

    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]]).view(1, 1, 1, 2, 2)
    slots = slots.remember_(policy.remember(slots, Observed(weights, torch.tensor([[0, 1]]), torch.tensor([1]))))
    assert slots.memory("mass").tolist() == [[[1.25, 0.75]]]
    assert policy.shrink(deepcopy(slots), 0).position.tolist() == [[[0]]]
    by_mean = H2O(budget=1, recent=0, normalised=True)
    assert by_mean.score(slots).tolist() == [[[0.625, 0.75]]]
    assert by_mean.shrink(slots, 0).position.tolist() == [[[1]]]


@pytest.mark.parametrize("by_layer", [(), (0.5, 1.5)])
def test_layers_that_hold_the_same_tokens_share_the_angles_of_a_step(by_layer, monkeypatch):
    """Window keys keep their distance from the newest, so that only the two sinks are turned; and only then anew."""
    model, turned, own = tiny_model(), [], Rotation._angles
    with evicting(model, StreamingLLM(budget=8, sinks=2, by_layer=by_layer), "rolling") as cache:
        one_by_one(model, cache, IDS[:, :15])
        monkeypatch.setattr(
            Rotation, "_angles", lambda self, by, dtype: turned.append(by.tolist()) or own(self, by, dtype)
        )
        one_by_one(model, cache, IDS[:, 15:16], 15)
        sizes = [slots.n for slots in cache.slots]
    expected = [[15 - n] * 4 for n in sizes]  # two heads of two sinks, behind 15 tokens of which n are left
    assert turned == (expected if by_layer else expected[:1])


def test_turning_keys_is_turning_each_by_itself(generator):
    """Of all keys of a head, in their text and in slots; afterwards they are what they were, to the last bit."""
    model = tiny_model()
    with evicting(model, H2O(budget=8, recent=3), "rolling") as cache:
        one_by_one(model, cache, IDS[:, :20])
        slots, rolling = cache.slots[0], cache.rolling
        new = torch.randn(1, 2, 1, 8, generator=generator)
        slots.append_(new, new, NewTokens.of(torch.ones(1, 1, dtype=torch.bool), n_seen=slots.n_seen))
        before, found = slots.keys.clone(), rolling.keys(slots.keys, slots)
        with rolling.turning_(slots.keys, slots):
            torch.testing.assert_close(slots.keys, found, rtol=0, atol=0)
        assert torch.equal(slots.keys, before)
    for head in range(2):
        position = slots.position[0, head].tolist()
        for i, at in enumerate(position):
            place = sum(other < at for other in position)
            by = torch.tensor((20 - at) - (len(position) - 1 - place))  # how much nearer it is in slots
            expected = rolling.turn(before[0, head, i], by)
            torch.testing.assert_close(found[0, head, i], expected, rtol=0, atol=1e-6)
