"""Each score against numbers worked by hand, a loop, or the gradient that it stands for."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from course_lib.models import tiny_model, weight_of
from course_lib.pruning.structured.activations import Norms, _head_norms
from course_lib.pruning.structured.scorer import Evidence, by_group, group_sums
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.llm_pruner import LLMPruner
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.scorers.output_energy import OutputEnergy
from course_lib.pruning.structured.scorers.perplexity_drop import PerplexityDrop
from course_lib.pruning.structured.scorers.weight_norm import WeightNorm

WINDOWS = torch.randint(0, 97, (3, 12), generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def evidence():
    model, generator = tiny_model(), torch.Generator().manual_seed(1)
    for parameter in model.parameters():  # larger than at initialisation, so that blocks turn what they read
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return Evidence(model, WINDOWS, progress=False)


def test_four_ways_to_aggregate_by_hand():
    norms = Norms()
    # One feature, two windows of two tokens: sizes 3 and 4, then 0 and 12.
    norms.add(torch.tensor([[[3.0], [4.0]]]))
    norms.add(torch.tensor([[[0.0], [12.0]]]))
    assert norms.of("mean", "mean").item() == pytest.approx((3.5 + 6) / 2)
    assert norms.of("l2", "mean").item() == pytest.approx(math.sqrt(3.5**2 + 6**2))
    assert norms.of("mean", "l2").item() == pytest.approx((5 + 12) / 2)
    assert norms.of("l2", "l2").item() == pytest.approx(13)


def test_half_precision_is_summed_in_float32():
    # 300² is more than float16 holds, and so is the sum of 200 sizes of 400.
    norms = Norms()
    norms.add(torch.full((1, 200, 1), 300.0, dtype=torch.float16))
    norms.add(torch.full((1, 200, 1), 400.0, dtype=torch.float16))
    assert norms.of("l2", "mean").item() == pytest.approx(500)
    assert norms.of("l2", "l2").item() == pytest.approx(500 * math.sqrt(200))
    assert norms.of("mean", "mean").item() == pytest.approx(350)


def test_the_size_of_a_head_in_half_precision():
    norms = Norms()
    # Two heads of two entries: 60,000 is in float16's range and √(2 · 60,000²) = 84,853 is not.
    _head_norms(norms, 2)(None, (torch.tensor([[[60_000.0, 60_000.0, 3.0, 4.0]]], dtype=torch.float16),))
    assert norms.of().tolist() == pytest.approx([60_000 * math.sqrt(2), 5.0], rel=1e-3)  # 60,000 is rounded to 32


def test_the_numbers_of_model_optimizer():
    """Its L2NormHook on three draws of (sequence 2, batch 3, 6 features), sequence first as in Megatron."""
    torch.manual_seed(42)
    nn.Linear(6, 4, bias=False)  # draws from the generator before the activations do
    norms = Norms()
    for _ in range(3):
        norms.add(torch.randn(2, 3, 6).transpose(0, 1).abs())
    expected = torch.tensor([3.2030, 2.5018, 2.5272, 1.9222, 2.6204, 2.2623])  # printed with four decimals
    torch.testing.assert_close(norms.of("l2", "mean"), expected, atol=1e-4, rtol=0)


def recorded(model, path, when="in"):
    """What a module reads or gives, window by window."""
    seen, module = [], model.get_submodule(path)
    if when == "in":
        handle = module.register_forward_pre_hook(lambda _, args: seen.append(args[0][0].detach()))
    else:
        handle = module.register_forward_hook(lambda _, __, out: seen.append(out[0].detach()))
    with torch.no_grad():
        for ids in WINDOWS:
            model(ids[None], use_cache=False)
    handle.remove()
    return torch.stack(seen)  # (windows, tokens, features)


def test_minitron_against_a_loop(evidence):
    scores, model = Minitron().score(evidence), evidence.model
    hidden = recorded(model, "model.layers.1.mlp.down_proj").abs()
    for neuron in (0, 41, 99):
        means = [hidden[n, :, neuron].sum().item() / 12 for n in range(3)]
        assert scores.neurons[1, neuron].item() == pytest.approx(math.sqrt(sum(m * m for m in means)), rel=1e-5)
    heads = recorded(model, "model.layers.0.self_attn.o_proj")
    for head in (0, 5):
        sizes = heads[:, :, 8 * head : 8 * head + 8].square().sum(2).sqrt()
        assert scores.heads[0, head].item() == pytest.approx(sizes.mean(1).square().sum().sqrt().item(), rel=1e-5)
    torch.testing.assert_close(scores.groups, torch.stack([scores.heads[:, :3].sum(1), scores.heads[:, 3:].sum(1)], 1))
    norms = [f"model.layers.{i}.{name}" for i in (0, 1) for name in ("input_layernorm", "post_attention_layernorm")]
    width = sum(recorded(model, path, "out").abs().mean(1).square().sum(0).sqrt() for path in [*norms, "model.norm"])
    torch.testing.assert_close(scores.width, width, rtol=1e-5, atol=1e-6)


def test_block_influence_against_a_loop(evidence):
    model, expected = evidence.model, []
    for index in (0, 1):
        before = recorded(model, f"model.layers.{index}.input_layernorm")
        after = recorded(model, "model.layers.1.input_layernorm" if index == 0 else "model.norm")
        cosines = [
            (x @ y / (x.norm() * y.norm())).item()
            for x, y in zip(before.flatten(0, 1), after.flatten(0, 1), strict=True)
        ]
        expected.append(1 - sum(cosines) / len(cosines))
    torch.testing.assert_close(BlockInfluence().score(evidence).blocks, torch.tensor(expected), rtol=1e-4, atol=1e-6)


def test_perplexity_drop_against_a_model_without_the_block(evidence):
    scores = PerplexityDrop().score(evidence).blocks
    model = evidence.model
    for index in (0, 1):
        rest = nn.ModuleList([block for i, block in enumerate(model.model.layers) if i != index])
        whole, model.model.layers = model.model.layers, rest
        model.config.num_hidden_layers = 1
        with torch.no_grad():
            losses = [cross_entropy(model(ids[None], use_cache=False).logits[0, :-1], ids[1:]) for ids in WINDOWS]
        model.model.layers, model.config.num_hidden_layers = whole, 2
        assert scores[index].item() == pytest.approx(sum(losses).item() / 3, rel=1e-5)


def test_output_energy_is_what_a_neuron_writes(evidence):
    scores, model = OutputEnergy().score(evidence), evidence.model
    hidden, down = recorded(model, "model.layers.0.mlp.down_proj"), model.model.layers[0].mlp.down_proj.weight
    for neuron in (0, 57):
        written = torch.outer(hidden[..., neuron].flatten(), down[:, neuron])
        assert scores.neurons[0, neuron].item() == pytest.approx(written.norm().item(), rel=1e-5)


def test_weight_norm_by_hand(evidence):
    scores, block = WeightNorm(p=1).score(evidence), evidence.model.model.layers[0]
    mlp, attention = block.mlp, block.self_attn
    neuron = (
        mlp.gate_proj.weight[7].abs().sum() + mlp.up_proj.weight[7].abs().sum() + mlp.down_proj.weight[:, 7].abs().sum()
    )
    assert scores.neurons[0, 7].item() == pytest.approx(neuron.item(), rel=1e-5)
    head = attention.q_proj.weight[8:16].abs().sum() + attention.o_proj.weight[:, 8:16].abs().sum()
    assert scores.heads[0, 1].item() == pytest.approx(head.item(), rel=1e-5)
    group = attention.k_proj.weight[8:].abs().sum() + attention.v_proj.weight[8:].abs().sum()
    group += attention.q_proj.weight[24:].abs().sum() + attention.o_proj.weight[:, 24:].abs().sum()
    assert scores.groups[0, 1].item() == pytest.approx(group.item(), rel=1e-5)


def test_vectorize_is_the_gradient_of_a_mask(evidence):
    """A factor m_j = 1 on what a neuron or head gives: ∂L/∂m = Σ w g over its column; also over a neuron's up row."""
    model = evidence.model
    of_matrices = by_group(evidence, lambda layer: weight_of(layer.module) * evidence.gradients[layer.name].mean)
    gate, up, down = of_matrices["neurons"].unbind(1)
    torch.testing.assert_close(up, down, atol=1e-6, rtol=1e-4)
    assert not torch.allclose(gate, down, atol=1e-6, rtol=0.1)  # SiLU is not linear: a gate row is no mask
    masks = {"neurons": torch.ones(2, 100, requires_grad=True), "heads": torch.ones(2, 6, requires_grad=True)}
    handles = []
    for index, block in enumerate(model.model.layers):
        neurons, heads = masks["neurons"][index], masks["heads"][index].repeat_interleave(8)
        handles.append(block.mlp.down_proj.register_forward_pre_hook(lambda _, args, m=neurons: (args[0] * m,)))
        handles.append(block.self_attn.o_proj.register_forward_pre_hook(lambda _, args, m=heads: (args[0] * m,)))
    loss = sum(cross_entropy(model(ids[None], use_cache=False).logits[0, :-1], ids[1:]) for ids in WINDOWS) / 3
    gradients = dict(zip(masks, torch.autograd.grad(loss, list(masks.values())), strict=True))
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(down, gradients["neurons"], atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(of_matrices["heads"][:, 1], gradients["heads"], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("element", ["param_first", "param_second", "param_mix", "vectorize"])
@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "prod"])
def test_llm_pruner_against_a_loop(evidence, element, reduction):
    scores = LLMPruner(element, reduction).score(evidence)
    mlp = evidence.model.model.layers[1].mlp
    for neuron in (3, 98):
        numbers = []
        for name, place in (("gate_proj", (neuron,)), ("up_proj", (neuron,)), ("down_proj", (slice(None), neuron))):
            gradients = evidence.gradients[f"blocks.1.mlp.{name}"]
            w, g, f = (
                m[place].tolist() for m in (getattr(mlp, name).weight.detach(), gradients.mean, gradients.fisher)
            )
            each = {
                "param_first": lambda w, g, f: abs(w * g),
                "param_second": lambda w, g, f: w * f * w,
                "param_mix": lambda w, g, f: abs(w * g - w * f * w / 2),
                "vectorize": lambda w, g, f: w * g,
            }[element]
            numbers.append(abs(sum(each(*one) for one in zip(w, g, f, strict=True))))
        expected = {"sum": sum, "mean": lambda n: sum(n) / 3, "max": max, "prod": math.prod}[reduction](numbers)
        assert scores.neurons[1, neuron].item() == pytest.approx(expected, rel=1e-3)


def test_groups_by_hand():
    assert group_sums(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), 2).tolist() == [[3.0, 7.0]]
