"""The committed results of lesson 10: consistent rows, bytes that agree with formulas, steps that are in the plan."""

import math
from statistics import fmean

import pytest

from course_lib.lessons.compress import claims, plots, results, tables
from course_lib.lessons.compress.experiments.prompts import EXPERIMENT, steps
from course_lib.prompts.compressed.catalogue import GROUP
from course_lib.quantization.storage import dense_bytes

# Of a block of the default model: queries and output, keys and values, gate and up, down. Thirty blocks.
LAYERS = 30 * [(576, 576), (192, 576), (192, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536)]


@pytest.fixture(scope="module")
def measured():
    return results.load()


def test_every_row_has_the_loss_of_every_window(measured):
    rows = [row for name, rows in measured["tables"].items() for row in rows if name != "tasks"]
    assert {len(row["losses"]) for row in rows} == {measured["sizes"]["evaluation"]}
    for row in rows:
        assert row["perplexity"] == pytest.approx(math.exp(fmean(row["losses"])), rel=1e-4)


def test_its_steps_are_of_the_plan(measured):
    planned = [step.name for step in steps(EXPERIMENT.sizes)]
    assert set(measured["steps"]) <= set(planned)
    assert set(measured["steps"]) | set(results.missing(measured)) == set(planned)
    assert "20 vectors, 32 steps" in tables.provenance(measured)


def test_bytes_of_rounded_and_dense_models_by_formula(measured):
    n_weights = sum(rows * columns for rows, columns in LAYERS)
    assert results.row_of(measured, "models", model="dense")["weight_bytes"] == 2 * n_weights
    for bits in (2, 3, 4):
        row = results.row_of(measured, "models", model=f"gptq-{bits}")
        if row:
            assert row["weight_bytes"] == sum(dense_bytes(*shape, bits, GROUP) for shape in LAYERS)


def test_half_and_four_bits_are_nowhere_near_eight_times_smaller(measured):
    alone = {name: results.row_of(measured, "models", model=name) for name in ("dense", "sparsegpt-50-4bit")}
    times = alone["dense"]["weight_bytes"] / alone["sparsegpt-50-4bit"]["weight_bytes"]
    # 3 bits a weight, 20 / 64 for grids, and four bytes a row: below 16 / 3 = 5.3 in any case.
    assert 4.5 < times < 16 / 3
    assert f"{times:.2f}" in str(tables.published(measured))


def test_the_control_decides_what_a_prompt_recovers(measured):
    """Wanda at 50 %: a prompt helps, and about as much as on the dense model."""
    assert results.gain(measured, "wanda-50").holds
    assert results.repair(measured, "wanda-50").undecided
    assert results.repair(measured, "gptq-3").holds
    assert claims.MOVES.judge(measured).words.startswith("mixed (holds in 3;")


def test_what_the_text_says_of_settings(measured):
    """Two seeds differ by 0.03 nats; 96 steps gain twice as much as 32, 80 vectors half as much again as 20."""
    alone, main = results.with_and_without(measured, "wanda-50")
    runs = {plots.changed_setting(row, main): row for row in results.rows_of(measured, "settings")}
    assert abs(results.loss_gain(runs["another seed"], main).value) == pytest.approx(0.03, abs=0.005)
    won = results.loss_gain(main, alone).value
    assert results.loss_gain(runs["96 steps"], alone).value / won == pytest.approx(2, abs=0.1)
    assert results.loss_gain(runs["80 vectors"], alone).value / won == pytest.approx(1.5, abs=0.05)
    assert "both seeds:\n80 vectors, 8 steps and 96 steps" in plots.settings(measured).described()


def test_what_the_text_says_of_another_text(measured):
    pairs = [claims.on_other_text(measured, name) for name in ("gptq-3", "dense")]
    there, here = results.gain_difference(*pairs), results.repair(measured, "gptq-3")
    assert there.holds
    assert (round(there.value, 2), round(here.value, 2)) == (0.18, 0.17)


def test_what_the_text_says_of_questions(measured):
    rows = [results.row_of(measured, "tasks", model="wanda-50", task="sciq", prompted=so) for so in (False, True)]
    assert [round(row["accuracy"] * row["n"]) for row in rows] == [59, 57]
    assert "undecided" in claims.TASKS.judge(measured).words


def test_what_the_text_says_of_lora(measured):
    """At as many bytes it is better; with three times the steps a prompt does not differ significantly from it."""
    prompt, lora, *_ = claims.ways(measured, "wanda-50")
    longer = results.row_of(measured, "settings", n_steps=3 * prompt["n_steps"])
    assert lora["bytes"] == prompt["bytes"]
    assert results.loss_gain(lora, prompt).holds
    assert results.loss_gain(longer, lora).undecided


def test_what_the_text_says_of_distillation(measured):
    alone = results.row_of(measured, "models", model="minitron-50")
    prompt, taught, *_, refit = claims.ways(measured, "minitron-50")
    assert [round(results.loss_gain(row, alone).value, 2) for row in (prompt, taught, refit)] == [0.15, 0.61, 0.22]
    assert taught["processor_seconds"] / prompt["processor_seconds"] == pytest.approx(2.3, abs=0.1)
