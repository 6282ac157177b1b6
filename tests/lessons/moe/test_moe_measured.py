"""Tables, verdicts and figures of what `course reproduce moe` writes, on what a quick one measures."""

import json

import pytest
from table_cells import rows as cells

from course_lib.attention.small_models import byte_model
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.moe import claims, pairs, plots, tables
from course_lib.lessons.moe.experiments import moe, runs
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
    shown = cells(tables.trained_models(found))
    assert [row[0] for row in shown] == list(moe.SIZES.kinds)
    assert shown[0][-1] == "–"
    assert all(row[-1].endswith("%") for row in shown[1:])


def test_a_claim_is_about_all_seeds(found):
    by_seed = pairs.lower(found, "top-2, balanced", "top-2")
    judged = claims.BALANCED_TOP_2.judge(found)
    assert list(by_seed) == ["seed 0", "seed 1"]
    assert judged.estimates[""].value == pytest.approx(sum(each.value for each in by_seed.values()) / 2)
    assert judged.n == "2"
    assert pairs.lower(found, "dense", "dense")["seed 0"].value == 0


def test_blocks_of_all_seeds_are_counted(found):
    assert pairs.collapsed_blocks(found, "top-2", 8) == "in 2, 2 of 2 blocks (2 seeds)"
    assert claims.COLLAPSE_TOP_2.judge(found).ours == pairs.collapsed_blocks(found, "top-2", 2)


def test_loads_are_drawn_by_step(found):
    fig = plots.largest_loads(found, ("top-1", "top-1, balanced"))
    lines = fig.axes[0].lines
    assert [list(line.get_xdata()) for line in lines[:2]] == [[1, 4], [1, 4]]
    assert "top-1, balanced" in fig.axes[0].get_title(loc="left")


def test_gradients_and_gains_of_copies_by_hand():
    """Gradients of 1/20 and 3/20; losses 0.1 and 0.2 lower than the dense model's."""
    gradients, models = [], []
    for name in tables.UPCYCLED_NAMES:
        gradients += [{"model": name, "gate_gradient": g, "expert_gradient": 0.2} for g in (0.01, 0.03)]
        models += [{"model": name, "seed": seed, "steps": 5, "losses": [1.9 - 0.1 * seed] * 2} for seed in (0, 1)]
    models += [{"model": "dense, trained on", "seed": seed, "steps": 5, "losses": [2.0, 2.0]} for seed in (0, 1)]
    shown = cells(tables.upcycled({"tables": {"gradients": gradients, "models": models}}))
    assert shown[0] == ["equal copies, top-2", "10", "+0.1500 ± 0.0707"]
    assert len(shown) == 4


def test_the_committed_copies_are_the_same_model_until_something_differs():
    committed = load_measured("moe", "experiments/moe_upcycling")
    dense, renormalised, *_ = committed["tables"]["copies"]
    assert renormalised["perplexity"] == pytest.approx(dense["perplexity"], rel=1e-6)
    assert renormalised["largest_difference"] < 1e-3  # sums in another order, of logits up to 40
    assert len(tables.upcycled(committed).frame) == 4
