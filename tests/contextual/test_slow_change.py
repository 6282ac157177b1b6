"""How little a block changes, and passes that rely on it: against blocks called by hand."""

import pytest
import torch

from course_lib.contextual.altered import activated_by, halves_in_parallel, pairs_in_parallel, skipping
from course_lib.contextual.slow_change import slow_change
from course_lib.models import blocks, tiny_model


def text(n=2, length=11, seed=0):
    return torch.randint(3, 97, (n, length), generator=torch.Generator().manual_seed(seed))


def final_hidden(model, ids):
    """What the last block gives."""
    found = []
    handle = blocks(model)[-1].register_forward_hook(lambda _, args, out: found.append(out))
    with torch.no_grad():
        model(ids, use_cache=False)
    handle.remove()
    return found[0]


def by_hand(model, ids):
    """A tiny Llama's parts: embedding, and for each block attention and MLP as functions of the residual."""
    inner, n = model.model, ids.shape[1]
    embedding = inner.embed_tokens(ids)
    angles = inner.rotary_emb(embedding, torch.arange(n)[None])
    causal = torch.full((n, n), -torch.inf).triu(1)[None, None]

    def attention(i):
        block = inner.layers[i]
        return lambda x: block.self_attn(block.input_layernorm(x), position_embeddings=angles, attention_mask=causal)[0]

    def mlp(i):
        block = inner.layers[i]
        return lambda x: block.mlp(block.post_attention_layernorm(x))

    return embedding, [attention(i) for i in range(2)], [mlp(i) for i in range(2)]


@torch.no_grad()
def test_cosines_and_shares_are_those_of_the_residual():
    model, ids = tiny_model(), text()
    found = slow_change(model, ids)
    x, attention, mlp = by_hand(model, ids)
    for i in range(2):
        a = attention[i](x)
        m = mlp[i](x + a)
        for mine, expected in (
            (found.attention[i], a.norm(dim=-1) / x.norm(dim=-1)),
            (found.mlp[i], m.norm(dim=-1) / (x + a).norm(dim=-1)),
            (found.cosine[i], torch.cosine_similarity(x, x + a + m, dim=-1)),
        ):
            torch.testing.assert_close(mine, expected.reshape(-1), atol=1e-5, rtol=1e-4)  # other order of sums
        x = x + a + m


@pytest.mark.parametrize("family", ["opt", "gpt2", "qwen3"])
def test_it_is_measured_on_every_family(family):
    model = tiny_model(0, family)
    found = slow_change(model, text())
    assert found.cosine.shape == found.attention.shape == found.mlp.shape == (2, 22)
    assert not any(module._forward_hooks for module in model.modules())


@torch.no_grad()
def test_attention_and_mlp_beside_each_other():
    model, ids = tiny_model(), text()
    x, attention, mlp = by_hand(model, ids)
    for i in range(2):
        x = x + attention[i](x) + mlp[i](x)
    with halves_in_parallel(model):
        torch.testing.assert_close(final_hidden(model, ids), x, atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_lowest_blocks_may_stay_as_they_are():
    model, ids = tiny_model(), text()
    dense = final_hidden(model, ids)
    x, attention, mlp = by_hand(model, ids)
    y = x + attention[0](x)
    y = y + mlp[0](y)
    expected = y + attention[1](y) + mlp[1](y)
    with halves_in_parallel(model, first=1):
        torch.testing.assert_close(final_hidden(model, ids), expected, atol=1e-5, rtol=0)
    with pairs_in_parallel(model, first=1):
        assert torch.equal(final_hidden(model, ids), dense), "the last one has no partner"


@torch.no_grad()
def test_two_blocks_beside_each_other():
    model, ids = tiny_model(), text()
    x, attention, mlp = by_hand(model, ids)
    added = [attention[i](x) + mlp[i](x + attention[i](x)) for i in range(2)]
    with pairs_in_parallel(model):
        torch.testing.assert_close(final_hidden(model, ids), x + added[0] + added[1], atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_block_that_is_left_out_gives_what_it_reads():
    model, ids = tiny_model(), text()
    x, attention, mlp = by_hand(model, ids)
    with skipping(model, [1]):
        y = x + attention[0](x)
        torch.testing.assert_close(final_hidden(model, ids), y + mlp[0](y), atol=1e-5, rtol=0)
    with skipping(model, range(2)):
        assert torch.equal(final_hidden(model, ids), x)


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_another_activation_is_another_configuration(family):
    model, ids = tiny_model(0, family), text()
    other = tiny_model(0, family)
    for module in other.modules():
        for name in ("act_fn", "activation_fn"):
            if hasattr(module, name):
                setattr(module, name, torch.nn.GELU())
    with torch.no_grad(), activated_by(model, "gelu"):
        torch.testing.assert_close(model(ids).logits, other(ids).logits, atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", ["llama", "opt", "gpt2"])
@pytest.mark.parametrize("way", [halves_in_parallel, pairs_in_parallel, lambda m: skipping(m, [1])])
def test_all_families_run_and_are_as_before_afterwards(family, way):
    model, ids = tiny_model(0, family), text()
    with torch.no_grad():
        dense = model(ids).logits
        with way(model):
            assert not torch.equal(model(ids).logits, dense)
        assert torch.equal(model(ids).logits, dense)


def test_what_is_not_there_is_not_left_out():
    with (
        pytest.raises(ValueError, match=r"got blocks \[2, 5\] to leave out; expected"),
        skipping(tiny_model(), [1, 2, 5]),
    ):
        pass
    with pytest.raises(ValueError, match="got activation 'swoosh'"), activated_by(tiny_model(), "swoosh"):
        pass
