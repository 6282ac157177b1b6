"""A page for each student: what was measured of their recipe, and nothing of anybody else's."""

import json
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pytest
import torch
from hostile import PAYLOADS
from page_reader import Page, measure

from course_lib.compose.challenge.budget import Budget
from course_lib.compose.part import Part
from course_lib.compose.recipe import PARTS, from_json
from course_lib.grading.challenge import evaluation
from course_lib.workbook.decks import chromium

ROUNDED = {"weights": {"method": "Magnitude", "pattern": 0.25, "bits": 8, "rounding": "nearest"}}


def hand_in(folder, **recipes):
    for student, recipe in recipes.items():
        (folder / student).mkdir(parents=True)
        (folder / student / "recipe.json").write_text(recipe if isinstance(recipe, str) else json.dumps(recipe))


def pages_of(out):
    return {path.stem: path.read_text(encoding="utf-8") for path in (out / "feedback").glob("*.html")}


@pytest.fixture(scope="module")
def told(tmp_path_factory, graded):
    """The rows and pages of a class: one within the budget, one above it, one refused, one the twin of the first."""
    folder = tmp_path_factory.mktemp("told")
    hand_in(folder / "in", anna=ROUNDED, twin=ROUNDED, greedy={}, wrong={"weights": {"bits": 5}})
    (folder / "roster.txt").write_text("anna\ntwin\ngreedy\nwrong\nmissing\n")
    budget = Budget(held=0.95, read=0.95)
    _, rows, said = graded(folder / "in", folder / "out", budget=budget, roster=folder / "roster.txt")
    assert "feedback in" in said
    data = json.loads((folder / "out" / "challenge.json").read_text())
    return rows, {row["student"]: row for row in data["rows"]}, pages_of(folder / "out")


def test_everybody_has_a_page(told):
    assert set(told[2]) == set(told[0]) == {"anna", "twin", "greedy", "wrong", "missing"}


def test_a_page_has_what_was_measured(told):
    rows, _, pages = told
    page, row = Page(pages["anna"]), rows["anna"]
    assert f"{row['points']} of 20 points" in page.text
    assert "pruned by Magnitude (25 % removed) and rounded to the nearest values of 8 bits" in page.text
    assert "Your recipe is within the budget" in page.text
    budget = page.tables["Bytes and the budget"]
    assert [line[3] for line in budget[1:]] == [
        f"{100 * float(row[what]):.1f} %" for what in ("held_share", "read_share")
    ]
    assert {line[5] for line in budget[1:]} == {"within"}
    losses = {line[0]: line for line in page.tables["Loss by text"][1:]}
    (counted,) = [line for name, line in losses.items() if name.endswith("(counts)")]
    assert counted[1] == f"{float(row['nats']):+.3f} ± {float(row['error']):.3f}"
    assert float(counted[4]) == pytest.approx(float(row["points"]), abs=0.06)
    assert len(losses) == 2


def test_where_the_bytes_go_adds_up(told):
    _, data, pages = told
    found = data["anna"]["judged"]["found"]
    table = Page(pages["anna"]).tables["Stored bytes by kind"][1:]
    assert {"weights and codes", "scales and zero points", "indices: which weights are stored"} < {
        row[0] for row in table
    }
    assert sum(found["by_kind"].values()) == found["stored"]
    assert sum(float(row[2].split()[0]) for row in table) == pytest.approx(100, abs=0.3)


def test_above_the_budget_says_how_much_has_to_go(told):
    page = Page(told[2]["greedy"])
    assert "0 of 20 points" in page.text
    assert "Your recipe is above the budget" in page.text
    assert "No part at all: the dense model." in page.text
    assert "MB above the limit" in page.text
    assert "The largest part of the stored bytes is weights and codes" in page.text


def test_a_refused_recipe_says_why_and_one_that_is_missing_that_it_is(told):
    page = Page(told[2]["wrong"])
    assert "Your recipe was refused" in page.text
    assert told[0]["wrong"]["reason"][1:] in page.text
    assert page.tables == {}
    assert "Nothing was handed in" in Page(told[2]["missing"]).text


def test_nothing_of_others_is_on_a_page(told):
    """Not even that somebody handed in the same, which the instructor's table says."""
    rows, _, pages = told
    assert "same recipe" in rows["anna"]["notes"]
    for student, page in pages.items():
        assert "same recipe" not in page
        assert not [other for other in rows if other != student and f"{other}" in Page(page).text.split()]


def test_a_fault_of_the_grader_is_not_told_as_the_students(graded, tmp_path, monkeypatch):
    hand_in(tmp_path / "in", anna=ROUNDED)
    evaluate = evaluation.evaluate

    def broken(job, settings):
        found = evaluate(job, settings)
        return replace(found, problem="KeyError: /srv/inside", failed=True) if "0.25" in job.recipe else found

    monkeypatch.setattr(evaluation, "evaluate", broken)
    graded(tmp_path / "in", tmp_path / "out")
    (page,) = pages_of(tmp_path / "out").values()
    assert "Not graded yet" in page
    assert "/srv/inside" not in page
    assert "0 of 20" not in page


