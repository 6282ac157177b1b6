"""The live view, tables and figures of lesson 10's own runs."""

import pytest
import torch
from table_cells import rows as cells

from course_lib.lessons.compress import plots, results, tables, widgets


def test_the_table_multiplies_each_models_perplexity_by_the_ratio():
    rows = [("pruned", "five", 50.0, 0.9, 0.01), ("dense", "five", 20.0, torch.tensor(0.5), 0.02)]
    assert cells(tables.comparison(rows)) == [
        ["pruned", "five", "45.0", "0.900 ± 0.010"],
        ["dense", "five", "10.0", "0.500 ± 0.020"],
    ]


def test_the_rows_of_a_transfer_are_those_of_the_committed_run():
    rows = results.transfer_rows(results.load(), "wanda-50", "gptq-3")
    alone, own, moved, dense, dense_own = (torch.tensor(row["losses"]) for row in rows)
    assert len({len(each) for each in (alone, own, moved, dense, dense_own)}) == 1
    assert dense_own.mean() < dense.mean() < own.mean() < alone.mean()


WORDS = [[(" one", 1.0), ("\ufffd<b>", 0.5)]] * 13


@pytest.fixture
def path():
    return torch.arange(13.0)[:, None, None].expand(13, 2, 4) + 1, tuple(map(float, range(12)))


def test_without_a_browser_the_whole_table_is_shown_with_the_last_step_marked(path, capsys):
    page = widgets.as_html(*path, WORDS, 12)
    assert [page.count(f">{step}</th>") for step in (0, 2, 4, 6, 8, 10, 12)] == [1] * 7
    assert page.count(widgets.MARKED) == 3  # the head and two vectors
    assert "␣one" in page
    assert "·&lt;b&gt;" in page
    assert "After 12 of 12 steps: vectors moved by 12.00 of their initial length" in page
    widgets.explore(*path, WORDS)
    assert "HTML" in capsys.readouterr().out


@pytest.mark.parametrize("step", [0, 1, 5, 12])
def test_every_step_has_its_column(step):
    shown = widgets.columns(12, step)
    assert step in shown
    assert len(shown) == 7 == len(set(shown))
    assert widgets.columns(0, 0) == [0]
    assert widgets.columns(3, 2) == [0, 1, 2, 3]


def test_a_step_that_was_not_taken_is_refused(path):
    with pytest.raises(ValueError, match="expected 0 to 12"):
        widgets.as_html(*path, WORDS, 13)


def test_figures_have_their_finding_as_a_title():
    rows = [("pruned", "a", 0.9, 0.01), ("pruned", "b", 0.99, 0.01), ("dense", "a", 1.2, 0.01)]
    assert plots.ratios(rows).described() == "1 of 3 prompts lower the perplexity significantly"
    assert "only the prompt" in plots.idea().described()
