"""Allocations: by hand, totals to the weight, one ranking against keep_across, and what they refuse."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.models import blocks, linears, tiny_model, weight_of
from course_lib.pruning.allocation.base import Uniform
from course_lib.pruning.allocation.exact_counts import n_steps
from course_lib.pruning.allocation.one_ranking import GlobalThreshold, OneRanking
from course_lib.pruning.allocation.owl import OWL, outlier_ratio, owl_sparsities
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.wanda import CumulativeRows, Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import Block, Columns, NofM, Rows, Unstructured, keep_across

WINDOWS = torch.randint(97, (5, 24), generator=torch.Generator().manual_seed(1))


def weights(model):
    return {f"blocks.{i}.{n}": weight_of(m) for i, b in enumerate(blocks(model)) for n, m in linears(b).items()}


def loud(model):
    """Ten times as loud a value of a few weights of the second block, so that its outliers stand out."""
    weight_of(model.model.layers[1].mlp.gate_proj)[:, 3] *= 40
    return model


def dense_scores(model):
    """Wanda's scores by plain hooks, the model run as a whole."""
    scores = {}
    for index, block in enumerate(blocks(model)):
        for name, module in linears(block).items():
            module.register_forward_pre_hook(
                lambda m, args, key=f"blocks.{index}.{name}": scores.update(
                    {key: weight_of(m).abs() * args[0].flatten(0, 1).square().sum(0).sqrt()}
                )
            )
    with torch.inference_mode():
        model(WINDOWS)
    return scores


def test_outlier_ratio_by_hand():
    """The mean over the block is 20/8 = 2.5; above 2 · 2.5 lie 6 and 7, above 1 · 2.5 also 3."""
    scores = {"a": torch.tensor([[1.0, 1.0], [1.0, 6.0]]), "b": torch.tensor([[0.0, 1.0, 7.0, 3.0]])}
    assert outlier_ratio(scores, 2.0) == 2 / 8
    assert outlier_ratio(scores, 1.0) == 3 / 8
    assert outlier_ratio(scores, 3.0) == 0.0


def test_owl_by_hand():
    """Blocks of 100, 100 and 200 weights with D = 0.1, 0.3, 0.1: the mean is 0.15, the furthest 0.15 away."""
    shapes = {"a": (10, 10), "b": (10, 10), "c": (10, 20)}
    got = owl_sparsities({"a": 0.1, "b": 0.3, "c": 0.1}, shapes, total=0.7, span=0.09)
    assert got == pytest.approx({"a": 0.73, "b": 0.61, "c": 0.73})
    assert sum(got[x] * r * c for x, (r, c) in shapes.items()) / 400 == pytest.approx(0.7)
    assert owl_sparsities(dict.fromkeys(shapes, 0.2), shapes, 0.7, 0.09) == dict.fromkeys(shapes, 0.7)


def test_owl_where_the_public_code_leaves_the_interval():
    """Nine equal blocks and an outlier: the public formula puts it at S − 2λ · 0.9, here it is at S − λ."""
    shapes = {str(i): (10, 10) for i in range(10)}
    outliers = {str(i): 0.0 for i in range(10)} | {"4": 1.0}
    got = owl_sparsities(outliers, shapes, total=0.5, span=0.08)
    assert got["4"] == pytest.approx(0.42)
    assert got["0"] == pytest.approx(0.5 + 0.08 / 9)


