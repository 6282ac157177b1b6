"""Printed tables of what the paper of lesson 09 reports."""

import pytest
from table_cells import headings
from table_cells import rows as cells

from course_lib.lessons.common.results import load_published, rows
from course_lib.lessons.dejavu.tables import published

EVERY = (
    published.accuracy,
    published.smaller,
    published.latency,
    published.depth,
    published.skipped,
    published.search,
)


@pytest.mark.parametrize("table", EVERY)
def test_published_tables_say_so_and_fit_a_page(table):
    assert table().caption.startswith("Published, not measured here")
    assert max(map(len, str(table()).splitlines())) <= 80


def test_times_over_times_by_hand():
    table = published.latency()
    assert [heading.split()[-1] for heading in headings(table)[1:]] == ["128", "256", "512", "1024"]
    assert cells(table)[3][1:] == ["6.8", "6.3", "5.6", "4.8"]  # 107.9 / 15.9 and so on
    assert cells(table)[4][1:] == ["2.5", "2.4", "2.1", "1.8"]


def test_numbers_stand_under_their_columns():
    dense, mlp, _ = cells(published.accuracy())
    assert headings(published.accuracy())[1:] == ["COPA", "Lambada", "PIQA", "RTE", "Winogrande", "WikiText", "C4"]
    assert dense[1:] == ["0.86", "0.7584", "0.8096", "0.6029", "0.7261", "10.82", "7.72"]
    assert mlp[1:] == ["0.85", "0.7619", "0.8096", "0.6065", "0.7206", "10.80", "7.74"]


def test_what_is_read_by_hand():
    assert published.read_share() == pytest.approx((0.42 * 1.12 + 0.10 * 2.25) / (1.12 + 2.25))


def test_the_sources_are_complete():
    found = load_published("dejavu")
    assert found["published"]
    assert set(found["sources"]) == set(found["tables"])
    for source in found["sources"].values():
        assert {"authors", "year", "title", "url", "table", "what"} == set(source)
    for name in found["tables"]:
        assert len({tuple(row) for row in rows(found, name)}) == 1, "each row has the same columns"
