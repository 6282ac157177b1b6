"""The small language models: what they read, that a cache changes nothing, and that streaming is what it says."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from course_lib.attention.sink_softmax import sink_softmax
from course_lib.attention.small_models.model import VARIANTS, Shape, SinkLM, turn
from course_lib.attention.small_models.streaming import evicted, first_slots, recomputed_losses, streaming_losses
from course_lib.attention.small_models.training import losses


def made(variant, generator, n_layers=2):
    """A model of awkward sizes, its weights large enough that attention is not even."""
    model = SinkLM(Shape(37, 24, n_layers, 3, 20), variant, generator)
    for weight in model.parameters():
        if weight.ndim == 2:
            weight.data.mul_(10.0)
    return model.eval()


@pytest.fixture
def ids(generator):
    return torch.randint(37, (2, 23), generator=generator)


def test_rope_by_hand():
    """Head of two: slot 1 turns (1, 0) by one radian."""
    turned = turn(torch.tensor([[[[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]]]), 3)[0, 0]
    expected = [[1.0, 0.0], [0.540302, 0.841471], [-2 * 0.909297, 2 * -0.416147]]
    torch.testing.assert_close(turned, torch.tensor(expected))
    torch.testing.assert_close(turn(torch.tensor([[[[0.0, 2.0]]]]), 3)[0, 0], turned[2:])


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_attention_written_out_reads_the_same(variant, generator):
    attention = made(variant, generator).blocks[0].attention
    x = torch.randn(2, 7, 24, generator=generator)
    _, _, values = attention.projected(x, None)
    expected = attention.out((attention.weights(x) @ values).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x)[0], expected)


def test_variants_differ_in_the_sink_alone(generator, ids):
    models = {v: SinkLM(Shape(37, 24, 2, 3, 20), v, torch.Generator().manual_seed(0)) for v in VARIANTS}
    weights = {v: dict(model.named_parameters()) for v, model in models.items()}
    assert set(weights["learnable sink"]) - set(weights["vanilla"]) == {"sink"}
    for name, weight in weights["vanilla"].items():
        for variant in VARIANTS[1:]:
            torch.testing.assert_close(weights[variant][name], weight, rtol=0, atol=0)
    outputs = [model(ids)[0] for model in models.values()]
    assert all(output.shape == (2, 23, 37) for output in outputs)
    assert not torch.allclose(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2])


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_cache_that_never_evicts_changes_nothing(variant, generator, ids):
    model = made(variant, generator)
    torch.testing.assert_close(streaming_losses(model, ids, 0, 100), losses(model, ids).detach(), rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("sinks", [0, 1, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_streaming_one_layer_is_recomputing_the_kept_tokens(variant, sinks, generator, ids):
    """With one layer a key depends on its token alone, so that the kept tokens read as a text give the same."""
    model, window = made(variant, generator, n_layers=1), 6
    found, slots = streaming_losses(model, ids, sinks, window), list(range(-1 if variant == "learnable sink" else 0, 0))
    for i in range(ids.shape[1] - 1):
        slots.append(i)
        logits = read_afresh(model, ids, slots)
        torch.testing.assert_close(found[:, i], cross_entropy(logits, ids[:, i + 1], reduction="none"))
        if len(slots) > window:
            del slots[sinks]


def read_afresh(model, ids, slots):
    """Logits after the tokens in these slots; -1 is the learned sink, at the beginning or gone."""
    gone = model.sink is not None and slots[0] != -1
    if not gone:
        return model(ids[:, [i for i in slots if i >= 0]])[0][:, -1]
    x, (block,) = model.embedding(ids[:, slots]), model.blocks
    return (model.norm(block(x)[0]) @ model.embedding.weight.T)[:, -1]


@torch.no_grad()
@pytest.mark.parametrize("sinks", [0, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_streaming_is_a_mask_with_sinks_brought_nearer(variant, sinks, generator, ids):
    """All tokens at once through all layers: who reads whom is a mask, and where, each query's own slots."""
    model, window = made(variant, generator), 6
    x, n = model.embedded(ids[:, :-1]), ids.shape[1] - 1 + (model.sink is not None)
    for block in model.blocks:
        query, keys, values = block.attention.projected(block.norm(x), None)
        rows = [one_query(query[:, :, i], keys, values, i, sinks, window, block.attention.zero_sink) for i in range(n)]
        x = x + block.attention.out(torch.stack(rows, dim=2).transpose(1, 2).flatten(2))
        normed = block.mlp_norm(x)
        x = x + block.down(torch.nn.functional.silu(block.gate(normed)) * block.up(normed))
    logits = (model.norm(x) @ model.embedding.weight.T)[:, -(ids.shape[1] - 1) :]
    expected = cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    torch.testing.assert_close(streaming_losses(model, ids, sinks, window), expected, rtol=1e-4, atol=1e-4)


def one_query(query, keys, values, i, sinks, window, zero_sink):
    """What query i reads: the first `sinks` keys and those up to itself, `window` before it, at their slots."""
    read = [j for j in range(i + 1) if j < sinks or i - j <= window - sinks]
    kept = turn(keys[:, :, read], len(read))
    logits = (turn(query[:, :, None], len(read)) * kept).sum(dim=3) * query.shape[2] ** -0.5
    return (sink_softmax(logits, 0 if zero_sink else None)[:, :, None] @ values[:, :, read])[:, :, 0]


def test_what_leaves_by_hand():
    keys = torch.arange(6.0)[None, None, :, None]
    ((kept, values),) = evicted([(keys, 10 * keys)], 1, 4)
    assert kept.flatten().tolist() == [0, 3, 4, 5]
    assert values.flatten().tolist() == [0, 30, 40, 50]
    assert evicted([(keys, keys)], 1, 6)[0][0] is keys


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_window_read_afresh(variant, generator, ids):
    model = made(variant, generator)
    found = recomputed_losses(model, ids, 5, 7, 4)
    assert found.shape == (2, 4)
    torch.testing.assert_close(found[:, 1], losses(model, ids[:, 6:12])[:, -1])


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_first_slots_add_up(variant, generator, ids):
    model = made(variant, generator)
    shares = first_slots(model, ids, n_slots=ids.shape[1] + (model.sink is not None), from_query=5)
    assert shares.shape == (2, 3, ids.shape[1] + 1 + (model.sink is not None))
    torch.testing.assert_close(shares.sum(dim=2), torch.ones(2, 3))
    assert (shares[..., -1] > 0.01).all() == (variant == "zero sink")
    weights = model.blocks[0].attention.weights(model.blocks[0].norm(model.embedded(ids)))
    torch.testing.assert_close(shares[0, :, 1], weights[:, :, 5:, 1].mean(dim=(0, 2)))


def test_bad_input(generator, ids):
    with pytest.raises(ValueError, match="got variant 'sinky'; expected one of vanilla, zero sink, learnable sink"):
        SinkLM(Shape(), "sinky", generator)
    for sinks in (-1, 4):
        with pytest.raises(ValueError, match="expected fewer sinks than slots"):
            streaming_losses(made("vanilla", generator), ids, sinks, 4)
