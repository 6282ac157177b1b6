"""What deck 06 says in words and numbers is what its functions compute or its sources report."""

import math
import re

import pytest
import torch

from course_lib.lessons.common.results import load_bench, load_published, rows
from course_lib.lessons.moe import deck
from course_lib.moe.estimators.table import Row
from course_lib.workbook.decks.markdown import split_slides
from course_lib.workbook.masters import ROOT

SLIDES = {
    re.search(r"^#+ (.+)$", slide, re.MULTILINE)[1]: slide
    for slide in split_slides((ROOT / "slides" / "06_moe.md").read_text(encoding="utf-8"))
}
PUBLISHED = load_published("moe")


def cells(title):
    """The rows of a slide's table, without the head; bold and real minus signs made plain."""
    lines = re.findall(r"^\|(.+)\|$", SLIDES[title], re.MULTILINE)[2:]
    return [[cell.strip(" *").replace("−", "-") for cell in line.split("|")] for line in lines]


def test_shazeers_losses_are_the_published_ones():
    expected = [tuple(row.values()) for row in rows(PUBLISHED, "shazeer_losses")]
    assert [tuple(map(float, row)) for row in cells("Published: what balance is worth")] == expected


def test_switchs_tables_are_the_published_ones():
    precise = [row for row in cells("Small logits, and a router in float32") if row[2]]
    assert [(name, float(q), int(n)) for name, q, n in precise] == [
        tuple(row.values()) for row in rows(PUBLISHED, "switch_precision")
    ]
    note = SLIDES["Measured: what other routers change"].replace("−", "-")
    jitter = {row["router"]: row["quality"] for row in rows(PUBLISHED, "switch_exploration")}
    with_it, without = (jitter[name] for name in ("jitter on the router's input", "the most likely expert"))
    assert f"{with_it} with it and {without} without" in note
    for row in rows(PUBLISHED, "switch_start"):
        assert f"{row['quality']:.2f} ± {row['deviation']:.2f}" in note
    capacity = {(row["model"], row["capacity_factor"]): row["quality"] for row in rows(PUBLISHED, "switch_capacity")}
    best = [capacity[key] for key in (("MoE, top-2", 2.0), ("Switch, top-1", 2.0), ("T5-Base, dense", None))]
    beside = SLIDES["Measured: experts beside a dense model"].replace("−", "-")
    assert f"top-2 {best[0]} and top-1 {best[1]} where a dense model has {best[2]}" in beside


def test_every_source_has_a_table_and_is_named_as_published():
    assert PUBLISHED["published"]
    assert set(PUBLISHED["sources"]) == set(PUBLISHED["tables"])
    for title, slide in SLIDES.items():
        if re.search(r"Tables? \d", slide):
            assert re.search("published", f"{title} {slide}", re.IGNORECASE), title


def row(*errors):
    return Row("x", "one", "whole", 0.0, 0.0, errors)


def test_from_where_on_one_is_ahead(monkeypatch):
    monkeypatch.setattr(deck, "TOKENS", (1, 10, 100))
    assert deck.first_ahead(row(3, 1, 1), row(2, 2, 2)) == 10
    assert deck.first_ahead(row(1, 3, 1), row(2, 2, 2)) == 100, "ahead at first does not count"
    assert deck.first_ahead(row(1, 1, 1), row(2, 2, 2)) == 1
    assert deck.first_ahead(row(1, 1, 3), row(2, 2, 2)) is None


@pytest.fixture(scope="module")
def errors():
    return deck.errors()


def test_the_floors_that_the_notes_name(errors):
    """Bias is a floor; the estimate without bias falls with the root of the tokens."""
    last, before = -1, deck.TOKENS.index(1000)
    reached = {name: found.errors[last] / found.errors[before] for name, found in errors.items()}
    assert reached["REINFORCE"] == pytest.approx(math.sqrt(0.1), rel=1e-6)
    assert reached["multiplier only (Switch)"] > 0.95
    assert reached["SparseMixer, as released"] > 0.9
    released = errors["SparseMixer, as released"]
    assert deck.first_ahead(errors["REINFORCE"], released) > 100
    assert deck.first_ahead(released, errors["multiplier only (Switch)"]) < 20


def test_titles_of_speeds_come_from_the_bench(monkeypatch):
    bench = load_bench("cpu_moe")
    times = {
        side: [
            1 / each["times_anchor"]
            for each in bench["tables"]["sides"]
            if each["side"] == side and each["shape"][1] == 8
        ]
        for side in (deck.LAYER, deck.ALL)
    }
    assert [len(values) for values in times.values()] == [4, 4]
    (mine, every) = ((min(values), max(values)) for values in times.values())
    title = deck.speeds().axes[0].get_title(loc="left")
    assert title == f"8 experts: {mine[0]:.1f} to {mine[1]:.1f} times; all computed, {every[0]:.1f} to {every[1]:.1f}"
    columns = ("times_anchor", "times_anchor_low", "times_anchor_high")
    faster = [each | {name: 2 * each[name] for name in columns} for each in bench["tables"]["sides"]]
    monkeypatch.setattr(deck, "load_bench", lambda name: {"tables": {"sides": faster}})
    halved = deck.speeds().axes[0].get_title(loc="left")
    assert halved.startswith(f"8 experts: {mine[0] / 2:.1f} to {mine[1] / 2:.1f} times; all computed, ")


def test_numbers_that_the_notes_say():
    awake = [8 * (1 - (1 - 2 / 8) ** n) for n in (1, 8, 64)]
    assert [f"{n:.1f}" for n in awake] == ["2.0", "7.2", "8.0"]
    assert "2, 7.2 and 8" in SLIDES["What it costs on a CPU"]
    assert 512 * 2 / 32 == 32  # rows an expert
    step = torch.tensor(64.0).bfloat16().view(torch.int16).add(1).view(torch.bfloat16).float() - 64
    assert float(step) == 0.5
    assert f"{math.exp(0.5):.2f}" == "1.65"
