"""The experiment of lesson 03: its steps, small runs of them on the real model, its published rows, its results."""

import math
from dataclasses import replace

import pytest
import torch

from course_lib.lessons.common.results import load_published
from course_lib.lessons.sparsegpt.experiments import sparsegpt as experiment
from course_lib.lessons.sparsegpt.experiments import sparsegpt_choices as choices
from course_lib.lessons.sparsegpt.experiments import sparsegpt_layers as layers
from course_lib.lessons.sparsegpt.experiments import sparsegpt_rounded as rounded
from course_lib.lessons.sparsegpt.experiments import sparsegpt_seconds as seconds
from course_lib.lessons.sparsegpt.experiments import sparsegpt_successors as successors
from course_lib.lessons.sparsegpt.experiments.sparsegpt_layers import relative_error
from course_lib.lessons.wanda.experiments import wanda
from course_lib.models import Part, blocks, linears, part_only, tiny_model, weight_of
from course_lib.pruning.input_statistics import input_grams
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.quantization.grid import Quantization
from course_lib.sparsity.patterns import NofM, Unstructured, sparsity_of


def test_patterns_are_those_of_each_paper():
    assert experiment.pattern_of("sparsegpt", "50%") == Unstructured(0.5, per="layer")
    assert experiment.pattern_of("swaps + refit", "30%") == Unstructured(0.3, per="row")
    assert experiment.pattern_of("sparsegpt", "4:8") == NofM(4, 8)


def test_the_windows_are_those_of_the_wanda_experiment():
    assert experiment.Sizes().shared == wanda.Sizes()


def test_every_question_has_its_steps():
    of_all = (part.EXPERIMENT for part in (experiment, choices, layers, rounded, seconds, successors))
    names = [step.name for each in of_all for step in each.steps(each.sizes)]
    assert {
        "sparsegpt 2:4",
        "sparsegpt + refit 4:8",
        "successor: swaps + refit 2:4",
        "sweep: sparsegpt 70%",
        "block size 1",
        "block size 1536",
    } <= set(names)
    assert {"third: late 50%", "layer errors: 2:4", "rounded: 50% + 4 bits, group None", "seconds: wanda 2:4"} <= set(
        names
    )


def test_half_of_the_weights_at_four_bits_take_the_bytes_of_three():
    weight, grids = torch.empty(576, 1536), (Quantization(4), Quantization(3))
    half, three = (rounded.stored_bytes(weight, q, s) for q, s in zip(grids, (0.5, 0.0), strict=True))
    assert half == pytest.approx(three, rel=0.01)


def test_published_rows_are_marked_and_complete():
    published = load_published("sparsegpt")
    assert published["published"] is True
    rows = {(r["model"], r["method"], r["pattern"]): r["perplexity"] for r in published["tables"]["opt"]}
    assert len(rows) == 3 * 9 + 2 * 6 + 3  # AdaPrune for the three smallest
    assert rows["OPT-175B", "sparsegpt", "50%"] == 8.21
    assert rows["OPT-2.7B", "sparsegpt", "2:4"] == 17.18
    assert rows["OPT-1.3B", "adaprune", "50%"] == 32.52
    assert published["tables"]["llama"] == load_published("wanda")["tables"]["perplexity"]


def run(part, name, **sizes):
    """Runs a step of an experiment at the smallest sizes, on three blocks of the model, a quarter of their neurons."""
    shared = replace(wanda.QUICK, questions={"boolq": 2}, evaluation={"wikipedia": 2})
    quick = replace(part.EXPERIMENT.quick, **{"shared": shared, "n_blocks": 3} | sizes)
    steps = {step.name: step.run for step in part.EXPERIMENT.steps(quick)}
    with part_only(Part(3, 384)):
        return steps[name](0)


@pytest.mark.real
def test_the_main_table_has_rows_of_its_method():
    row = run(experiment, "sparsegpt 2:4")
    assert {each["method"] for table in row.values() for each in table} == {"sparsegpt"}
    assert set(row) == {"perplexity", "zero_shot", "zero_shot_mean"}


def test_spared_layers_stay_as_they_are():
    model, dense = tiny_model(), tiny_model()
    spared = choices.Spared(tuple(f"blocks.0.{name}" for name in linears(blocks(model)[0])))
    prune_model(model, SparseGPT(NofM(2, 4)), torch.arange(60).reshape(3, 20), progress=False, allocation=spared)
    for index, expected in ((0, 0.0), (1, 0.5)):
        for name, module in linears(blocks(model)[index]).items():
            assert sparsity_of(weight_of(module)) == expected
            same = torch.equal(weight_of(module), weight_of(linears(blocks(dense)[index])[name]))
            assert same is (index == 0)


