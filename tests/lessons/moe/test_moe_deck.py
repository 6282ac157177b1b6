"""What deck 06 says in words and numbers is what its functions compute or its sources report."""

import math
import re

import pytest
import torch

from course_lib.lessons.common.results import load_published, rows
from course_lib.lessons.moe import optional_plots
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
    assert [tuple(map(float, row)) for row in cells("Published: the effect of balance losses")] == expected


def test_switchs_tables_are_the_published_ones():
    precise = [row for row in cells("Small logits, and a router in float32") if row[2]]
    assert [(name, float(q), int(n)) for name, q, n in precise] == [
        tuple(row.values()) for row in rows(PUBLISHED, "switch_precision")
    ]
    note = SLIDES["Measured: other routers and regularisers"].replace("−", "-")
    jitter = {row["router"]: row["quality"] for row in rows(PUBLISHED, "switch_exploration")}
    with_it, without = (jitter[name] for name in ("jitter on the router's input", "the most likely expert"))
    assert f"{with_it} with it and {without} without" in note
    for row in rows(PUBLISHED, "switch_start"):
        assert f"{row['quality']:.2f} ± {row['deviation']:.2f}" in note
    capacity = {(row["model"], row["capacity_factor"]): row["quality"] for row in rows(PUBLISHED, "switch_capacity")}
    best = [capacity[key] for key in (("MoE, top-2", 2.0), ("Switch, top-1", 2.0), ("T5-Base, dense", None))]
    beside = SLIDES["Measured: experts compared with a dense model"].replace("−", "-")
    assert f"top-2 {best[0]} and top-1 {best[1]}, compared with {best[2]} for a dense model" in beside


def test_every_source_has_a_table_and_is_named_as_published():
    assert PUBLISHED["published"]
    assert set(PUBLISHED["sources"]) == set(PUBLISHED["tables"])
    for title, slide in SLIDES.items():
        if re.search(r"Tables? \d", slide):
            assert re.search("published", f"{title} {slide}", re.IGNORECASE), title


def row(*errors):
    return Row("x", "one", "whole", 0.0, 0.0, errors)


def test_from_where_on_one_is_ahead(monkeypatch):
    monkeypatch.setattr(optional_plots, "TOKENS", (1, 10, 100))
    assert optional_plots.first_ahead(row(3, 1, 1), row(2, 2, 2)) == 10
    assert optional_plots.first_ahead(row(1, 3, 1), row(2, 2, 2)) == 100, "ahead at first does not count"
    assert optional_plots.first_ahead(row(1, 1, 1), row(2, 2, 2)) == 1
    assert optional_plots.first_ahead(row(1, 1, 3), row(2, 2, 2)) is None


@pytest.fixture(scope="module")
def errors():
    return optional_plots.errors()


def test_the_floors_that_the_notes_name(errors):
    """Bias is a floor; the estimate without bias falls with the root of the tokens."""
    last, before = -1, optional_plots.TOKENS.index(1000)
    reached = {name: found.errors[last] / found.errors[before] for name, found in errors.items()}
    assert reached["REINFORCE"] == pytest.approx(math.sqrt(0.1), rel=1e-6)
    assert reached["weight only (Switch)"] > 0.95
    assert reached["SparseMixer, as released"] > 0.9
    released = errors["SparseMixer, as released"]
    assert optional_plots.first_ahead(errors["REINFORCE"], released) > 100
    assert optional_plots.first_ahead(released, errors["weight only (Switch)"]) < 20


def test_numbers_that_the_notes_say():
    awake = [8 * (1 - (1 - 2 / 8) ** n) for n in (1, 8, 64)]
    assert [f"{n:.1f}" for n in awake] == ["2.0", "7.2", "8.0"]
    assert "2, 7.2 and 8" in SLIDES["The cost on a CPU"]
    assert 512 * 2 / 32 == 32  # rows an expert
    step = torch.tensor(64.0).bfloat16().view(torch.int16).add(1).view(torch.bfloat16).float() - 64
    assert float(step) == 0.5
    assert f"{math.exp(0.5):.2f}" == "1.65"
