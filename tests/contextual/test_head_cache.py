"""Keys that were not made when their token came: against attention recomputed from all inputs with the same heads."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.contextual.attention.head_cache import HeadCache
from course_lib.contextual.attention.weights import AttentionWeights
from course_lib.models import blocks, tiny_model

SOME = [[1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0], [1, 0, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0]]


def rotated(vector, position, frequencies):
    """Pair (i, i + d/2) turned by position · frequency_i, one after the other."""
    half, turned = len(vector) // 2, vector.clone()
    for i, frequency in enumerate(frequencies.tolist()):
        cos, sin = torch.tensor(position * frequency).cos(), torch.tensor(position * frequency).sin()
        turned[i] = vector[i] * cos - vector[i + half] * sin
        turned[i + half] = vector[i + half] * cos + vector[i] * sin
    return turned


def recomputed(weights, x, keep):
    """Every key and value of every token anew, from its own x at its own position, for the last token's heads."""

    def project(part, index, token):
        bias = getattr(weights, f"{part}_bias")
        return getattr(weights, part)[index] @ token + (0 if bias is None else bias[index])

    last, total = len(x) - 1, torch.zeros(x.shape[1])
    for head in keep.nonzero()[:, 0].tolist():
        group = head // weights.group
        query = rotated(project("query", head, x[last]), last, weights.frequencies)
        keys = [rotated(project("key", group, token), t, weights.frequencies) for t, token in enumerate(x)]
        shares = torch.stack([query @ key / len(key) ** 0.5 for key in keys]).softmax(0)
        read = sum(share * project("value", group, token) for share, token in zip(shares, x, strict=True))
        total += weights.output[:, head] @ read
    return total if weights.output_bias is None else total + weights.output_bias


def weights_of(family="llama", block=1, scale=8.0):
    """With large queries, so that attention is not uniform and a wrong position would be seen."""
    model = tiny_model(0, family)
    with torch.no_grad():
        for name in ("q_proj", "k_proj"):
            blocks(model)[block].self_attn.get_submodule(name).weight.mul_(scale)
        for bias in (parameter for name, parameter in model.named_parameters() if name.endswith("bias")):
            bias.normal_(generator=torch.Generator().manual_seed(3))
    return AttentionWeights.of(model, block)


def inputs(n, seed=0):
    return torch.randn(n, 48, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_late_keys_are_those_that_would_have_been_made_in_time(family):
    weights, x = weights_of(family), inputs(len(SOME))
    cache = HeadCache(weights)
    for t, keep in enumerate(torch.tensor(SOME).bool()):
        found = cache.step(x[t], keep)
        # sums of 48 and of 5 products in float32, in another order
        torch.testing.assert_close(found, recomputed(weights, x[: t + 1], keep), atol=1e-5, rtol=1e-4)
    # group 0 (heads 0 to 2) at tokens 0, 3 and 4: late are 1 and 2; group 1 at tokens 2 and 3: late are 0 and 1.
    assert cache.n_late == 4
    assert cache.made.tolist() == [[True] * 5, [True] * 4 + [False]]
    assert list(cache.stored) == [4]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=6), st.integers(0, 10**6))
def test_so_it_is_for_any_choice(choices, seed):
    weights, x, cache = WEIGHTS, inputs(len(choices), seed), HeadCache(WEIGHTS)
    for t, keep in enumerate(torch.tensor(choices)):
        found = cache.step(x[t], keep)
        torch.testing.assert_close(found, recomputed(weights, x[: t + 1], keep), atol=1e-5, rtol=1e-4)
    lacks = (~cache.made).any(0).nonzero()[:, 0].tolist()
    assert sorted(cache.stored) == lacks, "an x is held as long as any group lacks its key"
    assert cache.n_bytes == 4 * (2 * 8 * int(cache.made.sum()) + 48 * len(lacks))


WEIGHTS = weights_of()


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2"])
def test_all_heads_are_the_models_own_attention(family):
    model = tiny_model(0, family)
    x, cache, keep = inputs(9), HeadCache(AttentionWeights.of(model, 1)), torch.ones(6, dtype=torch.bool)
    angles = model.model.rotary_emb(x[None], torch.arange(9)[None])
    causal = torch.full((9, 9), -torch.inf).triu(1)[None, None]
    with torch.no_grad():
        expected = blocks(model)[1].self_attn(x[None], position_embeddings=angles, attention_mask=causal)[0][0]
    found = torch.stack([cache.step(token, keep) for token in x])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)  # another order of float32 sums
    assert (cache.n_late, cache.stored) == (0, {})
    assert cache.n_bytes == 9 * 2 * 2 * 8 * 4


def test_nothing_is_computed_for_heads_that_nobody_chose():
    cache = HeadCache(WEIGHTS)
    for token in inputs(4):
        assert not cache.step(token, torch.zeros(6, dtype=torch.bool)).any()
    assert not cache.made.any()
    assert cache.n == len(cache.stored) == 4


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: HeadCache(WEIGHTS).step(torch.zeros(47), torch.ones(6).bool()), r"got x \(47,\) and keep \(6,\)"),
        (lambda: HeadCache(WEIGHTS).step(torch.zeros(48), torch.ones(2).bool()), r"expected \(48,\) and \(6,\): one"),
        (lambda: AttentionWeights.of(tiny_model(0, "opt"), 0), "has no rotary position embedding"),
        (lambda: AttentionWeights.of(tiny_model(0, "qwen3"), 0), "got attention with q_norm.weight, k_norm.weight"),
        (lambda: AttentionWeights.of(tiny_model(), 2), "got block 2; expected 0 to 1"),
    ],
)
def test_what_the_cache_cannot_hold_is_refused(made, message):
    with pytest.raises(ValueError, match=message):
        made()