@pytest.mark.parametrize("sparsity", [0.5, 0.637])
def test_owl_prunes_the_block_with_more_outliers_less_and_the_total_is_exact(sparsity):
    model, scores = loud(tiny_model(3)), dense_scores(loud(tiny_model(3)))
    ratio = [outlier_ratio({k: v for k, v in scores.items() if k.startswith(f"blocks.{i}.")}, 5.0) for i in (0, 1)]
    report = prune_model(model, Wanda(Unstructured(sparsity, per="layer")), WINDOWS, False, OWL())
    n_weights = sum(weight.numel() for weight in weights(model).values())
    assert (report.n_zero, report.n_weights) == (int(n_weights * sparsity), n_weights)
    assert report.total_sparsity == pytest.approx(sparsity, abs=1e-4)
    blockwise = [{v for k, v in report.sparsity.items() if k.startswith(f"blocks.{i}.")} for i in (0, 1)]
    more, fewer = (0, 1) if ratio[0] > ratio[1] else (1, 0)
    assert max(blockwise[more]) < sparsity < min(blockwise[fewer])
    for values in blockwise:  # one for all layers of a block, but for a weight here and there
        assert max(values) - min(values) < 1 / 700
        assert sparsity - 0.08 - 1e-3 < min(values) <= max(values) < sparsity + 0.08 + 1e-3


@pytest.mark.parametrize(
    "pattern",
    [
        Unstructured(0.5),
        Unstructured(0.5, per="row", size=3),
        Unstructured(0.5, per="column"),
        CumulativeRows(0.5),
        Rows(0.5),
        Columns(0.5),
        Block(4, 4, 0.5),
    ],
    ids=str,
)
def test_owl_meets_the_total_as_closely_as_the_pattern_allows(pattern):
    model = loud(tiny_model(3))
    report = prune_model(model, Wanda(pattern), WINDOWS, False, OWL())
    steps = [weight.numel() / n_steps(pattern, tuple(weight.shape)) for weight in weights(model).values()]
    ragged = 8 * len(steps) if pattern == Unstructured(0.5, per="row", size=3) else 0
    assert -ragged <= report.n_weights * 0.5 - report.n_zero < min(steps) + ragged
    assert len(set(report.sparsity.values())) > 1


def test_owl_per_row_prunes_rows_of_a_layer_alike():
    model = loud(tiny_model(3))
    prune_model(model, Wanda(Unstructured(0.5)), WINDOWS, False, OWL())
    for weight in weights(model).values():
        assert len(set((weight == 0).sum(dim=1).tolist())) == 1


def test_owl_uses_wandas_scores_whatever_prunes():
    """So magnitude, which reads no inputs itself, still gets the shares that the inputs ask for."""
    reports = [
        prune_model(loud(tiny_model(3)), kind(Unstructured(0.5, per="layer")), WINDOWS, False, OWL())
        for kind in (Wanda, Magnitude)
    ]
    assert reports[0].sparsity == reports[1].sparsity


@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.5, 0.9])
def test_one_ranking_of_magnitudes_is_keep_across(sparsity):
    model, dense = tiny_model(3), tiny_model(3)
    model.model.layers[0].mlp.up_proj.weight.data *= 3
    dense.model.layers[0].mlp.up_proj.weight.data *= 3
    report = prune_model(model, Magnitude(Unstructured(sparsity)), WINDOWS, False, OneRanking())
    keep = keep_across({name: weight.abs() for name, weight in weights(dense).items()}, sparsity)
    for name, weight in weights(model).items():
        assert torch.equal(weight, weights(dense)[name] * keep[name]), name
    if sparsity:
        assert report.sparsity["blocks.0.mlp.up_proj"] < sparsity < report.sparsity["blocks.1.mlp.up_proj"]


def test_one_ranking_of_wanda_has_the_counts_of_keep_across_on_the_dense_models_scores():
    model, dense = tiny_model(3), tiny_model(3)
    for each in (model, dense):  # a random model hardly speaks behind its first linears
        for block in blocks(each):
            block.self_attn.o_proj.weight.data *= 30
            block.mlp.down_proj.weight.data *= 300
    report = prune_model(model, Wanda(Unstructured(0.4)), WINDOWS, False, OneRanking())
    expected = keep_across(dense_scores(dense), 0.4)
    assert report.sparsity == pytest.approx({name: (~k).sum().item() / k.numel() for name, k in expected.items()})


