"""A class of 50 recipes of known order is ranked right; an interrupted run goes on; equal recipes are built once."""

import csv
import io
import json
import random

import pytest
import torch

from course_lib.grading.challenge import run
from course_lib.grading.challenge.evaluation import evaluate

# The more is pruned, the worse: by 0.1 nats or more from one to the next, three errors of 16 windows.
LEVELS = (0.1, 0.18, 0.22, 0.26, 0.3, 0.34, 0.38, 0.41, 0.44, 0.47)
# All neurons are chosen and nothing leaves the cache: the loss stays, up to the order of sums; bytes are held in vain.
VAIN = (
    {},
    {"cache": {"policy": "Full"}},
    *({"neurons": {"selector": "LowRank", "density": 1.0, "settings": {"rank": rank}}} for rank in (2, 4, 8)),
)
TRUTH = [(level, variant) for level in range(len(LEVELS)) for variant in range(len(VAIN))]


def recipe_of(level, variant):
    return {"weights": {"method": "Magnitude", "pattern": LEVELS[level], "bits": 8, "rounding": "nearest"}} | VAIN[
        variant
    ]


def hand_in(folder, student, recipe):
    (folder / student).mkdir(parents=True)
    (folder / student / "recipe.json").write_text(json.dumps(recipe))


@pytest.fixture(scope="module")
def fifty(tmp_path_factory, graded):
    """Under names that say nothing of the order."""
    folder = tmp_path_factory.mktemp("fifty")
    names = [f"student{number:02}" for number in range(len(TRUTH))]
    random.Random(0).shuffle(names)
    for name, which in zip(names, TRUTH, strict=True):
        hand_in(folder / "in", name, recipe_of(*which))
    code, rows, said = graded(folder / "in", folder / "out")
    return names, code, rows, said, folder / "out"


def test_fifty_are_ranked_right(fifty):
    names, code, rows, _, _ = fifty
    assert code == 0
    assert sorted(rows, key=lambda student: int(rows[student]["place"])) == names
    assert [int(rows[name]["place"]) for name in names] == list(range(1, 51))


def test_as_many_points_for_the_same_loss(fifty):
    """Sums in another order (a whole matrix, or its chosen rows) move no loss by as much as a tenth of a point."""
    names, _, rows, _, _ = fifty
    for level in range(len(LEVELS)):
        same = [rows[name] for name, which in zip(names, TRUTH, strict=True) if which[0] == level]
        assert len({row["points"] for row in same}) == 1
        assert [float(row["held_mb"]) for row in same] == sorted(float(row["held_mb"]) for row in same)
    assert 0 < float(rows[names[-1]]["points"]) < float(rows[names[0]]["points"]) <= 20


def test_how_much_one_window_decides_is_said(fifty):
    _, _, rows, said, _ = fifty
    most = max(float(row["swing"]) for row in rows.values())
    assert f"{most:.2f} points" in said
    assert all(float(row["swing"]) > 0 for row in rows.values() if 0 < float(row["points"]) < 20)


