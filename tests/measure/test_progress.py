"""Bars of loops: nothing is lost, and a notebook is not flooded with them."""

from pathlib import Path

import pytest
import rich.progress

from course_lib.measure.progress import REFRESHES_PER_SECOND, bar, tracked

LIBRARY = Path(__file__).parents[2] / "course_lib"
CONSOLE = {"cli", "grading", "workbook", "data"}  # their bars are shown on a console


@pytest.mark.parametrize("show", [False, True])
def test_everything_comes_in_its_order(show, capsys):
    assert list(tracked("abc", "letters", show)) == ["a", "b", "c"]
    assert list(tracked(iter("abc"), "letters", show, total=3)) == ["a", "b", "c"]
    assert show or capsys.readouterr().out == ""


def test_bars_refresh_once_a_second(monkeypatch):
    """Ten times a second, as rich does unasked, are 3,000 messages in 75 s: nbval waits for the last one in vain."""
    rates = []
    made = rich.progress.Progress.__init__

    def noted(self, *columns, **settings):
        rates.append(settings["refresh_per_second"])
        made(self, *columns, **settings)

    monkeypatch.setattr(rich.progress.Progress, "__init__", noted)
    list(tracked([1], "one", True))
    bar(True)
    assert rates == [REFRESHES_PER_SECOND] * 2 == [1, 1]


def test_what_notebooks_call_has_no_bar_of_its_own():
    files = [path for path in LIBRARY.rglob("*.py") if path.relative_to(LIBRARY).parts[0] not in CONSOLE]
    assert len(files) > 100
    own = {path.name for path in files if "rich.progress" in path.read_text()}
    assert own == {"progress.py"}
