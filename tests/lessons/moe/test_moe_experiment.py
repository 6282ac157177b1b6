"""`course reproduce moe` and its companions: every step on tiny sizes, and what their rows say."""

import json
import math
from dataclasses import replace

import pytest
import thin_model
import torch

from course_lib.attention.small_models import byte_model
from course_lib.attention.small_models.byte_model import byte_windows
from course_lib.attention.small_models.training import Schedule
from course_lib.lessons.moe.experiments import (
    byte_mixture,
    moe,
    moe_classic,
    moe_gradients,
    moe_routers,
    moe_upcycling,
    runs,
)
from course_lib.measure.result_files import plain
from course_lib.moe.small_models.training import routing

TEXT = "one two three, two three one. " * 40
BLOCK = {"block", "load", "log_sum_exp", "largest_logit", "known", "by_chance"}
MODEL = {"model", "seed", "parameters", "met", "flops_a_byte", "loss", "standard_error", "losses", "blocks"}


@pytest.fixture(scope="module", autouse=True)
def texts():
    """Made-up documents in place of the packaged ones: 1200 bytes held out, 3600 to train on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_model, "DOCUMENTS", {"wikipedia": lambda split: [TEXT.upper()]})
        patch.setattr(runs, "training_texts", lambda: [TEXT] * 3)
        runs.text.cache_clear()
        yield
    runs.text.cache_clear()


def tables_of(plan):
    found = {}
    for step in plan:
        for name, rows in step.run(0).items():
            found.setdefault(name, []).extend(rows)
    return json.loads(json.dumps(plain(found)))


@pytest.fixture(scope="module")
def tables():
    return tables_of(moe.steps(moe.QUICK))


def test_every_model_is_measured_from_every_seed_on_the_same_windows(tables):
    assert set(tables) == {"held_out", "loads", "models"}
    labels = [(row["model"], row["seed"]) for row in tables["models"]]
    assert labels == [(name, seed) for seed in (0, 1) for name in moe.SIZES.kinds]
    for row in tables["models"]:
        assert set(row) == MODEL
        assert len(row["losses"]) == 3
        assert row["loss"] == pytest.approx(sum(row["losses"]) / 3, abs=1e-4)
        assert row["flops_a_byte"] == 6 * row["met"] <= 6 * row["parameters"]
        assert len(row["blocks"]) == (0 if row["model"] == "dense" else 2)
        assert all(set(block) == BLOCK for block in row["blocks"])


def test_a_byte_meets_as_many_weights_in_all_but_for_the_gates(tables):
    """Two blocks of eight experts, 16 wide: each gate is 128."""
    met = {row["model"]: row["met"] for row in tables["models"]}
    assert {name: n - met["dense"] for name, n in met.items() if name != "dense"} == dict.fromkeys(
        moe.SIZES.kinds[1:], 256
    )


def test_looks_and_loads_stand_where_they_were_asked_for(tables):
    for name in moe.SIZES.kinds:
        looks = [row["step"] for row in tables["held_out"] if (row["model"], row["seed"]) == (name, 1)]
        loads = [(row["step"], row["block"]) for row in tables["loads"] if (row["model"], row["seed"]) == (name, 1)]
        assert looks == [2, 4]
        assert loads == ([] if name == "dense" else [(1, 0), (1, 1), (4, 0), (4, 1)])
    for row in tables["loads"]:
        assert sum(row["load"]) == pytest.approx(1, abs=1e-3)
        assert max(row["load"]) <= (1 if row["model"].startswith("top-1") else 0.5)  # two choices differ
        assert row["log_sum_exp"] >= -row["largest_logit"] + math.log(8) - 1e-3
    seconds = [row["processor_seconds"] for row in tables["held_out"]]
    assert all(b >= a for a, b in zip(seconds[::2], seconds[1::2], strict=True))


def test_the_seed_of_the_experiment_is_added_and_a_run_repeats_itself(tables):
    again = runs.run(moe.QUICK, "top-2", 0, 1)["models"][0]
    (row,) = [row for row in tables["models"] if (row["model"], row["seed"]) == ("top-2", 1)]
    assert json.loads(json.dumps(again)) == row
    others = {tuple(row["losses"]) for row in tables["models"]}
    assert len(others) == len(tables["models"])


def test_other_routers_and_the_future():
    found = tables_of(moe_routers.steps(moe_routers.EXPERIMENT.quick))
    assert [row["model"] for row in found["models"]] == list(moe_routers.NAMES)
    experts, bytes_ = found["future"]
    assert (experts["read_by"], bytes_["read_by"]) == ("experts choose", "bytes choose")
    assert experts["moved"] > 0 == bytes_["moved"]
    assert experts["without_expert"] > 0 == bytes_["without_expert"]
    for row in found["loads"]:
        if row["model"] == "expert choice":
            assert row["load"] == [0.125] * 8


def test_the_future_by_hand():
    """One window: the byte that is exchanged is the last that is read, and none before it."""
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    assert moe_routers.exchanged(ids).tolist() == [[1, 2, 3, 251, 5]]
    sizes = replace(moe.QUICK, evaluation=2)
    kind = runs.KINDS["expert choice"]
    model = runs.made(sizes, kind, 0)
    with routing(model, kind.router) as seen:
        chosen = moe_routers.choices(model, seen, byte_windows(2))
    assert chosen.shape == (2, 127, 2, 8)
    assert chosen.sum(dim=1).eq(2 * 127 // 8).all()  # each expert takes its places in each window


def test_the_model_that_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(byte_mixture, "QUICK_RESULTS", tmp_path)
    found = tables_of(byte_mixture.steps(byte_mixture.QUICK))
    (row,) = found["models"]
    assert set(row) == MODEL | {"bytes", "read"}
    assert (row["read"], row["model"]) == (4 * 2 * 32, "top-2, balanced")
    assert row["bytes"] == (tmp_path / "byte_mixture" / "byte_mixture.safetensors").stat().st_size
    assert byte_mixture.folder(byte_mixture.SIZES).name == "weights"


def test_gradients_are_exact_where_theory_says_so():
    found = tables_of(moe_gradients.steps(moe_gradients.EXPERIMENT.quick))["estimators"]
    assert {row["loss"] for row in found} == {"quadratic", "cubic", "tanh network"}
    bias = {(row["loss"], row["estimator"]): row["bias"] for row in found}
    assert bias["quadratic", "SparseMixer v1, every draw"] < 1e-12 < bias["cubic", "SparseMixer v1, every draw"]
    assert bias["cubic", "SparseMixer v2, every draw"] < 1e-12 < bias["tanh network", "SparseMixer v2, every draw"]
    for row in found:
        assert (len(row["biases"]), len(row["deviations"]), row["tokens"]) == (5, 5, [1, 10])
        assert row["bias"] <= row["errors"][1] * 1.01
        assert row["errors"][1] <= row["errors"][0]


def test_mixtures_before_transformers():
    found = tables_of(moe_classic.steps(moe_classic.QUICK))
    assert len(found["vowels"]) == 6 * 2
    for row in found["vowels"]:
        alone = row["likeliest_accuracy"]
        assert (alone is None) == row["learner"].startswith("perceptron")
    assert [(row["depth"], len(row["error"])) for row in found["arm"]] == [(0, 1), (2, 3), (4, 3)]
    assert all(row["log_likelihood"] == sorted(row["log_likelihood"]) for row in found["arm"][1:])
    dense, free, balanced = found["recurrent"]
    assert (dense["load"], len(free["curve"]), len(balanced["losses"])) == (None, 2, 2)
    assert sum(balanced["load"]) == pytest.approx(1)


@pytest.fixture(scope="module")
def upcycled(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name, size in {"hidden_size": 36, "head_dim": 4, "intermediate_size": 96}.items():
            patch.setitem(thin_model.WIDTHS, name, size)
        folder = thin_model.write_thin_model(tmp_path_factory.mktemp("thin"), 2)
    quick = moe_upcycling.QUICK
    sizes = replace(quick, model=str(folder), bytes=replace(quick.bytes, schedule=Schedule(2, 2, 16, 1e-4, 1, 0.1)))
    return tables_of(moe_upcycling.steps(sizes))


@pytest.mark.real
def test_copies_compute_what_the_dense_model_computes_if_weights_sum_to_one(upcycled):
    dense, whole, two, one = upcycled["copies"]
    assert dense["router"] == "dense"
    assert dense["largest_difference"] == 0
    assert whole["losses"] == pytest.approx(dense["losses"], abs=1e-4)
    assert whole["largest_difference"] < 1e-4 < two["largest_difference"] < one["largest_difference"]
    assert dense["parameters"] < whole["parameters"] == one["parameters"]


@pytest.mark.real
def test_upcycled_models_of_bytes_begin_where_the_dense_one_does(upcycled):
    before = {row["model"]: row for row in upcycled["models"] if row["steps"] == 0}
    dense = before["dense, trained on"]
    for name in ("copies, top-2", "copies, top-1"):
        assert before[name]["losses"] == pytest.approx(dense["losses"], abs=2e-4)  # rounded to 1e-4
    assert before["half redrawn, top-2"]["loss"] != pytest.approx(dense["loss"], abs=0.01)
    after = {row["model"]: row["losses"] for row in upcycled["models"] if row["steps"] == 2}
    assert all(losses != before[name]["losses"] for name, losses in after.items())
    gate = {row["model"]: row["gate_gradient"] / row["expert_gradient"] for row in upcycled["gradients"]}
    assert gate["copies, top-2"] < 1e-5 < 1e-3 < gate["copies with noise, top-2"]
    assert gate["copies, top-1"] == 0  # a weight of one, whatever the gate says
