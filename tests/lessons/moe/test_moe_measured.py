"""Tables, verdicts and figures of what `course reproduce moe` writes, on what a quick one measures."""

import json

import pytest
from table_cells import rows as cells

from course_lib.attention.small_models import byte_model
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.moe import claims, pairs
from course_lib.lessons.moe.experiments import moe, runs
from course_lib.lessons.moe.figures import measured as plots
from course_lib.lessons.moe.tables import measured
from course_lib.measure.result_files import plain

TEXT = "one two three, two three one. " * 40


@pytest.fixture(scope="module")
def found():
    """Two seeds of five models, four steps each, on made-up documents."""
    tables = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_model, "DOCUMENTS", {"wikipedia": lambda split: [TEXT.upper()]})
        patch.setattr(runs, "training_texts", lambda: [TEXT] * 3)
        runs.text.cache_clear()
        for step in moe.steps(moe.QUICK):
            for name, rows in step.run(0).items():
                tables.setdefault(name, []).extend(rows)
    runs.text.cache_clear()
    return {"tables": json.loads(json.dumps(plain(tables)))}


def test_every_model_has_a_line_and_dense_ones_no_load(found):
    shown = cells(measured.ends(found))
    assert [row[0] for row in shown] == list(moe.SIZES.kinds)
    assert shown[0][-1] == "–"
    assert all(row[-1].endswith("%") for row in shown[1:])


def test_a_claim_is_about_all_seeds_and_windows(found):
    judged = claims.BALANCED_TOP_2.judge(found)
    assert list(judged.effects) == ["seed 0", "seed 1"]
    assert judged.n == "3"
    assert pairs.lower(found, "dense", "dense")["seed 0"].value == 0


def test_blocks_of_all_seeds_are_counted(found):
    assert pairs.collapsed_blocks(found, "top-2", 8) == "in 2, 2 of 2 blocks (2 seeds)"
    assert claims.COLLAPSE_TOP_2.judge(found).ours in measured.collapse(found, "top-2", 2)
    assert len(measured.specialisation(found, "top-2, balanced").frame) == 2


def test_loads_are_drawn_by_step(found):
    fig = plots.largest_loads(found, ("top-1", "top-1, balanced"))
    lines = fig.axes[0].lines
    assert [list(line.get_xdata()) for line in lines[:2]] == [[1, 4], [1, 4]]
    assert "top-1, balanced" in fig.axes[0].get_title(loc="left")


def test_gradients_of_gates_by_hand():
    rows = [
        {"model": "copies", "gate_gradient": 0.01, "expert_gradient": 0.2},
        {"model": "copies", "gate_gradient": 0.03, "expert_gradient": 0.2},
        {"model": "dead", "gate_gradient": 0.0, "expert_gradient": 0.2},
    ]
    assert cells(measured.first_gradients({"tables": {"gradients": rows}})) == [["copies", "10"], ["dead", "0"]]


def test_the_committed_copies_are_the_same_model_until_something_differs():
    committed = load_measured("moe", "experiments/moe_upcycling")
    dense, renormalised, *_ = committed["tables"]["copies"]
    assert renormalised["perplexity"] == pytest.approx(dense["perplexity"], rel=1e-6)
    assert renormalised["largest_difference"] < 1e-3  # sums in another order, of logits up to 40
    assert measured.trained_on(committed).count("Claim: four copies of each MLP") == 4
    assert len(measured.first_gradients(committed).frame) == 4
