"""What deck 09 says in words and numbers is what its functions compute or its sources report."""

import math
import re

import pytest
import torch

from course_lib.lessons.common.results import load_published, rows
from course_lib.lessons.dejavu import deck
from course_lib.workbook.decks.markdown import split_slides
from course_lib.workbook.masters import ROOT

SLIDES = {
    re.search(r"^#+ (.+)$", slide, re.MULTILINE)[1]: slide
    for slide in split_slides((ROOT / "slides" / "09_deja_vu.md").read_text(encoding="utf-8"))
}
PUBLISHED = load_published("dejavu")
SHOWN = ("COPA", "PIQA", "Winogrande", "WikiText")


def cells(title):
    """The rows of a slide's table, without the head."""
    lines = re.findall(r"^\|(.+)\|$", SLIDES[title], re.MULTILINE)[2:]
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def test_what_is_lost_is_as_published():
    shown = [
        [float(cell) if cell else None for cell in row[2:]] for row in cells("Published: what the predictors lose")
    ]
    wanted = [*rows(PUBLISHED, "dejavu_accuracy"), *rows(PUBLISHED, "dejavu_smaller")]
    assert shown == [[row.get(name) for name in SHOWN] for row in wanted]


def test_latencies_are_as_published_and_divided_right():
    table = {row[0]: [float(cell) for cell in row[1:]] for row in cells("Published: milliseconds per token")}
    published = {row["system"]: list(row.values())[1:] for row in rows(PUBLISHED, "dejavu_latency")}
    assert {name: table[name] for name in published} == published
    for name, row in (
        ("Hugging Face", "times faster than Hugging Face"),
        ("FasterTransformer", "than FasterTransformer"),
    ):
        ratios = [theirs / ours for theirs, ours in zip(published[name], published["Deja Vu"], strict=True)]
        assert table[row] == [round(ratio, 1) for ratio in ratios]


def test_half_of_the_saved_bytes_become_speed():
    note, read = SLIDES["Published: milliseconds per token"], deck.published_fraction_read()
    assert f"read {100 * read:.0f} % of a block: {1 / read:.1f} times less" in note
    assert 0.45 < 40.5 / 15.9 * read < 0.55, "half of it"


def test_the_search_is_as_published():
    shown = [re.search(r"[\d.]+$", row[1])[0] for row in cells("Search for the neighbors?")]
    assert [float(number) for number in shown] == [row["milliseconds"] for row in rows(PUBLISHED, "dejavu_search")]


def test_the_parts_of_85_per_cent_by_hand():
    slide = SLIDES["85 %, and 7 times fewer"]
    weighted = (0.80 + 2 * 0.95) / 3
    assert weighted == pytest.approx(0.90)
    assert "= 90$ %" in slide
    assert "0.85) = 6.7$" in slide
    assert f"{1 / (1 - 0.85):.1f}" == "6.7"
    read = {row["part"]: row["gigabytes"] for row in rows(PUBLISHED, "dejavu_read")}
    assert read["MLP"] / read["attention"] == pytest.approx(2, abs=0.01)  # two decimal places


def test_whatever_names_a_table_is_called_published():
    for title, slide in SLIDES.items():
        if re.search(r"Tables? \d", slide):
            assert re.search("published", f"{title} {slide}", re.IGNORECASE), title


def test_numbers_in_the_notes():
    assert math.sqrt(0.86 * 0.14 / 100) == pytest.approx(0.035, abs=5e-4)  # of COPA's 100 questions
    assert (1 - 0.05) / 2 == 0.475  # p + c d = 1 with p = 0.05, c = 2
    depth = {row["setting"]: row["Hellaswag"] for row in rows(PUBLISHED, "dejavu_depth")}
    for value in list(depth.values())[:3]:
        assert f"{value:.4f}" in SLIDES["The stream changes slowly"]
    assert deck.union(0.1, 7) > 0.5 > deck.union(0.1, 6), "seven sequences read more than half"
    assert 0.31 < deck._ratio(0.95) < 0.35, "a third of the length"


@pytest.fixture(scope="module")
def errors():
    return deck.errors()


def test_keeping_all_loses_nothing_and_length_loses_least(errors):
    for name, curve in errors.items():
        assert curve[-1] == 0, name
    few = deck.FRACTIONS.index(0.2)
    at = {name: curve[few] for name, curve in errors.items()}
    assert at["|h| ‖w‖"] < at["|h|"] < min(at["h"], at["static: mean |h| ‖w‖"])


def test_errors_by_a_loop():
    """One token, by hand: the terms that stay are summed one by one."""
    found = deck.errors(n_tokens=1, n_neurons=20)
    generator = torch.Generator().manual_seed(0)
    mlp = deck.small_mlp(20, 64, generator)
    gate = 3 * torch.randn(20, 64, generator=generator) / 8
    x = torch.randn(1, 64, generator=generator)[0]
    pre = gate @ x
    values = pre * torch.sigmoid(pre) * (mlp.up @ x)
    terms = values[:, None] * mlp.down.T
    order = terms.norm(dim=1).argsort(descending=True)
    for n_kept in (1, 7, 20):
        kept = sum((terms[i] for i in order[:n_kept]), torch.zeros(64))
        wanted = float((terms.sum(0) - kept).norm() / terms.sum(0).norm())
        assert found["|h| ‖w‖"][n_kept - 1] == pytest.approx(wanted, abs=1e-5)  # 20 float32 sums in another order


def test_norms_of_heads_by_a_loop():
    before, after = deck.head_norms(4, 3, 5)
    assert before.shape == after.shape == (4,)
    firsts = [set(norms.topk(3).indices.tolist()) for norms in deck.head_norms(9, 16, 96)]
    common = len(firsts[0] & firsts[1])
    assert deck.heads().get_suptitle().endswith(f"have {common} in common")
    assert common < 3, "the drawing shows a difference"


def test_what_is_lost_is_exactly_nothing_once_the_rest_is_zero():
    values = torch.zeros(2, 20)
    values[0, 3], values[1, :2] = 5.0, torch.tensor([3.0, 4.0])
    lost = deck.lost(values)
    assert lost[0] == pytest.approx(0.5 * 9 / 25)  # 1 of 20 kept: the second token loses the 3
    assert lost[1:] == [0.0] * 18