def test_the_other_tables_are_those_of_the_other_lessons(fifty):
    names, _, rows, _, out = fifty
    with (out / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        grades = {row["student"]: row for row in csv.DictReader(file) if row["exercise"] == "capstone.challenge"}
    assert {name: float(row["points"]) for name, row in grades.items()} == {
        name: float(row["points"]) for name, row in rows.items()
    }
    data = json.loads((out / "challenge.json").read_text())
    assert [row["student"] for row in data["rows"]] == names
    assert (data["seed"], data["windows"], set(data["anchors"])) == (1, 32, {"dense", "uniform", "master"})


def test_equal_recipes_are_built_once(graded, on_tiny, tmp_path):
    """Keys in another order and what is as it would be anyway make no other recipe."""
    same = (
        {"weights": {"bits": 4}},
        {"weights": {"bits": 4, "group": None}},
        {"weights": {"bits": 4}, "calibration": {}},
    )
    for index, recipe in enumerate(same):
        hand_in(tmp_path / "in", f"s{index}", recipe)
    on_tiny.clear()
    _, rows, _ = graded(tmp_path / "in", tmp_path / "out")
    assert len(on_tiny) == 4  # and the three anchors
    assert {(row["place"], row["notes"]) for row in rows.values()} == {("1", "the same recipe as 2 others")}


def test_an_interrupted_run_goes_on(graded, on_tiny, tmp_path, monkeypatch):
    """What is measured is kept, also of a recipe that was refused; the seed that was drawn is the same."""
    for index, recipe in enumerate(
        [{"weights": {"bits": 4}}, {"weights": {"bits": 3}}, {"prompt": {"file": "no.safetensors"}}]
    ):
        hand_in(tmp_path / "in", f"s{index}", recipe)
    measure_all = run.measure_all

    def interrupted(jobs, settings, n):
        for index, pair in enumerate(measure_all(jobs, settings, n)):
            if index == 4:
                raise KeyboardInterrupt
            yield pair

    monkeypatch.setattr(run, "measure_all", interrupted)
    code, rows, said = graded(tmp_path / "in", tmp_path / "out", seed=None)
    assert (code, rows) == (130, {})
    assert "4 of 5 recipes are stored; `--resume` continues" in said
    assert not [path for path in (tmp_path / "out").rglob("*") if path.name.startswith(".")]
    monkeypatch.setattr(run, "measure_all", measure_all)
    with pytest.raises(ValueError, match="Use --resume"):
        graded(tmp_path / "in", tmp_path / "out", seed=None)
    seed = json.loads((tmp_path / "out" / "seed.json").read_text())["seed"]
    on_tiny.clear()
    code, rows, _ = graded(tmp_path / "in", tmp_path / "out", seed=None, resume=True)
    assert (code, len(on_tiny)) == (0, 1)
    assert json.loads((tmp_path / "out" / "challenge.json").read_text())["seed"] == seed
    whole = graded(tmp_path / "in", tmp_path / "whole", seed=seed)[1]
    assert rows == whole


NO_SEEDS = (
    "",
    "[" * 100_000,
    '{"seed": 1',
    "[1]",
    "{}",
    '{"seed": null}',
    '{"seed": "1"}',
    '{"seed": true}',
    '{"seed": -1}',
    "\xff",
)


def test_a_damaged_seed_is_said_and_nothing_is_lost(graded, on_tiny, tmp_path):
    hand_in(tmp_path / "in", "a", {"weights": {"bits": 4}})
    _, rows, _ = graded(tmp_path / "in", tmp_path / "out", seed=7)
    for damaged in NO_SEEDS:
        (tmp_path / "out" / "seed.json").write_bytes(damaged.encode("latin-1"))
        before = contents(tmp_path / "out")
        with pytest.raises(ValueError, match=r"seed\.json, which contains no seed; .* --seed") as caught:
            graded(tmp_path / "in", tmp_path / "out", seed=None, resume=True)
        assert "\n" not in str(caught.value)
        assert contents(tmp_path / "out") == before
    on_tiny.clear()
    assert graded(tmp_path / "in", tmp_path / "out", seed=7, resume=True)[1] == rows
    assert on_tiny == [], "all that was measured counts again"
    assert json.loads((tmp_path / "out" / "seed.json").read_text()) == {"seed": 7}


def test_a_run_that_is_refused_keeps_the_seed_of_the_last(graded, on_tiny, tmp_path):
    """Of an unfinished run it is nowhere else. Nor does a link that leads nowhere draw another one."""
    hand_in(tmp_path / "in", "a", {"weights": {"bits": 4}})
    graded(tmp_path / "in", tmp_path / "out", seed=5)
    seed = tmp_path / "out" / "seed.json"
    with pytest.raises(ValueError, match="got --text"):
        graded(tmp_path / "in", tmp_path / "out", seed=7, resume=True, text=tmp_path / "nope.txt")
    assert json.loads(seed.read_text()) == {"seed": 5}
    seed.unlink()
    seed.symlink_to(tmp_path / "nowhere.json")
    with pytest.raises(ValueError, match=r"seed\.json, which contains no seed"):
        graded(tmp_path / "in", tmp_path / "out", seed=None, resume=True)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_who_is_missing_has_a_row_and_course_systems_their_tables(graded, tmp_path):
    hand_in(tmp_path / "in", "jo_7", {"weights": {"bits": 4}})
    (tmp_path / "roster.txt").write_text("jo_7\nkim_8\n")
    code, rows, _ = graded(
        tmp_path / "in", tmp_path / "out", roster=tmp_path / "roster.txt", canvas="Challenge (12)", moodle="Challenge"
    )
    assert code == 0
    assert rows["kim_8"]["state"] == "no submission"
    assert rows["kim_8"]["reason"] == "nothing was handed in."
    table = list(csv.DictReader(io.StringIO((tmp_path / "out" / "canvas.csv").read_text())))
    assert {row["Student"]: row["Challenge (12)"] for row in table if row["ID"]} == {
        "jo_7": rows["jo_7"]["points"],
        "kim_8": "",
    }
    assert "jo_7" in (tmp_path / "out" / "moodle.csv").read_text()


def test_what_is_handed_in_is_not_believed(graded, tmp_path):
    """A number that is sent along is refused as an unknown field."""
    hand_in(tmp_path / "in", "a", {"weights": {"bits": 4}, "loss": 0.0, "bytes": 1})
    _, rows, _ = graded(tmp_path / "in", tmp_path / "out")
    assert (rows["a"]["points"], rows["a"]["place"]) == ("0", "")
    assert "'loss' in the recipe" in rows["a"]["reason"]


def test_threads_move_no_grade(sharp, on_tiny):
    """Tolerance: with two threads sums go in another order; of 20 points for 1.5 nats that moves far less than 0.1."""
    job = run.Job(json.dumps(recipe_of(4, 3)))
    losses = []
    for n in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(n)
        try:
            losses.append(evaluate(job, run.Settings(seed=0)).losses["boolq"])
        finally:
            torch.set_num_threads(before)
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
