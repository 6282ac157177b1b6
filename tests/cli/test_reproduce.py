import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course_lib.cli import reproduce
from course_lib.cli.app import app
from course_lib.cli.reproduce import run
from course_lib.measure import result_files
from course_lib.measure.experiment import Experiment, Step
from course_lib.measure.result_files import as_text, load, write


@dataclass(frozen=True)
class Sizes:
    n: int


@pytest.fixture
def experiment(monkeypatch):
    """Three steps that add rows to two tables; `failing` holds what a step raises, `ran` what has run."""

    def step(name, sizes, seed):
        experiment.ran.append(name)
        if name in experiment.failing:
            raise experiment.failing[name]
        return {"squares": [{"step": name, "value": sizes.n**2 + seed}], "rest": [{"step": name, "none": math.nan}]}

    def steps(sizes):
        return [Step(name, lambda seed, name=name: step(name, sizes, seed)) for name in ("one", "two", "three")]

    experiment = type("State", (), {"ran": [], "failing": {}})
    made = Experiment("Squares", Sizes(3), Sizes(1), steps, seed=5)
    monkeypatch.setattr(reproduce, "find", lambda name: made)
    monkeypatch.setattr(reproduce, "called", lambda name: name)
    return experiment


def tables(path):
    return json.loads(path.read_text())["tables"]


def test_a_run_writes_rows_and_how_they_came_about(experiment, tmp_path):
    path = tmp_path / "squares.json"
    assert run("squares", path) == 0
    result = json.loads(path.read_text())
    assert result["tables"] == {
        "squares": [{"step": name, "value": 14} for name in ("one", "two", "three")],
        "rest": [{"step": name, "none": None} for name in ("one", "two", "three")],
    }
    assert (result["command"], result["seed"], result["sizes"]) == ("course reproduce squares", 5, {"n": 3})
    assert list(result["steps"]) == ["one", "two", "three"]
    assert {"seconds", "finished"} == set(result["steps"]["one"])
    assert {"cpu", "cores", "threads", "torch", "transformers", "python"} <= set(result["machine"])
    assert list(tmp_path.iterdir()) == [path]


def test_a_quick_run_has_its_own_sizes_and_place(experiment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("squares", quick=True) == 0
    path = tmp_path / "build" / "reproduce" / "squares.json"
    assert tables(path)["squares"][0]["value"] == 6
    assert json.loads(path.read_text())["command"] == "course reproduce squares --quick"


@pytest.mark.parametrize("failure", [RuntimeError("power cut"), KeyboardInterrupt()])
def test_an_interrupted_run_goes_on_where_it_was(failure, experiment, tmp_path):
    path = tmp_path / "squares.json"
    experiment.failing["two"] = failure
    if isinstance(failure, KeyboardInterrupt):
        assert run("squares", path) == 130
    else:
        with pytest.raises(RuntimeError, match="power cut"):
            run("squares", path)
    assert not path.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["squares.partial.json"]
    experiment.failing.clear()
    experiment.ran.clear()
    assert run("squares", path) == 0
    assert experiment.ran == ["two", "three"]
    whole = tmp_path / "whole.json"
    run("squares", whole)
    assert tables(path) == tables(whole)
    assert not (tmp_path / "squares.partial.json").exists()


def test_steps_stand_in_the_experiments_order_whichever_was_finished_first(experiment, tmp_path):
    path = tmp_path / "out.json"
    assert run("squares", path) == 0
    result = json.loads(path.read_text(encoding="utf-8"))
    names = list(result["steps"])
    del result["steps"][names[0]]
    path.write_text(json.dumps(result), encoding="utf-8")
    assert run("squares", path) == 0
    assert list(json.loads(path.read_text(encoding="utf-8"))["steps"]) == names


def test_a_finished_run_is_left_alone_unless_asked(experiment, tmp_path):
    path = tmp_path / "squares.json"
    run("squares", path)
    before = path.read_text()
    experiment.ran.clear()
    assert run("squares", path) == 0
    assert experiment.ran == []
    assert path.read_text() == before
    experiment.failing["three"] = RuntimeError("late")
    with pytest.raises(RuntimeError, match="late"):
        run("squares", path, resume=False)
    assert experiment.ran == ["one", "two", "three"]
    assert path.read_text() == before  # the old result stays until the new one is whole


@pytest.mark.parametrize("key", ["seed", "sizes", "machine", "part"])
def test_numbers_made_in_two_ways_do_not_mix(key, experiment, tmp_path):
    path = tmp_path / "squares.json"
    run("squares", path)
    result = json.loads(path.read_text())
    result[key] = {"other": 1}
    write(result, path)
    with pytest.raises(ValueError, match=f"was made with {key} .*--no-resume"):
        run("squares", path)
    assert run("squares", path, resume=False) == 0


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    write({"steps": {}, "tables": {}, "seed": 1}, path)
    before = path.read_text()
    with pytest.raises(TypeError):
        write({"steps": {}, "tables": {"t": [{"bad": object()}]}}, path)
    monkeypatch.setattr(result_files.Path, "replace", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write({"steps": {}, "tables": {}, "seed": 2}, path)
    assert path.read_text() == before


def test_one_row_stands_on_one_line():
    result = {
        "seed": 1,
        "steps": {"a": {"seconds": 1.0}},
        "tables": {"t": [{"x": 1, "y": (2,)}, {"x": math.inf}], "u": []},
    }
    text = as_text(result)
    assert '   {"x": 1, "y": [2]},\n   {"x": null}\n' in text
    assert json.loads(text) == {
        "seed": 1,
        "steps": {"a": {"seconds": 1.0}},
        "tables": {"t": [{"x": 1, "y": [2]}, {"x": None}], "u": []},
    }


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("folder", r"folder, a folder; expected a file, such as .*squares\.json"),
        ("file/squares.json", "whose folder cannot be made"),
        ("closed/squares.json", "in a folder that you may not write to"),
    ],
)
def test_where_no_result_can_be_is_said_before_anything_is_measured(place, why, experiment, tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    closed = tmp_path / "closed"
    monkeypatch.setattr(reproduce.os, "access", lambda path, mode: path != closed)
    with pytest.raises(ValueError, match=why):
        run("squares", tmp_path / place)
    assert experiment.ran == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *((name, "wanda") for name in ("wanda", "4", "04", "04_wanda")),
        *((name, "classic") for name in ("classic", "2", "02", "optimal_brain_damage_and_surgeon")),
        *((name, "plans") for name in ("start", "0", "00", "start_here")),  # the only one of its lesson
        ("masks", "masks"),
    ],
)
def test_an_experiment_has_its_own_name_and_those_of_its_lesson(name, meant):
    assert reproduce.called(name) == meant


