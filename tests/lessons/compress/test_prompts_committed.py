"""The committed measurement of lesson 10: rows that agree with themselves, bytes with formulas, steps with the plan."""

import math
from statistics import fmean

import pytest

from course_lib.lessons.compress import found
from course_lib.lessons.compress.experiment_prompts import EXPERIMENT, steps
from course_lib.lessons.compress.figures import further
from course_lib.lessons.compress.tables import gain_tables, over, practice
from course_lib.prompts.compressed.catalogue import GROUP
from course_lib.quantization.storage import dense_bytes

# Of a block of the default model: queries and output, keys and values, gate and up, down. Thirty blocks.
LAYERS = 30 * [(576, 576), (192, 576), (192, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536)]


@pytest.fixture(scope="module")
def measured():
    return found.results()


def test_every_row_has_the_loss_of_every_window(measured):
    rows = [row for name, rows in measured["tables"].items() for row in rows if name != "tasks"]
    assert {len(row["losses"]) for row in rows} == {measured["sizes"]["evaluation"]}
    for row in rows:
        assert row["perplexity"] == pytest.approx(math.exp(fmean(row["losses"])), rel=1e-4)


def test_its_steps_are_of_the_plan(measured):
    planned = [step.name for step in steps(EXPERIMENT.sizes)]
    assert set(measured["steps"]) <= set(planned)
    assert set(measured["steps"]) | set(found.missing(measured)) == set(planned)
    assert ("Not measured" in gain_tables.provenance(measured)) == bool(found.missing(measured))


def test_bytes_of_rounded_and_dense_models_by_formula(measured):
    n_weights = sum(rows * columns for rows, columns in LAYERS)
    assert found.one(measured, "models", model="dense")["weight_bytes"] == 2 * n_weights
    for bits in (2, 3, 4):
        row = found.one(measured, "models", model=f"gptq-{bits}")
        if row:
            assert row["weight_bytes"] == sum(dense_bytes(*shape, bits, GROUP) for shape in LAYERS)


def test_half_and_four_bits_are_nowhere_near_eight_times_smaller(measured):
    alone = {name: found.one(measured, "models", model=name) for name in ("dense", "sparsegpt-50-4bit")}
    times = alone["dense"]["weight_bytes"] / alone["sparsegpt-50-4bit"]["weight_bytes"]
    # 3 bits a weight, 20 / 64 for grids, and four bytes a row: below 16 / 3 = 5.3 in any case.
    assert 4.5 < times < 16 / 3
    assert f"{times:.2f}" in str(practice.smaller_table(measured))


def test_the_control_decides_what_a_prompt_recovers(measured):
    """Half of the weights by Wanda: a prompt helps, and about as much as on the dense model."""
    assert found.gain(measured, "wanda-50").holds
    assert found.beyond(measured, "wanda-50").undecided
    assert found.beyond(measured, "gptq-3").holds
    assert "holds" in over.moved(measured)


def test_what_the_text_says_of_settings(measured):
    """Two draws lie 0.03 nats apart; three times the steps win twice, four times the vectors half as much again."""
    alone, main = found.pair(measured, "wanda-50")
    runs = {further.changed(row, main): row for row in found.some(measured, "settings")}
    assert abs(found.wins(runs["another draw"], main).value) == pytest.approx(0.03, abs=0.005)
    won = found.wins(main, alone).value
    assert found.wins(runs["96 steps"], alone).value / won == pytest.approx(2, abs=0.1)
    assert found.wins(runs["80 vectors"], alone).value / won == pytest.approx(1.5, abs=0.05)
    assert "both draws: 80 vectors, 8 steps and 96 steps" in further.settings(measured).described()


def test_what_the_text_says_of_another_text(measured):
    pairs = [over.on_other_text(measured, name) for name in ("gptq-3", "dense")]
    there, here = found.more_than(*pairs), found.beyond(measured, "gptq-3")
    assert there.holds
    assert (round(there.value, 2), round(here.value, 2)) == (0.18, 0.17)


def test_what_the_text_says_of_questions(measured):
    rows = [found.one(measured, "tasks", model="wanda-50", task="sciq", prompted=so) for so in (False, True)]
    assert [round(row["accuracy"] * row["n"]) for row in rows] == [59, 57]
    assert "undecided" in practice.tasks(measured)


def test_what_the_text_says_of_lora(measured):
    """At as many bytes it reads better; with three times the steps a prompt is not told apart from it."""
    prompt, lora, *_ = practice.ways(measured, "wanda-50")
    longer = found.one(measured, "settings", n_steps=3 * prompt["n_steps"])
    assert lora["bytes"] == prompt["bytes"]
    assert found.wins(lora, prompt).holds
    assert found.wins(longer, lora).undecided


def test_what_the_text_says_of_distillation(measured):
    alone = found.one(measured, "models", model="minitron-50")
    prompt, taught, *_, refit = practice.ways(measured, "minitron-50")
    assert [round(found.wins(row, alone).value, 2) for row in (prompt, taught, refit)] == [0.15, 0.61, 0.22]
    assert taught["processor_seconds"] / prompt["processor_seconds"] == pytest.approx(2.3, abs=0.1)
