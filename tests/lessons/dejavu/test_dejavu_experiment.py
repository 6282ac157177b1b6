"""`course reproduce dejavu` and its companions: every step on a thin model and one of bytes, and what the rows say."""

import json
import math
from dataclasses import replace

import pytest
import thin_model
import torch
from table_cells import rows as cells

from course_lib.attention.small_models.byte_model import ByteModel
from course_lib.contextual.selectors.low_bit import LowBit
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.contextual.small_models.relu_model import relu_configuration, untrained_relu_model
from course_lib.lessons.dejavu.experiments import (
    dejavu,
    dejavu_ideas,
    dejavu_predictors,
    ground,
    oracle,
    predicted_heads,
    search_recall,
    trained,
)
from course_lib.lessons.dejavu.experiments.dejavu_ideas import Blind
from course_lib.lessons.dejavu.experiments.ground import GATED, QUICK, RELU
from course_lib.lessons.dejavu.experiments.search import LISTS, MLP, SCAN, TREE
from course_lib.lessons.dejavu.experiments.trained import COPIES, PREDICTOR, STATIC
from course_lib.measure.result_files import as_text, plain
from course_lib.models import layers_of, load_model, weight_of
from course_lib.quantization.grid import most_values

N_BLOCKS = 4


def bytes_model(n_held_out, n_training):
    """Untrained, of four blocks of 48 neurons, and made-up bytes."""
    model = untrained_relu_model(relu_configuration(16, N_BLOCKS, 2, 48), seed=0).eval()
    ids = torch.randint(256, (n_held_out + n_training, 128), generator=torch.Generator().manual_seed(0))
    return ByteModel(model, ids[:n_held_out], ids[n_held_out:])


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    """The sizes of a quick run, of a thin model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ground, "load_relu_model", bytes_model)
        folder = thin_model.write_thin_model(tmp_path_factory.mktemp("thin"), N_BLOCKS)
        ground.forget()
        yield replace(QUICK, model=str(folder))
    ground.forget()


def tables_of(plan):
    found = {}
    for step in plan:
        for name, rows in step.run(0).items():
            found.setdefault(name, []).extend(rows)
    return json.loads(json.dumps(plain(found)))


@pytest.fixture(scope="module")
def tables(sizes):
    return tables_of(dejavu.steps(sizes))


@pytest.fixture(scope="module")
def guesses(sizes, tmp_path_factory):
    """The tables of the experiment with predictors."""
    folder = tmp_path_factory.mktemp("predictors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trained, "QUICK_RESULTS", folder)
        found = tables_of(dejavu_predictors.steps(sizes))
    assert list(folder.iterdir()) == []  # nothing remains
    return found


def only(rows, **wanted):
    (row,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return row


@pytest.mark.real
def test_both_models_are_read_on_the_same_windows_by_all(tables, guesses, sizes):
    for found in (tables, guesses):
        assert as_text({"steps": {}, "tables": found})
    for row in tables["dense"] + tables["neurons"] + tables["rounded"] + guesses["predicted"]:
        assert len(row["losses"]) == sizes.tokens.evaluation
        assert row["perplexity"] == pytest.approx(math.exp(sum(row["losses"]) / 2), rel=1e-4)  # five digits are kept
    assert (
        {row["model"] for row in tables["neurons"]} == {row["model"] for row in guesses["predicted"]} == {GATED, RELU}
    )


@pytest.mark.real
def test_neurons_are_chosen_in_every_way(tables):
    choices = {(row["model"], row["chosen_by"]): row for row in tables["neurons"]}
    assert set(choices) == {(model, by) for model in (GATED, RELU) for by in oracle.CHOICES}
    assert {row["reached"] for row in choices.values()} == {0.5}
    assert len({tuple(row["losses"]) for row in choices.values()}) == len(choices)
    held = {by: choices[GATED, by]["bytes"] for by in (oracle.ALONE, oracle.STATIC, oracle.EMBEDDING)}
    assert held[oracle.ALONE] == held[oracle.STATIC] == 0 < held[oracle.EMBEDDING]


@pytest.mark.real
def test_with_all_neurons_nothing_changes(tables, sizes):
    whole = only(tables["dense"], model=GATED)["losses"]
    for by in (oracle.ORACLE, oracle.RECORDED):
        (row,) = oracle.keep_neurons(sizes, GATED, by, 1.0, 0)["neurons"]
        assert row["losses"] == pytest.approx(whole, abs=2e-5)  # five digits are kept
        assert (row["reached"], row["by_block"]) == (1.0, [1.0] * N_BLOCKS)


def test_windows_in_parts_are_windows_together():
    first = {"model": GATED, "density": 0.5, "bytes": 3, "by_block": [0.2, 0.4]} | ground.losses_row([1.0, 2.0], 10)
    other = first | {"bytes": 5, "by_block": [0.5, 0.4]} | ground.losses_row([3.0], 5)
    row = ground.joined([first, other])
    assert (row["losses"], row["n_tokens"], row["bytes"], row["by_block"]) == ([1.0, 2.0, 3.0], 15, 5, [0.3, 0.4])
    assert (row["reached"], row["perplexity"]) == (0.35, pytest.approx(math.exp(2)))
    assert row["standard_error"] == pytest.approx(math.exp(2) / math.sqrt(3))


def test_who_carries_the_energy_by_hand():
    importance = torch.tensor([[3.0, 1.0, 0.0, 0.0], [1.0, 10.0, 0.0, 0.0]])  # 9 of 10 is too little, 100 of 101 is not
    assert oracle.carrying(importance) == pytest.approx((2 / 4 + 1 / 4) / 2)


@pytest.mark.real
def test_active_neurons_of_both_models(tables):
    assert {tuple(row["nonzero"]) for row in tables["active"] if row["model"] == GATED} == {(1.0, 1.0)}
    relu = [row for row in tables["active"] if row["model"] == RELU]
    assert all(0 < share < 1 for row in relu for share in row["nonzero"])
    assert [row["block"] for row in relu] == [0, 1, 2, 3]
    assert all(row["never"] < 1 - max(row["nonzero"]) for row in relu)  # other bytes use others


def test_what_a_batch_needs_by_hand():
    importance = torch.tensor([[[5.0, 4.0, 1.0, 0.0]], [[0.0, 0.0, 2.0, 0.0]]])  # of two blocks, one token
    assert oracle.needed(importance, 0.5).tolist() == [[[True, True, False, False]], [[False, False, True, False]]]


@pytest.mark.real
def test_the_union_grows_with_the_batch(tables):
    one, two = (only(tables["batch"], model=GATED, batch=size) for size in (1, 2))
    assert one["shares"] == pytest.approx([0.2, 0.2], abs=0.001)  # 77 of 384 neurons
    assert [len(one["shares"]), len(two["shares"])] == [2, 1]
    assert 0.2 < two["shares"][0] <= 0.4


@pytest.mark.real
def test_rounding_changes_a_copy(tables, sizes):
    copy = oracle.on_grid(sizes, GATED, "3 bits in groups of 32", 0).model
    own = ground.subject(sizes, GATED, 0).model
    for layer, other in zip(layers_of(copy), layers_of(own), strict=True):
        few, many = (weight_of(each.module)[:, :96] for each in (layer, other))
        assert most_values(few, 32) <= 8 < most_values(many, 32)
    assert len({row["perplexity"] for row in tables["rounded"]}) == len(tables["rounded"]) == 4


@pytest.mark.real
def test_predictors_are_trained_and_used(guesses, sizes):
    labels = [(row["model"], row["lookahead"], row["block"]) for row in guesses["training"]]
    assert labels == [(model, n, b) for model in (GATED, RELU) for n in (0, 1) for b in range(N_BLOCKS)]
    gated = [row for row in guesses["training"] if row["model"] == GATED]
    assert {row["positive"] for row in gated} == {0.5}
    assert {row["tokens"] for row in gated} == {600}
    used = [row for row in guesses["predicted"] if row["chosen_by"] == PREDICTOR]
    assert [(row["model"], row["lookahead"]) for row in used] == [(GATED, 0), (GATED, 1), (RELU, 0), (RELU, 1)]
    assert used[0]["bytes"] == N_BLOCKS * 4 * (144 + 384) * 4
    assert used[0]["mlp_bytes"] == N_BLOCKS * 3 * 144 * 384 * 4
    assert {row["chosen_by"] for row in guesses["predicted"] if row["model"] == GATED} == {*COPIES, PREDICTOR}


@pytest.mark.real
def test_an_earlier_x_is_read_from_its_block(guesses):
    of = {
        (row["lookahead"], row["block"]): row
        for row in guesses["recall"]
        if (row["model"], row["chosen_by"]) == (GATED, PREDICTOR)
    }
    assert of[0, 0] | {"lookahead": 1} == of[1, 0]  # there is no earlier block: the same predictor
    assert of[0, 1]["recall"] != of[1, 1]["recall"]
    static = [row for row in guesses["recall"] if row["chosen_by"] == STATIC and row["model"] == GATED]
    assert [row["lookahead"] for row in static] == [0] * N_BLOCKS
    assert all(0.3 < row["recall"] < 1 and 0.3 < row["energy"] < 1 for row in static)
    assert all(
        row["recall"] == pytest.approx(row["precision"], abs=1e-4) for row in static
    )  # as many kept as asked for


@pytest.mark.real
def test_predictors_of_heads_are_trained_and_used(guesses):
    assert [(row["model"], row["block"]) for row in guesses["head_training"]] == [
        (model, block) for model in (GATED, RELU) for block in range(N_BLOCKS)
    ]
    rows = {(row["model"], row["chosen_by"]): row for row in guesses["heads"]}
    assert set(rows) == {(model, by) for model in (GATED, RELU) for by in predicted_heads.CHOICES}
    assert {(row["model"], row["kept"], row["of"]) for row in rows.values()} == {(GATED, 7, 9), (RELU, 1, 2)}
    assert len({tuple(row["losses"]) for row in rows.values() if row["model"] == GATED}) == 3
    assert {(row["model"], row["active"]) for row in guesses["head_recall"]} == {(GATED, 5), (RELU, 1)}
    gated = [row for row in guesses["head_recall"] if row["model"] == GATED]
    assert all(1 / 5 <= share <= 1 for row in gated for share in row["recall"])  # 5 and 5 of 9 share one at least


def test_the_best_neurons_of_each_token_are_marked():
    """Half of four neurons: 3 and 2 of the first token, 9 and 8 of the second."""
    marked = search_recall.best(torch.tensor([[3.0, 0.0, 1.0, 2.0], [-5.0, 9.0, 8.0, 7.0]]), 0.5)
    assert marked.tolist() == [[True, False, False, True], [False, True, True, False]]


@pytest.mark.real
def test_recall_of_a_search_is_measured_in_every_window(sizes):
    table = tables_of(search_recall.steps(sizes))["search_recall"]
    assert [row["way"] for row in table] == [SCAN, STATIC]
    for row in table:
        assert len(row["recall"]) == sizes.tokens.evaluation
        assert all(0 < share < 1 for share in row["recall"])


@pytest.mark.real
def test_exact_searches_find_the_same(guesses, sizes):
    by_way = {row["way"]: row for row in guesses["search"]}
    assert set(by_way) == {MLP, SCAN, LISTS, TREE}
    assert all(len(row["seconds"]) == sizes.rounds for row in by_way.values())
    assert by_way[SCAN]["recall"] == by_way[TREE]["recall"] > by_way[LISTS]["recall"] - 0.2
    assert by_way[MLP]["recall"] is None


@pytest.mark.real
def test_an_idea_is_fitted_blindfold_and_kept_to_its_bytes(sizes, monkeypatch):
    monkeypatch.setattr(dejavu_ideas, "CALIBRATION", (2, 12)), monkeypatch.setattr(dejavu_ideas, "HELD_OUT", (2, 12))
    loaded = load_model(sizes.model)
    with pytest.raises(ValueError, match="looks at h"):
        dejavu_ideas.attempt(Oracle(), loaded)
    with pytest.raises(ValueError, match="expected at most"):
        dejavu_ideas.attempt(LowBit(bits=4), loaded)
    with pytest.raises(ValueError, match="expected a NeuronSelector"):
        dejavu_ideas.attempt("static", loaded)
    monkeypatch.setattr(dejavu_ideas, "load_model", lambda: loaded)
    (step,) = dejavu_ideas.EXPERIMENT.steps(dejavu_ideas.EXPERIMENT.quick)
    (row,) = step.run(0)["ideas"]
    kept = {row["idea"]: dejavu_ideas.Attempt(row["bytes"], row["density"], torch.tensor(row["losses"]))}
    assert (row["bytes"], row["density"], len(row["losses"])) == (0, 0.2995, 2)  # 115 of 384 neurons
    mine = dejavu_ideas.Attempt(4_000_000, 0.3, kept["a static set"].losses - 1)
    name, *_, lower = cells(dejavu_ideas.table(kept, mine))[-1]
    assert (name, lower) == ("yours", "+1.000 ± 0.000")
    assert "beside" not in dejavu_ideas.compared(kept | {"mine": mine}).described()


@pytest.mark.real
def test_what_should_be_predicted_is_hidden(sizes):
    of = ground.subject(sizes, GATED, 0)
    copy = LowBit(bits=2).fit(of.model, of.calibration)
    shown, blind = (ground.selected_row(of, each, 0.5)["losses"] for each in (copy, Blind(inner=copy)))
    assert shown == blind
    with pytest.raises(ValueError, match="NaN"):
        ground.selected_row(of, Blind(inner=Oracle()), 0.5)


def test_no_step_has_two_names():
    for plan in (dejavu, dejavu_predictors, dejavu_ideas):
        for sizes in (plan.EXPERIMENT.sizes, plan.EXPERIMENT.quick):
            names = [step.name for step in plan.EXPERIMENT.steps(sizes)]
            assert len(names) == len(set(names))