def test_names_and_recipes_that_attack_are_text(graded, tmp_path):
    names = [name for name in PAYLOADS if "/" not in name and not {"\0", "\ud800"} & set(name)]
    recipes = [{"weights": {"bits": 4}}, {"weights": {"method": PAYLOADS[0]}}, {PAYLOADS[1]: 1}]
    recipes += [{"prompt": {"file": f"{PAYLOADS[3]}.safetensors"}}]
    hand_in(tmp_path / "in", **{f"{name} {n}": recipe for name in names for n, recipe in enumerate(recipes)})
    _, rows, _ = graded(tmp_path / "in", tmp_path / "out")
    pages = pages_of(tmp_path / "out")
    assert len(pages) == len(rows) == len(names) * len(recipes)
    for html in pages.values():
        page = Page(html)
        assert not {"script", "img"} & page.tags
        assert not [name for _, values in page.elements for name in values if name.startswith("on")]


@pytest.mark.skipif(chromium.find() is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_a_phone(told, width, tmp_path):
    assert [seen["over"] for seen in measure(list(told[2].values()), width, tmp_path)] == [0] * 5


@dataclass(frozen=True, kw_only=True)
class Sketch(Part):
    """A part that no file of the library knows: numbers that are kept and read, and do nothing."""

    rank: int
    name, place = "sketch", 9

    def apply(self, making, ground):
        return making.with_(self.name, self, {"vectors": torch.zeros(self.rank, 500)}, nullcontext)

    def n_bytes(self, making):
        return 4 * self.rank * 500

    def n_products(self, making):
        return self.rank * 500

    def in_words(self):
        return f"A sketch of rank {self.rank} is stored with the model."


class Evicting(Sketch):
    """The same with a name for its bytes, and tokens that are evicted."""

    name, kind, forgets = "evicting", "sketches", True


@pytest.mark.parametrize(
    ("part", "kind"),
    [(Sketch, "sketch"), (Evicting, "sketches")],
)
def test_a_part_of_one_class_is_on_the_page_and_counted(part, kind, graded, tmp_path, monkeypatch):
    monkeypatch.setitem(PARTS, part.name, part)
    hand_in(tmp_path / "in", anna={part.name: {"rank": 7}}, dense={})
    graded(tmp_path / "in", tmp_path / "out")
    page = Page(pages_of(tmp_path / "out")["anna"])
    assert "A sketch of rank 7 is stored with the model." in page.text
    [line] = [line for line in page.tables["Stored bytes by kind"][1:] if line[0] == kind]
    assert line[1] == "0.01"  # 14,000 bytes
    found = {
        row["student"]: row["judged"]["found"]
        for row in json.loads((tmp_path / "out" / "challenge.json").read_text())["rows"]
    }
    more = {key: found["anna"][key] - found["dense"][key] for key in ("stored", "read", "multiply_adds")}
    assert more == {"stored": 14_000, "read": 14_000, "multiply_adds": 3500}


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({}, ["No part at all: the dense model."]),
        (
            {"embedding": {"bits": 4, "group": 32}, "weights": {"bits": 3, "rounding": "nearest"}},
            [
                "The embedding table is rounded to 4 bits, one scale per 32 columns.",
                "The weights of the blocks are rounded to the nearest values of 3 bits, one scale per row.",
            ],
        ),
        (
            {"weights": {"method": "SparseGPT", "pattern": "2:4", "bits": 4}},
            [
                "The weights of the blocks are pruned by SparseGPT (2:4 kept) and rounded in the same "
                "sweep to 4 bits, one scale per row."
            ],
        ),
        (
            {
                "weights": {"method": "Wanda", "pattern": 0.625, "allocation": "OWL"},
                "cache": {"policy": "Full", "bits": 4},
            },
            [
                "The weights of the blocks are pruned by Wanda (62.5 % removed, divided by OWL).",
                "The cache keeps all tokens, in 4 bits.",
            ],
        ),
        (
            {"weights": {"method": "Wanda", "by_block": [0.4, 0.725, 0.5]}},
            [
                "The weights of the blocks are pruned by Wanda (40 % to 72.5 % removed, a different fraction in each "
                "block)."
            ],
        ),
        (
            {"weights": {"method": "Magnitude", "by_block": [0.4, 0.4]}},
            ["The weights of the blocks are pruned by Magnitude (40 % removed)."],
        ),
        (
            {"neurons": {"selector": "CATS", "density": 0.77}, "cache": {"policy": "H2O", "budget": 0.2, "recent": 16}},
            [
                "Each token uses 77 % of the neurons, chosen by CATS.",
                "The cache keeps 20 % of the tokens, chosen by H2O.",
            ],
        ),
        (
            {"attention": {"rule": "FlexPrefill"}, "prompt": {"file": "p.safetensors"}},
            ["Attention over the prompt is sparse, by FlexPrefill.", "A learned prompt is put before the text."],
        ),
        ({"cache": {"policy": "Window", "budget": 64}}, ["The cache keeps 64 slots per head, chosen by Window."]),
    ],
)
def test_a_recipe_in_words(recipe, said):
    assert from_json(json.dumps(recipe)).in_words() == said