@settings(max_examples=60, deadline=None)
@given(
    layers=st.lists(
        st.lists(st.floats(width=32, allow_nan=False, min_value=-3, max_value=3), min_size=1, max_size=12),
        min_size=1,
        max_size=5,
    ),
    levels=st.sampled_from([None, 1]),
    sparsity=st.floats(0, 0.99),
)
def test_two_looks_find_what_a_whole_ranking_finds(layers, levels, sparsity):
    scores = {str(i): torch.tensor([values]) for i, values in enumerate(layers)}
    if levels:  # many ties
        scores = {name: score.round() for name, score in scores.items()}
    threshold = GlobalThreshold(sparsity)
    for look in (threshold.look_coarsely, threshold.look_closely):
        for name, score in scores.items():
            look(name, score)
    assert threshold.n_leaving() == {name: (~keep).sum().item() for name, keep in keep_across(scores, sparsity).items()}


def test_zero_is_one_number_whatever_its_sign():
    threshold, scores = GlobalThreshold(0.25), {"a": torch.tensor([[0.0, 1.0]]), "b": torch.tensor([[-0.0, 1.0]])}
    for look in (threshold.look_coarsely, threshold.look_closely):
        for name, score in scores.items():
            look(name, score)
    assert threshold.n_leaving() == {"a": 1, "b": 0}  # a tie, which leaves in order


def test_two_looks_at_large_layers_and_infinite_scores(generator):
    scores = {str(i): torch.randn(1100, 1000, generator=generator) * 10**i for i in range(2)}
    scores["1"][0, :3] = torch.tensor([torch.inf, -torch.inf, 1e-40])
    threshold = GlobalThreshold(0.6)
    for look in (threshold.look_coarsely, threshold.look_closely):
        for name, score in scores.items():
            look(name, score)
    assert threshold.n_leaving() == {name: (~keep).sum().item() for name, keep in keep_across(scores, 0.6).items()}


def test_uniform_is_the_default_and_leaves_the_pattern_alone():
    a, b = tiny_model(3), tiny_model(3)
    prune_model(a, Wanda(NofM(2, 4)), WINDOWS, False, Uniform())
    prune_model(b, Wanda(NofM(2, 4)), WINDOWS, False)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize(
    ("allocation", "pattern", "message"),
    [
        (OWL(), NofM(2, 4), r"got NofM\(n=2, m=4\) with OWL.*expected a pattern with a sparsity to vary"),
        (OneRanking(), NofM(2, 4), r"got NofM.*expected Unstructured\(...\)"),
        (OneRanking(), Rows(0.5), r"got Rows.*expected Unstructured\(...\)"),
        (
            OWL(),
            Unstructured(0.95),
            "got sparsity 0.95 and span 0.08; expected both ends .* Use another sparsity or another allocation",
        ),
        (OWL(), Unstructured(0.05), "got sparsity 0.05 and span 0.08"),
        (0.5, Unstructured(0.5), r"got allocation 0.5; expected an instance such as Uniform"),
    ],
)
def test_what_cannot_be_varied_is_refused_before_any_work(allocation, pattern, message):
    import course_lib.pruning.checks as guard

    with pytest.raises(ValueError, match=message):
        getattr(guard.check_method, "__wrapped__", guard.check_method)(Wanda(pattern), allocation)


def test_a_layer_without_anything_left_is_refused_and_nothing_changes():
    model, before = tiny_model(3), tiny_model(3)
    for each in (model, before):
        each.model.layers[1].mlp.up_proj.weight.data *= 1e-6
    with pytest.raises(ValueError, match="leaves nothing of blocks.1.mlp.up_proj.*Lower the sparsity, or use OWL"):
        prune_model(model, Magnitude(Unstructured(0.5)), WINDOWS, False, OneRanking())
    assert all(torch.equal(x, y) for x, y in zip(model.parameters(), before.parameters(), strict=True))


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="threshold=0.0, span=0.08: expected"):
        OWL(threshold=0.0)
