"""`course reproduce kv`: its steps, its rows, and the published numbers."""

import math
from dataclasses import asdict, replace

import pytest

from course_lib.lessons.common import subject
from course_lib.lessons.common.results import load_measured, load_published
from course_lib.lessons.kv.experiments import kv as experiment
from course_lib.lessons.kv.experiments import settings
from course_lib.measure.result_files import as_text, plain
from course_lib.models import Part, part_only

SIZES = replace(experiment.QUICK, attention_length=24, stream=40, compared=32, gap_tokens=24, needles=1, prompt=24)
N_BLOCKS = 4
# One step of each kind, and the tables that it must return.
STEPS = {
    "stream: 4 newlines": ("streaming", "streaming_curves"),
    "stream: everything kept": ("streaming", "streaming_curves"),
    "gap: 8192, rolling positions": ("gaps",),
    "stream: H2O": ("policies",),
    "attention: first token special": ("attention", "attention_kinds", "mass_by_rank", "heavy_tokens"),
    "continuation: H2O": ("compressed",),
    "continuation: StreamingLLM, 4 bits": ("quantized",),
    "needle: word, Full": ("retrieval", "retrieval_depths"),
    "needle asked for too early: Window": ("leak",),
    "second needle: recycled, every 8 steps": ("second_needle",),
}


def test_every_policy_takes_part_and_no_step_has_two_meanings():
    for sizes in (experiment.Sizes(), experiment.QUICK):
        names = [step.name for step in experiment.steps(sizes)]
        assert len(names) == len(set(names))
        for policy in settings.names():
            assert {f"stream: {policy}", f"continuation: {policy}", f"needle: word, {policy}"} <= set(names)
        assert as_text({"sizes": plain(asdict(sizes)), "steps": {}, "tables": {}})
    assert experiment.Sizes().stream >= 20_000
    assert experiment.Sizes().needles >= 20


@pytest.fixture(scope="module")
def tables():
    """The tables of these steps, run once at the smallest sizes on the first blocks of the model, at full width."""
    steps = {step.name: step.run for step in experiment.steps(SIZES)}
    subject.loaded.cache_clear()
    with part_only(Part(N_BLOCKS, width=None)):
        yield {name: steps[name](0) for name in STEPS}
    subject.loaded.cache_clear()  # other tests need all blocks


@pytest.mark.real
def test_steps_give_their_tables(tables):
    for name, expected in STEPS.items():
        assert tuple(tables[name]) == expected
        for rows in tables[name].values():
            assert rows
            assert as_text({"steps": {}, "tables": {"rows": rows}})


@pytest.mark.real
def test_rows_say_what_was_measured(tables):
    (row,) = tables["stream: 4 newlines"]["streaming"]
    assert (row["name"], row["budget"], row["n_tokens"], row["n_compared"]) == ("4 newlines", 16, 24, 16)
    assert row["peak_bytes"] == 16 * N_BLOCKS * 3 * 2 * 64 * 4
    (whole,) = tables["stream: everything kept"]["streaming"]
    assert (whole["n_tokens"], whole["n_compared"]) == (16, 16)
    assert whole["compared"] == pytest.approx(whole["perplexity"])
    assert whole["compared_losses"] == whole["losses"] == [pytest.approx(math.log(whole["compared"]), abs=1e-4)]
    assert tables["gap: 8192, rolling positions"]["gaps"][0]["gap"] == 8192
    layers = tables["attention: first token special"]["attention"]
    assert [each["layer"] for each in layers] == list(range(N_BLOCKS))
    assert all(0 < each["first_token"] < 1 and 0 < each["sparsity"] < 1 for each in layers)
    heavy = tables["attention: first token special"]["heavy_tokens"]
    assert (heavy[0]["position"], heavy[0]["kind"]) == (0, "special")
    (row,) = tables["continuation: H2O"]["compressed"]
    assert (row["slots"], len(row["losses"]), row["bytes"]) == (6, 2, 6 * N_BLOCKS * 3 * 2 * 64 * 4)
    (row,) = tables["continuation: StreamingLLM, 4 bits"]["quantized"]
    assert row["bits"] == 4
    (row,) = tables["needle: word, Full"]["retrieval"]
    assert {"usable", "low", "high", "prefix"} <= set(row)
    assert row["right"].count("1") == round(row["exact"] * row["n"]) <= len(row["right"]) == row["n"]
    rows = tables["second needle: recycled, every 8 steps"]["second_needle"]
    assert [each["question"] for each in rows] == [1, 2]
    assert rows[0]["full_steps"] >= 1


def test_published_rows_are_marked_and_complete():
    published = load_published("kv")
    assert published["published"] is True
    assert published["sources"].keys() == published["tables"].keys()
    speed = {(row["device"], row["method"]): row["tokens_per_second"] for row in published["tables"]["speed"]}
    assert speed["A100", "H2O"] == 918
    assert speed["T4", "FlexGen"] == 8.5
    assert {row["source"] for row in published["tables"]["claims"]} == {
        "H2O",
        "Scissorhands",
        "D2O",
        "EMS",
        "Recycled attention",
    }


def test_the_committed_tables_hold_what_the_lessons_say():
    result = load_measured("kv")
    assert result["sizes"] == plain(asdict(experiment.Sizes()))
    stream = {row["name"]: row for row in result["tables"]["streaming"]}
    assert stream["4 sinks"]["perplexity"] < stream["4 newlines"]["perplexity"] < stream["0 sinks"]["perplexity"]
    assert len({row["peak_bytes"] for name, row in stream.items() if name != "everything kept"}) == 1
    dense = {row["task"]: row for row in result["tables"]["retrieval"] if row["policy"] == "Full"}
    assert dense["word"]["usable"]
