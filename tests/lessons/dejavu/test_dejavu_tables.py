"""The tables of lesson 09: what the paper reports, and what the notebook computes."""

import pytest
import torch
from table_cells import headings
from table_cells import rows as cells

from course_lib.contextual.execute.race import Lap
from course_lib.lessons.common.results import load_published, rows
from course_lib.lessons.dejavu import deck, tables

EVERY = (tables.published_accuracy, tables.published_latency)


@pytest.mark.parametrize("table", EVERY)
def test_published_tables_say_so_and_fit_a_page(table):
    assert table().caption.startswith("Published, not measured here")
    assert max(map(len, str(table()).splitlines())) <= 80


def test_times_over_times_by_hand():
    table = tables.published_latency()
    assert [heading.split()[-1] for heading in headings(table)[1:]] == ["128", "256", "512", "1024"]
    assert cells(table)[3][1:] == ["6.8", "6.3", "5.6", "4.8"]  # 107.9 / 15.9 and so on
    assert cells(table)[4][1:] == ["2.5", "2.4", "2.1", "1.8"]


def test_numbers_stand_under_their_columns():
    dense, mlp, _ = cells(tables.published_accuracy())
    assert headings(tables.published_accuracy())[1:] == [
        "COPA",
        "Lambada",
        "PIQA",
        "RTE",
        "Winogrande",
        "WikiText",
        "C4",
    ]
    assert dense[1:] == ["0.86", "0.7584", "0.8096", "0.6029", "0.7261", "10.82", "7.72"]
    assert mlp[1:] == ["0.85", "0.7619", "0.8096", "0.6065", "0.7206", "10.80", "7.74"]


def test_what_is_read_by_hand():
    assert deck.published_fraction_read() == pytest.approx((0.42 * 1.12 + 0.10 * 2.25) / (1.12 + 2.25))


def test_the_sources_are_complete():
    found = load_published("dejavu")
    assert found["published"]
    assert set(found["sources"]) == set(found["tables"])
    for source in found["sources"].values():
        assert {"authors", "year", "title", "url", "table", "what"} == set(source)
    for name in found["tables"]:
        assert len({tuple(row) for row in rows(found, name)}) == 1, "each row has the same columns"


def test_laps_are_compared_with_the_first():
    laps = [Lap("dense", [2.0, 2.0, 2.0], [1.0, 1.0, 1.0], 1.0), Lap("some", [1.0, 1.0, 0.5], [1.01, 1.02, 1.03], 2.0)]
    assert cells(tables.decoding(laps, n_tokens=10)) == [
        ["dense", "5", "1.00", "–", "1.000"],
        ["some", "10", "2.00", "+0.020 ± 0.006", "1.020"],
    ]


def test_perplexities_have_a_column_for_each_fraction():
    losses = {"one": {0.5: torch.zeros(2), 0.3: torch.ones(2)}, "two": {0.5: torch.ones(2)}}
    table = tables.perplexities(losses, torch.zeros(2))
    assert headings(table)[1:] == ["all", "50 %", "30 %"]
    assert cells(table) == [["dense", "1.0", "–", "–"], ["one", "–", "1.0", "2.7"], ["two", "–", "2.7", "–"]]
    assert cells(tables.perplexities(losses, torch.zeros(2), nats=True))[1] == ["one", "–", "0.000", "1.000"]


def test_lost_recall_is_compared_window_by_window():
    own = torch.tensor([0.9, 0.8, 0.7])
    table = tables.recall_ahead(
        {0: own, 1: own - torch.tensor([0.004, 0.005, 0.006]), 2: own - torch.tensor([0.1, 0.11, 0.12])}
    )
    assert cells(table) == [
        ["0", "0.800", "–"],
        ["1", "0.795", "+0.005 ± 0.001"],
        ["2", "0.690", "+0.110 ± 0.006"],
    ]
