"""The grader of the challenge on a class of recipes of which the right order is known, on the real model.

Each recipe is a step, measured as `course grade-challenge` measures it. Points and places are worked out from the
losses when they are read, by the grader's own rules.

Tables:

    recipes  of each student and of the three anchors: what is known of the recipe, bytes, the loss of every window

Minutes of one core: 38, on a machine that did other work as well.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from synthetic.recipes import Known, a_class

from course_lib.compose.challenge.budget import BUDGET, Budget
from course_lib.compose.challenge.points import UNIFORM, Anchors
from course_lib.compose.counting.account import LENGTH
from course_lib.compose.recipe import Calibration, from_json
from course_lib.grading.challenge import evaluation, ranking
from course_lib.grading.challenge.evaluation import Found, Job, Settings
from course_lib.grading.challenge.handed_in import HandedIn
from course_lib.grading.challenge.run import DENSE, master
from course_lib.measure.experiment import Experiment, Step, Tables

ANCHORS = ("dense", "uniform", "master")
DIGITS = 5  # of a loss


@dataclass(frozen=True)
class Sizes:
    """Every density with every budget, on so many windows of each of two domains.

    Args:
        n_students: so many of them, in the order of their names, which says nothing of the recipes.
        calibration: windows, and their tokens. anchors: which of the three that points are measured by.
    """

    densities: tuple[float, ...] = (0.75, 0.735, 0.72, 0.705, 0.69, 0.675, 0.66, 0.645, 0.63, 0.615)
    budgets: tuple[float, ...] = (0.3, 0.25, 0.2, 0.15, 0.1)
    n_students: int = 50
    windows: int = 4
    length: int = LENGTH
    calibration: tuple[int, int] = (16, 256)
    anchors: tuple[str, ...] = ANCHORS


QUICK = Sizes((0.75,), (0.3, 0.1), windows=2, length=64, calibration=(2, 32), anchors=("dense",))
SEED = 1


def steps(sizes: Sizes) -> list[Step]:
    """The three that points are measured by, then the class."""
    texts = {"dense": DENSE.recipe, "uniform": UNIFORM, "master": master()}
    of_class = a_class(sizes.densities, sizes.budgets, SEED)
    plan = [Step(name, partial(measured, sizes, name, texts[name], None)) for name in sizes.anchors]
    return plan + [
        Step(student, partial(measured, sizes, student, json.dumps(known.recipe), known))
        for student, known in list(of_class.items())[: sizes.n_students]
    ]


def measured(sizes: Sizes, student: str, recipe: str, known: Known | None, seed: int) -> Tables:
    """One recipe, by the grader.

    Raises:
        ValueError: what the grader would refuse it for.
    """
    found = evaluation.evaluate(_job(sizes, recipe), Settings(seed, sizes.windows, sizes.length))
    if found.problem:
        raise ValueError(f"the recipe of {student} could not be measured: {found.problem}")
    losses = {domain: [round(loss, DIGITS) for loss in windows] for domain, windows in found.losses.items()}
    return {
        "recipes": [
            {"student": student}
            | {"known": asdict(known) if known else None, "account": found.account, "losses": losses}
        ]
    }


def _job(sizes: Sizes, recipe: str) -> Job:
    n, length = sizes.calibration
    return Job(replace(from_json(recipe), calibration=Calibration(windows=n, length=length)).as_json())


def known_of(tables: Tables) -> dict[str, Known]:
    """The class that a result holds."""
    return {row["student"]: Known(**row["known"]) for row in tables["recipes"] if row["known"]}


def graded(tables: Tables, budget: Budget = BUDGET) -> dict[str, ranking.Row]:
    """The rows of `course grade-challenge` for what was measured."""
    found = {row["student"]: _found(row) for row in tables["recipes"]}
    anchors = Anchors(**{name: found[name].measured.losses for name in ANCHORS})
    anchors.check()
    known = known_of(tables)
    works = [HandedIn(name, name, from_json(json.dumps(each.recipe))) for name, each in known.items()]
    of = {ranking.job_of(work): found[work.student] for work in works}
    return {row.student: row for row in ranking.rows(works, of, found["dense"], anchors, budget)}


def _found(row: Mapping[str, Any]) -> Found:
    return Found(row["account"], row["losses"])


EXPERIMENT = Experiment("The challenge's grader on recipes of known order", Sizes(), QUICK, steps, SEED)
