"""Write the zip of a Gradescope autograder, and run it there with the engine of `course grade`.

The format is that of https://gradescope-autograders.readthedocs.io/en/latest/specs/.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from course_lib.grading import engine
from course_lib.grading.export.gradescope_results import VISIBILITIES, results
from course_lib.grading.intake.submission import Submission
from course_lib.grading.intake.submissions import find, newest
from course_lib.grading.records import Limits
from course_lib.grading.release.student_files import tracked
from course_lib.grading.release.zip import write_zip
from course_lib.grading.sandbox import session
from course_lib.grading.store import write as write_whole

SHIPPED = ("LICENSE", "README.md", "pyproject.toml", "requirements.lock", "setup.py")  # in addition to the packages
PROGRAMS = ("setup.sh", "run_autograder")
PLAN = "plan.json"
UNGUARDED = "This was graded without a sandbox (SANDBOX=none in run_autograder)."


def write(out: Path, chosen: list[Path], console: Console, root: Path) -> None:
    """Write the autograder of one lesson.

    Raises:
        ValueError: for more than one lesson; Gradescope has one autograder per assignment.
    """
    if len(chosen) != 1:
        raise ValueError(f"got {len(chosen)} lessons; a Gradescope autograder is for one: add --lesson 04, for one.")
    names = [name for name in tracked(root) if name.startswith(("course_lib/", "kernels/")) or name in SHIPPED]
    files = {name: (root / name).read_bytes() for name in names}
    files |= {name: (Path(__file__).parent / "autograder" / name).read_bytes() for name in PROGRAMS}
    plan = engine.plan(chosen[0].stem, root=root)
    files[PLAN] = json.dumps(asdict(plan), indent=1).encode()
    write_zip(out, files, PROGRAMS)
    console.print(f"{out}: the autograder of {plan.lesson}, {out.stat().st_size / 1e6:.1f} MB", soft_wrap=True)
    console.print("Its settings are the first lines of run_autograder in it. It holds answers: do not share it.")


def read_plan(content: str) -> engine.Plan:
    stored = json.loads(content)
    return engine.Plan(**stored | {"limits": Limits(**stored["limits"])})


def submission(folder: Path, student: str, plan: engine.Plan) -> Submission:
    """Return the notebook of the plan's lesson among the submitted files, whatever their names."""
    candidates = [replace(candidate, student=student) for candidate in find(folder)] if folder.is_dir() else []
    if not candidates:
        return Submission(student, str(folder), problem="nothing was handed in.")
    return newest(candidates, plan.stem, exercises=plan.functions)[0]


def student_of(metadata: Path) -> str:
    """Return the students who submitted; all members of a group."""
    try:
        users = json.loads(metadata.read_text(encoding="utf-8"))["users"]
        return ", ".join(sorted(str(user.get("email") or user["name"]) for user in users)) or "unknown"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "unknown"


def main(arguments: list[str] | None = None) -> int:
    """What run_autograder does. The exit code tells Gradescope whether anything was graded."""
    base = Path(os.environ.get("AUTOGRADER", "/autograder"))
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--look", action="store_true", help="only say whether a sandbox starts here")
    parser.add_argument("--sandbox", choices=("bwrap", "none"), default="bwrap")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hidden-cases", choices=VISIBILITIES, default="after_published")
    options = parser.parse_args(arguments)
    problem = session.unavailable()
    if options.look or (problem and options.sandbox == "bwrap"):
        # No score is better than zero if the student is not to blame; Gradescope shows this to the instructor.
        print(problem or "A sandbox starts here.")
        return 0 if options.look else 1
    start = time.perf_counter()
    plan = replace(
        read_plan((base / "source" / PLAN).read_text(encoding="utf-8")), seed=options.seed, kind=options.sandbox
    )
    handed_in = submission(base / "submission", student_of(base / "submission_metadata.json"), plan)
    try:
        result = engine.grade(handed_in, plan)
    except ValueError as error:  # a sandbox that started a moment ago fails to start now
        print(error)
        return 1
    if result.grader_failed:
        print(result.problem)
        return 1
    warning = UNGUARDED if options.sandbox == "none" else ""
    shown = results(result, options.hidden_cases, time.perf_counter() - start, warning)
    write_whole(base / "results" / "results.json", json.dumps(shown, indent=1))
    print(f"{result.points:g} of {result.of:g} points. {warning}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