@pytest.mark.real
def test_the_thirds_are_named_by_their_blocks():
    (late,) = run(choices, "third: late 50%")["thirds"]
    assert (late["first_block"], late["last_block"]) == (2, 2)


@pytest.mark.real
def test_rounding_joint_with_pruning_reports_what_it_stores():
    (joint,) = run(rounded, "rounded: 50% + 4 bits, group 64")["rounded"]
    assert 0.5 <= joint["sparsity"] < 0.6  # small weights may round to zero too
    assert 3 < joint["bits_a_weight"] < 3.6


@pytest.mark.real
def test_sparsegpt_lies_between_refit_and_wanda_on_every_layer_of_a_block():
    rows = run(layers, "layer errors: 2:4", n_blocks=1)["layer_errors"]
    assert [row["layer"].split(".")[1] for row in rows] == ["0"] * 7
    for row in rows:
        assert row["refit"] < row["sparsegpt"] < row["wanda"], row


def test_layer_errors_run_each_block_once_and_measure_its_inputs_in_the_dense_model(monkeypatch):
    model, ids, n = tiny_model(), torch.arange(60).reshape(3, 20), [0, 0]
    for index, block in enumerate(blocks(model)):
        # a layer inside: the block itself is called once more, to record its arguments, and computes nothing then
        block.self_attn.q_proj.register_forward_pre_hook(lambda *_, i=index: n.__setitem__(i, n[i] + 1))
    monkeypatch.setattr(experiment, "load", lambda sizes: (model, None))
    monkeypatch.setattr(layers, "windows", lambda *_, **__: ids)
    found = layers.layer_errors(layers.QUICK, "2:4", seed=0)["layer_errors"]
    assert n == [1, 1]

    layer = input_grams(tiny_model(), ids, 1)  # the second block: what is measured has gone through the first
    weight = weight_of(linears(blocks(model)[1])["mlp.down_proj"])
    (row,) = (row for row in found if row["layer"] == "blocks.1.mlp.down_proj")
    pruned = Wanda(NofM(2, 4)).prune(weight, layer["mlp.down_proj"])
    assert row["wanda"] == relative_error(weight, pruned, layer["mlp.down_proj"])


@pytest.mark.real
def test_seconds_by_phase_and_bytes():
    steps = {step.name: step.run for step in seconds.steps(seconds.EXPERIMENT.quick)}
    (time,) = steps["seconds: sparsegpt 50%"](0)["seconds"]
    assert all(time[phase] > 0 for phase in ("forward", "gram", "factorise", "solve"))
    assert time["bytes_grams"] >= 4 * 1536**2


@pytest.mark.real
def test_each_window_keeps_its_loss_so_that_rows_are_compared_in_pairs():
    (row,) = run(choices, "third: late 50%")["thirds"]
    assert len(row["losses"]) == wanda.QUICK.curve_evaluation
    assert math.exp(sum(row["losses"]) / len(row["losses"])) == pytest.approx(row["perplexity"], rel=1e-4)


def test_results_of_other_windows_are_not_joined(monkeypatch):
    def other(lesson, name="measured", load=experiment.load_measured):
        found = load(lesson, name)
        return found | {"sizes": {"shared": {}}} if name.endswith("rounded") else found

    monkeypatch.setattr(experiment, "load_measured", other)
    with pytest.raises(ValueError, match="sparsegpt_rounded and wanda with different sizes"):
        experiment.tables()


ORDER = ("refit", "sparsegpt", "wanda")


def test_the_committed_result_has_sparsegpt_between_refit_and_wanda_on_every_layer():
    tables = experiment.tables()
    for row in tables["layer_errors"]:
        assert [row[method] for method in ORDER] == sorted(row[method] for method in ORDER), row
    assert len(tables["layer_errors"]) == 2 * 210
    rows = {(r["method"], r["pattern"], r["corpus"]): r["perplexity"] for r in tables["perplexity"]}
    for pattern in experiment.PATTERNS:
        assert rows["dense", "dense", "wikipedia"] < rows["sparsegpt", pattern, "wikipedia"]
        assert rows["sparsegpt", pattern, "wikipedia"] < rows["wanda", pattern, "wikipedia"]
