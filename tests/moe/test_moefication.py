"""MoEfication: experts are a division of the neurons, all of them are the MLP, and clusters are what they say."""

import itertools

import pytest
import torch

from course_lib.models import architecture, blocks, tiny_model, weight_of
from course_lib.moe.dispatch import WAYS
from course_lib.moe.layer import MoE
from course_lib.moe.routers.moefied import MoEfied
from course_lib.moe.upcycling.moefication import (
    balanced_clusters,
    by_coactivation,
    by_weights,
    centres,
    divided,
    firing,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def an_mlp():
    """Of OPT, whose MLP is W_out relu(W_in x + b_in) + b_out; with biases that matter."""
    block = blocks(tiny_model(architecture="opt"))[1]
    first, last = (block.get_submodule(name) for name in architecture(block).mlp)
    with torch.no_grad():
        first.bias.normal_(generator=seeded())
    return first, last


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n_experts", [4, 5, 10])
def test_all_experts_together_are_the_mlp(way, n_experts):
    """Tolerance: float32, 100 products in another order."""
    first, last = an_mlp()
    with torch.no_grad():
        part = by_weights(weight_of(first), n_experts, seeded())
        experts = divided(weight_of(first), weight_of(last), first.bias, part)
        layer = MoE(experts, MoEfied(k=n_experts), centres(experts), way=way)
        x = torch.randn(9, 48, generator=seeded(1))
        expected = last(first(x).relu()) - last.bias
        torch.testing.assert_close(layer(x)[0], expected, rtol=1e-5, atol=1e-6)
        fewer = MoE(experts, MoEfied(k=2), centres(experts), way=way)(x)[0]
        assert not torch.allclose(fewer, expected, atol=1e-3)


def test_clusters_are_of_one_size_and_the_best_of_all_divisions():
    """Two pairs of near points and one pair far apart: all 15 divisions of six points into pairs are tried."""
    points = torch.tensor([[0.0, 0], [0.1, 0], [5, 5], [5, 5.1], [9, 0], [7, 0]])

    def spread(groups):
        return sum(float((points[list(g)] - points[list(g)].mean(0)).square().sum()) for g in groups)

    divisions = [
        ((a, b), (c, d), tuple(set(range(6)) - {a, b, c, d}))
        for a, b in itertools.combinations(range(6), 2)
        for c, d in itertools.combinations(sorted(set(range(6)) - {a, b}), 2)
    ]
    best = min(spread(division) for division in divisions)
    found = min(
        spread([(cluster == c).nonzero()[:, 0].tolist() for c in range(3)])
        for cluster in (balanced_clusters(points, 3, seeded(seed)) for seed in range(5))
    )
    assert found == pytest.approx(best)


def test_neurons_that_fire_together_lie_together():
    """Two kinds of tokens, each with its half of the neurons; input weights would not show it."""
    kind = torch.rand(200, 1, generator=seeded()) < 0.5
    half = torch.arange(12)[None] % 2 == 0
    hidden = torch.where(kind == half, 1.0, -1.0) + 0.1 * torch.randn(200, 12, generator=seeded(1))
    cluster = by_coactivation(hidden, 2, seeded(2))
    assert set(cluster[::2].tolist()) != set(cluster[1::2].tolist())
    assert len(cluster[::2].unique()) == len(cluster[1::2].unique()) == 1


def test_the_best_gate_knows_the_activations():
    first, last = an_mlp()
    with torch.no_grad():
        experts = divided(weight_of(first), weight_of(last), first.bias, torch.arange(100) // 25)
        x = torch.randn(7, 48, generator=seeded(1))
        expected = first(x).relu().unflatten(1, (4, 25)).sum(2)
        torch.testing.assert_close(firing(experts, x), expected, rtol=1e-5, atol=1e-5)
        keep = MoEfied(k=1).route(firing(experts, x)).keep
        assert torch.equal(keep.float().argmax(1), expected.argmax(1))


def test_a_division_that_is_none_is_refused():
    with pytest.raises(ValueError, match="got 10 neurons for 3 experts; expected a number that divides them evenly"):
        balanced_clusters(torch.randn(10, 4), 3)
    with pytest.raises(ValueError, match=r"got experts of \[3, 1\] neurons; expected experts of one size"):
        divided(torch.randn(4, 2), torch.randn(2, 4), None, torch.tensor([0, 0, 0, 1]))