def test_a_lesson_with_several_experiments_lists_them():
    with pytest.raises(
        ValueError, match="got experiment '8'; expected one of backcopy, first_tokens, four_ways, sink_pre"
    ):
        reproduce.called("8")


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="expected one of .*wanda"):
        run("nothing")
    with pytest.raises(ValueError, match="expected what `course reproduce`"):
        load(Path("nothing.json"))


def test_the_command_runs_an_experiment(experiment, tmp_path):
    path = tmp_path / "out.json"
    shown = CliRunner().invoke(app, ["reproduce", "squares", "--quick", "--out", str(path)])
    assert shown.exit_code == 0
    assert "Squares: 3 steps, 0 done already" in shown.output
    assert tables(path)["squares"][0]["value"] == 6


@pytest.mark.parametrize("name", reproduce.names())
def test_every_experiment_has_steps_with_names_of_their_own(name):
    experiment = reproduce.find(name)
    for sizes in (experiment.sizes, experiment.quick):
        labels = [step.name for step in experiment.steps(sizes)]
        assert len(labels) == len(set(labels)) > 0


ROOT = Path(__file__).parents[2]
PLACES = ("course_lib/lessons/*", "course_lib/lessons/*/experiments", "tests/helpers/synthetic")
NO_RESULT = ROOT / "course_lib" / "lessons" / "capstone" / "verdicts.json"  # a summary that `course claims` writes
COMMITTED = sorted(
    path
    for place in PLACES
    for path in ROOT.glob(f"{place}/*.json")
    if ".partial" not in path.name and path != NO_RESULT
)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_committed_results_say_where_they_come_from(path):
    result = load(path)
    assert all(isinstance(row, dict) for rows in result["tables"].values() for row in rows)
    if result.get("published"):
        assert set(result["sources"]) == set(result["tables"])
        assert all(source["url"].startswith("https://") for source in result["sources"].values())
        return
    assert {"command", "seed", "machine", "started"} <= set(result)
    assert reproduce.committed(result["experiment"]) == path
    experiment = reproduce.find(result["experiment"])
    assert list(result["steps"]) == [step.name for step in experiment.steps(experiment.sizes)]
    assert result["sizes"] == json.loads(json.dumps(result_files.plain(reproduce.asdict(experiment.sizes))))
