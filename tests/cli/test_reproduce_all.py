"""`course reproduce all` on made-up experiments: order, what is whole, interruption, machines, the closing page."""

import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from course_lib.cli import claims, reproduce, reproduce_all
from course_lib.cli.app import app
from course_lib.cli.reproduce_all import plan, run, show
from course_lib.measure.experiment import Experiment, Step
from course_lib.measure.result_files import write


@dataclass(frozen=True)
class Sizes:
    n: int


class House:
    """Experiments that note what ran; `failing` holds what a step raises."""

    def __init__(self, folder):
        self.folder, self.ran, self.failing, self.pages = folder, [], {}, []

    def find(self, name):
        def steps(sizes):
            return [
                Step(part, lambda seed, part=part: self.step(name, part, sizes))
                for part in ("one", "two")[: 1 + (name != "short")]
            ]

        return Experiment(name, Sizes(3), Sizes(1), steps, seed=5)

    def step(self, name, part, sizes):
        self.ran.append(f"{name} {part}")
        if f"{name} {part}" in self.failing:
            raise self.failing[f"{name} {part}"]
        return {"rows": [{"part": part, "n": sizes.n}]}

    def committed(self, name):
        return self.folder / f"{name}.json"

    def commit(self, name, seconds, **changed):
        steps = {part: {"seconds": s} for part, s in seconds.items()}
        write({"steps": steps, "tables": {}, "sizes": {"n": 3}, "seed": 5} | changed, self.committed(name))

    def page(self, check=False):
        self.pages.append(check)
        return 0


@pytest.fixture
def house(tmp_path, monkeypatch):
    made = House(tmp_path)
    monkeypatch.setattr(reproduce, "files", lambda: dict.fromkeys(["long", "new", "short"]))
    monkeypatch.setattr(reproduce, "find", made.find)
    monkeypatch.setattr(reproduce, "committed", made.committed)
    monkeypatch.setattr(claims, "run", made.page)
    monkeypatch.chdir(tmp_path)
    return made


def test_the_cheapest_is_first_and_what_nobody_measured_last(house):
    house.commit("long", {"one": 100.0, "two": 50.0})
    house.commit("short", {"one": 4.0})
    assert [(each.name, each.seconds) for each in plan(resume=False)] == [
        ("short", 4.0),
        ("long", 150.0),
        ("new", None),
    ]


def test_seconds_are_those_of_the_steps_that_are_left(house):
    house.commit("long", {"one": 100.0})
    (planned,) = plan(["long"])
    assert (planned.n_steps, planned.n_done, planned.whole, planned.seconds) == (2, 1, False, 100.0)  # as the mean


def test_what_is_whole_is_left_alone_wherever_it_was_measured(house):
    house.commit("long", {"one": 1.0, "two": 1.0}, machine={"cpu": "another"})
    house.commit("short", {"one": 1.0}, machine={"cpu": "another"})
    before = house.committed("long").read_text()
    assert run() == 0
    assert house.ran == ["new one", "new two"]
    assert house.committed("long").read_text() == before
    assert json.loads(house.committed("new").read_text())["tables"]["rows"] == [
        {"part": p, "n": 3} for p in ("one", "two")
    ]
    assert house.pages == [False]  # the page is written, since the committed results may have changed


def test_an_interrupted_run_goes_on(house):
    house.failing["new two"] = KeyboardInterrupt()
    assert run(only=["new", "short"]) == 130
    assert house.pages == []
    assert [path.name for path in house.folder.iterdir()] == ["new.partial.json"]
    house.failing.clear()
    house.ran.clear()
    assert run(only=["new", "short"]) == 0
    assert house.ran == ["new two", "short one"]


@pytest.mark.parametrize("changed", [{"machine": {"cpu": "another"}}, {"sizes": {"n": 4}}, {"seed": 6}])
def test_what_does_not_mix_is_named_and_the_others_go_on(house, changed, capsys):
    house.commit("long", {"one": 1.0}, experiment="long", **changed)
    before = house.committed("long").read_text()
    assert run() == 1
    assert "long was not measured" in " ".join(capsys.readouterr().out.split())
    assert house.committed("long").read_text() == before
    assert [name.split()[0] for name in house.ran] == ["new", "new", "short"]


@pytest.mark.parametrize("changed", [{"sizes": {"n": 4}}, {"seed": 6}])
def test_a_result_of_other_sizes_is_not_whole(house, changed):
    house.commit("long", {"one": 1.0, "two": 1.0}, experiment="long", **changed)
    assert [each.whole for each in plan(["long"])] == [False]
    assert run(only=["long"]) == 1
    assert house.ran == []


def test_a_quick_run_and_another_folder_leave_the_committed_results(house):
    house.commit("long", {"one": 1.0, "two": 1.0})
    assert run(quick=True) == 0
    assert sorted(path.name for path in (house.folder / "build" / "reproduce").iterdir()) == [
        "long.json",
        "new.json",
        "short.json",
    ]
    assert run(only=["short"], out=house.folder / "other") == 0
    assert (house.folder / "other" / "short.json").exists()
    assert house.pages == [True, True]  # compared alone
    assert not house.committed("short").exists()


def test_a_dry_run_measures_nothing(house, capsys):
    house.commit("long", {"one": 60.0, "two": 60.0})
    assert run(dry_run=True, resume=False) == 0
    said = capsys.readouterr().out
    assert "0 of 2" in said
    assert "2.0" in said
    assert "unknown" in said
    assert "3 experiments; those with a known duration need about 2 more minutes." in said
    assert (house.ran, house.pages) == ([], [])


def test_every_row_of_a_dry_run_fits_into_a_line_of_80_columns(capsys):
    """With the real experiments, whose names and folders are the longest."""
    console = Console(file=io.StringIO(), width=80)
    show(plan(), console)
    table, _, said = console.file.getvalue().partition("└")
    lines = [line for line in table.splitlines() if line.startswith("│")]
    assert len(lines) == len(reproduce.names())
    assert "│ sparse_attention_further │ sparse_attention │ " in table
    assert "…" not in table
    assert "Results are written to NAME.json next to each experiment, such as in course_lib/lessons/" in said


def test_a_dry_run_names_the_folder_of_the_results(house, capsys):
    assert run(dry_run=True, out=Path("a/folder")) == 0
    assert "Results are written to NAME.json in a/folder.\n" in capsys.readouterr().out


def test_a_name_that_is_none_is_said():
    with pytest.raises(ValueError, match=r"got experiment 'wandaa'; expected one of .*wanda"):
        plan(["wandaa"])


def test_the_command_passes_everything_on(monkeypatch):
    asked = []
    monkeypatch.setattr(reproduce_all, "run", lambda *arguments: asked.append(arguments) or 0)
    result = CliRunner().invoke(app, ["reproduce", "all", "--only", "kv", "--only", "wanda", "--dry-run", "--quick"])
    assert result.exit_code == 0
    assert asked == [(["kv", "wanda"], None, True, True, True)]
    result = CliRunner().invoke(app, ["reproduce", "kv", "--dry-run"])
    assert "these options work only with `course reproduce all`" in str(result.exception)
