"""Recipes of known order: the pairs that are counted, and an experiment that measures them as the grader does."""

import json

import pytest
from synthetic import experiment_challenge_class as experiment
from synthetic import recipes
from synthetic.recipes import Known, Order, order

from course_lib.compose.challenge.budget import Budget
from course_lib.compose.recipe import from_json
from course_lib.grading.challenge import evaluation
from course_lib.grading.challenge.evaluation import Found

SQUARE = {"most": Known(0.7, 0.3), "dense": Known(0.7, 0.1), "long": Known(0.5, 0.3), "least": Known(0.5, 0.1)}


@pytest.mark.parametrize(
    ("points", "found"),
    [
        ((9.0, 5.0, 7.0, 1.0), Order(5, 0, 0)),
        ((9.0, 7.0, 5.0, 1.0), Order(5, 0, 0)),  # of the two in the middle nothing is known
        ((9.0, 5.0, 7.0, 6.0), Order(5, 1, 0)),
        ((0.0, 5.0, 7.0, 9.0), Order(5, 5, 0)),
        ((9.0, 0.0, 9.0, 0.0), Order(5, 0, 2)),
    ],
)
def test_pairs_by_hand(points, found):
    assert order(SQUARE, dict(zip(SQUARE, points, strict=True))) == found


def test_everybody_of_the_class_needs_points():
    with pytest.raises(ValueError, match="no points for least, long; expected them for everybody"):
        order(SQUARE, {"most": 1.0, "dense": 0.0})


def test_a_class_is_every_pair_under_names_that_say_nothing():
    sizes = experiment.Sizes()
    known = recipes.a_class(sizes.densities, sizes.budgets, experiment.SEED)
    assert len(set(known.values())) == len(known) == 50 >= sizes.n_students
    assert list(known) == sorted(known)
    by_density = [known[name].density for name in known]
    assert by_density not in (sorted(by_density), sorted(by_density, reverse=True))
    assert all(from_json(json.dumps(each.recipe)).part("cache").budget == each.budget for each in known.values())


def test_the_experiment_finds_what_the_grader_finds(graded, on_tiny, tmp_path):
    """The same points, places and bytes as `course grade-challenge` gives the class that it writes."""
    sizes = experiment.Sizes((0.9, 0.3), (1.0, 0.9), n_students=4)
    recipes.make(tmp_path, recipes.a_class(sizes.densities, sizes.budgets, experiment.SEED))
    code, rows, _ = graded(tmp_path / recipes.SUBMISSIONS, tmp_path / "out")
    steps = experiment.steps(sizes)
    assert [step.name for step in steps] == [*experiment.ANCHORS, *sorted(rows)]
    tables = json.loads(json.dumps({"recipes": [row for step in steps for row in step.run(1)["recipes"]]}))
    found = experiment.graded(tables, Budget(held=1.0, read=1.0))
    assert code == 0
    as_written = {name: (float(row["points"]), int(row["place"]), row["held_mb"]) for name, row in rows.items()}
    assert as_written == {
        name: (row.points, row.place, f"{row.judged.found.held / 1e6:.2f}") for name, row in found.items()
    }
    points = {name: row.points for name, row in found.items()}
    assert len(set(points.values())) > 2
    assert recipes.order_found(tmp_path, tmp_path / "out") == order(experiment.known_of(tables), points)


def test_what_the_grader_refuses_stops_the_experiment(monkeypatch):
    monkeypatch.setattr(evaluation, "evaluate", lambda job, settings: Found(problem="too large"))
    with pytest.raises(ValueError, match="recipe of dense could not be measured: too large"):
        experiment.steps(experiment.QUICK)[0].run(1)
