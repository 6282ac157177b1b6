"""The open task of lesson 04: a rule becomes shares that meet the total, and ideas are compared by windows."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.lessons.common.ideas import against
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.wanda import plots, tables
from course_lib.lessons.wanda.experiments import layer_sparsity
from course_lib.models import layers_of, tiny_model, weight_of
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import Unstructured


def test_rules_are_scaled_by_hand():
    """100 and 300 weights, twice as much for the first: 2c·100 + c·300 = 160 at c = 0.32. With a cap: 95, then 65."""
    sizes = {"a": 100, "b": 300}
    assert layer_sparsity.scaled({"a": 2.0, "b": 1.0}, sizes, 0.4) == pytest.approx({"a": 0.64, "b": 0.32})
    assert layer_sparsity.scaled({"a": 9.0, "b": 1.0}, sizes, 0.4) == pytest.approx({"a": 0.95, "b": 65 / 300})
    assert layer_sparsity.scaled({"a": 0.0, "b": 5.0}, sizes, 0.4) == pytest.approx({"a": 0.0, "b": 160 / 300})
    with pytest.raises(ValueError, match="at most 24 % of the weights to be pruned; expected room for 40 %"):
        layer_sparsity.scaled({"a": 1.0, "b": 0.0}, sizes, 0.4)


@given(st.lists(st.tuples(st.floats(0.01, 100.0), st.integers(1, 1000)), min_size=1, max_size=8))
def test_the_total_is_met_and_no_layer_is_emptied(layers):
    wanted = {str(i): value for i, (value, _) in enumerate(layers)}
    sizes = {str(i): size for i, (_, size) in enumerate(layers)}
    found = layer_sparsity.scaled(wanted, sizes, 0.4)
    assert sum(found[name] * size for name, size in sizes.items()) == pytest.approx(0.4 * sum(sizes.values()), rel=1e-6)
    assert all(0 <= share <= layer_sparsity.MOST for share in found.values())


def test_a_rule_sees_every_matrix_and_its_depth_and_the_model_loses_what_it_should(generator):
    model = tiny_model()
    layers, seen = tuple(layers_of(model)), []

    def rule(part, depth):
        seen.append((part, depth))
        return 3.0 if part == "mlp.up_proj" else 1.0

    ids = torch.randint(3, 90, (2, 16), generator=generator)
    allocation = layer_sparsity.ByRule(rule, layers)
    prune_model(model, Wanda(Unstructured(0.4, per="layer")), ids, allocation=allocation, progress=False)
    n_blocks = len(layers) // 7
    assert [depth for _, depth in seen[::7]] == pytest.approx([i / max(n_blocks - 1, 1) for i in range(n_blocks)])
    assert {part for part, _ in seen} == {layer.part for layer in layers}
    lost = {layer.name: (weight_of(layer.module) == 0).double().mean().item() for layer in layers}
    assert lost["blocks.0.mlp.up_proj"] == pytest.approx(3 * lost["blocks.0.mlp.gate_proj"], abs=0.01)
    n_zero = sum(int((weight_of(layer.module) == 0).sum()) for layer in layers)
    assert n_zero == int(0.4 * sum(weight_of(layer.module).numel() for layer in layers))


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "half", None])
def test_a_rule_that_gives_no_number_is_told_where(value):
    layers = tuple(layers_of(tiny_model()))
    with pytest.raises(ValueError, match=r"for blocks.0.self_attn.q_proj; expected a number from 0"):
        layer_sparsity.ByRule(lambda part, depth: value, layers).sparsities(Wanda(Unstructured(0.4)), iter)


def test_ideas_are_compared_by_windows():
    """Windows 2 and 4 against 3 and 6: lower by 1 and 2, 1.5 ± (0.5·√2)/√2."""
    same, other = (
        layer_sparsity.Attempt(0.4, torch.tensor([3.0, 6.0])),
        layer_sparsity.Attempt(0.401, torch.tensor([2.0, 4.0])),
    )
    assert against(other.losses, same.losses) == pytest.approx((1.5, 0.5))
    frame = tables.layer_sparsity(other, {layer_sparsity.EQUAL: same}).frame.set_index("rule")
    assert frame.loc["yours"].tolist() == pytest.approx([0.401, math.exp(3), 1.5, 0.5])
    assert frame.loc[layer_sparsity.EQUAL].isna().tolist() == [False, False, True, True]


def test_the_committed_ideas_are_those_of_the_task():
    measured = load_measured("wanda", "layer_sparsity")
    ideas = layer_sparsity.stored(measured["tables"]["ideas"])
    assert tuple(ideas) == layer_sparsity.EXPERIMENT.sizes.ideas == tuple(measured["sizes"]["ideas"])
    for made in ideas.values():
        assert len(made.losses) == layer_sparsity.EVALUATION[0]
        assert made.sparsity == pytest.approx(layer_sparsity.TOTAL, abs=1e-3)


def test_the_picture_names_only_what_is_clearly_better():
    """Lower by 1.1 ± 0.06: clear (t = 4.3 for three windows); by 1.1 ± 1.2: not."""
    same = layer_sparsity.Attempt(0.4, torch.tensor([3.0, 6.0, 4.0]))
    clear, wide = (
        layer_sparsity.Attempt(0.4, same.losses - torch.tensor(lower)) for lower in ([1.0, 1.2, 1.1], [-1.0, 3.0, 1.3])
    )
    drawn = plots.layer_sparsity({"equal sparsity": same, "clear": clear, "wide": wide})
    assert drawn.axes[0].get_title(loc="left") == "Clearly better than equal sparsity: clear"
    drawn = plots.layer_sparsity({"equal sparsity": same, "wide": wide})
    assert drawn.axes[0].get_title(loc="left").endswith("none of 1 ideas")
