"""A class's recipes graded on a tiny model, in this process."""

import csv
import io
import json

import pytest
from rich.console import Console
from sharp_model import calibration, sharp_model, texts_of, tiny_judge

from course_lib.compose.challenge.budget import Budget
from course_lib.compose.recipe import Calibration
from course_lib.grading.challenge import evaluation, run

SPACIOUS = Budget(held=1.0, read=1.0)


@pytest.fixture(scope="session")
def sharp():
    return sharp_model()


@pytest.fixture(scope="session")
def on_tiny(sharp, tmp_path_factory):
    """Inside, recipes are measured here, on the tiny model; yields the list of those that were."""
    at = tiny_judge(sharp, texts=texts_of(sharp, n=16))
    master = tmp_path_factory.mktemp("master") / "master.json"
    master.write_text(
        json.dumps({"weights": {"method": "Magnitude", "pattern": 0.05, "bits": 8, "rounding": "nearest"}})
    )
    built = []

    def measure_all(jobs, settings, n):
        for job in jobs:
            built.append(job)
            yield job, evaluation.evaluate(job, settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "judge", lambda settings: at)
        patch.setattr(run, "measure_all", measure_all)
        patch.setattr(run, "MASTER", master)
        patch.setattr(Calibration, "text", calibration)
        yield built


@pytest.fixture(scope="session")
def graded(on_tiny):
    """From a folder to the exit code, the rows of challenge.csv by student, and what was said."""

    def grade(folder, out, **settings):
        console = Console(file=io.StringIO(), width=200)
        code = run.run(run.Request(folder, out, **({"budget": SPACIOUS, "seed": 1} | settings)), console)
        path = out / "challenge.csv"
        text = path.read_text(encoding="utf-8-sig") if path.exists() else ""
        return code, {row["student"]: row for row in csv.DictReader(io.StringIO(text))}, console.file.getvalue()

    return grade
