"""Progress of loops: no item is lost, a log gets a line now and then, and a notebook is not flooded with messages."""

import io
import re
import time
from pathlib import Path

import pytest
import rich.progress
from rich.console import Console

from course_lib.measure import progress
from course_lib.measure.progress import REFRESHES_PER_SECOND, bar, tracked

LIBRARY = Path(__file__).parents[2] / "course_lib"
OWN = {"progress.py", "install.py"}  # downloads count bytes; `data` may not import `measure`


@pytest.mark.parametrize("show", [False, True])
def test_everything_comes_in_its_order(show, capsys):
    assert list(tracked("abc", "letters", show)) == ["a", "b", "c"]
    assert list(tracked(iter("abc"), "letters", show, total=3)) == ["a", "b", "c"]
    assert capsys.readouterr().out == "", "a loop of less than ten seconds leaves nothing in a log"


def test_bars_refresh_once_a_second(monkeypatch):
    """At ten refreshes per second, the default of rich, 75 s send 3,000 messages: nbval misses the last one."""
    rates = []
    made = rich.progress.Progress.__init__

    def noted(self, *columns, **settings):
        rates.append(settings["refresh_per_second"])
        made(self, *columns, **settings)

    monkeypatch.setattr(rich.progress.Progress, "__init__", noted)
    list(tracked([1], "one", True))
    bar(True)
    assert rates == [REFRESHES_PER_SECOND] * 2 == [1, 1]


def piped():
    return Console(file=io.StringIO(), force_terminal=False, width=40)


def wait_for(console, text):
    """Wait until the log has that text, up to ten seconds."""
    for _ in range(1000):
        if text in console.file.getvalue():
            return
        time.sleep(0.01)
    raise AssertionError(f"no {text!r} in {console.file.getvalue()!r}")


def test_a_log_has_one_line_for_all_bars_that_are_open(monkeypatch):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.01)
    console = piped()
    with bar(console=console) as outer:
        outer.add_task("[step] of an experiment whose name is long", total=4)
        for block in tracked(range(3), "pruning"):  # finds the outer console
            if block == 2:
                wait_for(console, "experiment whose name is long: 0 of 4 done; pruning: 2 of 3 done\n")
        wait_for(console, "long: 0 of 4 done\n")
    lines = console.file.getvalue().splitlines()
    assert all(re.match(r"0:00:\d\d  \[step\]", line) for line in lines), "the time first, and no empty line"
    time.sleep(0.05)
    assert console.file.getvalue().splitlines() == lines, "no line comes after the end"
    assert progress._open == []


def test_work_without_a_count_still_shows_its_time(monkeypatch):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.01)
    console = piped()
    with bar(console=console) as shown:
        shown.add_task("writing the pages", total=None)
        wait_for(console, "0:00:00  writing the pages\n")


def test_hours_do_not_fill_pages(monkeypatch):
    """Lines are ten seconds apart at first, then a tenth of the time so far: 40 lines in the first hour."""
    console, waits = piped(), []

    class Clock:
        now = 0.0

        def wait(self, seconds):
            waits.append(seconds)
            self.now += seconds
            return self.now > 3600

    shown, clock = bar(console=console), Clock()
    shown._stopped, shown.get_time = clock, lambda: clock.now
    shown._write_lines()
    assert waits[:10] == [10.0] * 10
    assert 40 < len(waits) < 60
    assert max(waits) < 400


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt])
def test_an_error_closes_the_bar(stop):
    def loop():
        for _ in tracked(range(3), "loop", console=piped()):
            raise stop

    with pytest.raises(stop):
        loop()
    assert progress._open == []


def test_a_terminal_has_a_bar(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=100, _environ={})
    for block in tracked(range(3), "pruning", console=console):
        assert block < 3
    assert "pruning" in console.file.getvalue()
    assert "done" not in console.file.getvalue()


def test_all_progress_is_shown_by_one_module():
    files = [*LIBRARY.rglob("*.py")]
    assert len(files) > 100
    assert {path.name for path in files if "rich.progress" in path.read_text()} == OWN
    assert [path.name for path in files if ".status(" in path.read_text()] == [], "a log shows no status line"
