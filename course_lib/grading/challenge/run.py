"""`course grade-challenge`: compute points, a ranking and the tables of the other lessons from a folder of recipes.

Submissions are data. The grader builds each model itself, counts its bytes itself, and measures loss on texts that it
chose: no time and no number from a submission counts.
"""

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path

from rich.console import Console

from course_lib.compose.challenge.budget import BUDGET, Budget
from course_lib.compose.challenge.memory import Memory
from course_lib.compose.challenge.points import FULL, UNIFORM, Anchors
from course_lib.compose.reading import MOST_SEED
from course_lib.compose.recipe import Recipe, from_json
from course_lib.grading import store
from course_lib.grading.challenge import feedback, tables
from course_lib.grading.challenge.evaluation import Found, Job, Settings
from course_lib.grading.challenge.handed_in import HandedIn, handed_in
from course_lib.grading.challenge.ranking import Row, job_of, rows
from course_lib.grading.challenge.watching import measure_all
from course_lib.grading.export import lms
from course_lib.grading.intake.student_ids import file_name
from course_lib.grading.run import check_columns, check_out, roster_of, versions
from course_lib.measure.progress import bar
from course_lib.measure.result_files import machine, now

MASTER = Path(__file__).with_name("master.json")
DENSE = Job(Recipe().as_json())
HALF_A_POINT = 0.5
# Processor time for one recipe. Measured: recipes with H2O, CATS and a cache on 4 bits take 10 to 38 s for a window of
# each domain, including building them, in wall-clock time on one thread (challenge_class.json, challenge_noise.json).
# Not measured: other policies and selectors in full, among them EMS and D2O, which merge, and other processors.
SECONDS_A_WINDOW = 60.0
MOST_TEXT = 32 * 2**20


@dataclass(frozen=True)
class Request:
    """The options of `course grade-challenge`."""

    folder: Path
    out: Path
    _: KW_ONLY
    text: Path | None = None
    seed: int | None = None
    windows: int = 32
    budget: Budget = BUDGET
    jobs: int = 1
    seconds: float | None = None
    resume: bool = False
    pattern: str | None = None
    roster: Path | None = None
    canvas: str | None = None
    moodle: str | None = None
    known_by: str | None = None


def run(request: Request, console: Console) -> int:
    """Grade a class; return 0 if every student has a row, 1 if the grader failed on some, 130 if interrupted.

    Raises:
        ValueError: if the folder, text, roster or budget cannot be used.
    """
    check_columns(request.canvas, request.moodle, request.known_by)
    works = handed_in(request.folder, request.pattern, roster_of(request.roster))
    if not works:
        raise ValueError(f"got no recipes in {request.folder}; expected JSON files, folders of them, or zips.")
    check_out(request.out, request.resume)
    settings, started = _settings(request), now()
    anchors = {"dense": DENSE, "uniform": Job(from_json(UNIFORM).as_json()), "master": Job(master())}
    jobs = list(dict.fromkeys([*anchors.values(), *filter(None, map(job_of, works))]))
    console.print(f"{len(works)} students, {len(jobs)} recipes with the three that points are measured by")
    found: dict[Job, Found] = {}
    scale: Anchors | None = None
    try:
        with closing(_measured(jobs, settings, request)) as measured, bar(console=console) as shown:
            task = shown.add_task("measuring recipes", total=len(jobs))
            for job, each in measured:
                found[job] = each
                _refuse(anchors, job, each)
                if len(found) >= len(anchors) and scale is None and all(one in found for one in anchors.values()):
                    scale = _scale(anchors, found)  # before hours are spent on a text that cannot rank recipes
                shown.advance(task)
    except KeyboardInterrupt:
        console.print(f"Stopped. {len(found)} of {len(jobs)} recipes are stored; `--resume` continues from there.")
        return 130
    ranked = rows(works, found, found[DENSE], scale, settings.budget)
    _write_feedback(ranked, works, found, scale, request.out)
    left_out = _write(ranked, request, settings, scale, started)
    return _say(ranked, left_out, request.out, console)


def _scale(anchors: dict[str, Job], found: Mapping[Job, Found]) -> Anchors:
    """Return the anchors of the points; raise ValueError if the text does not distinguish recipes."""
    scale = Anchors(**{name: found[job].measured.losses for name, job in anchors.items()})
    scale.check()
    return scale


def master() -> str:
    """Load the master's recipe, which students do not have."""
    return from_json(MASTER.read_bytes()).as_json()


def _settings(request: Request) -> Settings:
    """Make the settings, with a new random seed; a resumed run keeps its seed."""
    path = request.out / "seed.json"
    seed = request.seed
    if seed is None:
        seed = _kept_seed(path) if os.path.lexists(path) else secrets.randbelow(MOST_SEED)
    text = None
    if request.text is not None:
        if not request.text.is_file() or request.text.stat().st_size > MOST_TEXT:
            raise ValueError(f"got --text {request.text}; expected a text file of at most {MOST_TEXT >> 20} MiB.")
        text = request.text.read_text(encoding="utf-8", errors="replace")
    store.write(path, store.as_json({"seed": seed}))  # after all checks have passed
    seconds = request.seconds or SECONDS_A_WINDOW * request.windows
    return Settings(seed, request.windows, text=text, budget=request.budget, seconds=seconds)


def _kept_seed(path: Path) -> int:
    """Load the random seed of the run that is resumed; with another seed, all grades would change."""
    try:
        seed = json.loads(path.read_text(encoding="utf-8"))["seed"]
        if type(seed) is int and 0 <= seed <= MOST_SEED:
            return seed
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    raise ValueError(
        f'got {path}, which contains no seed; expected JSON such as {{"seed": 2027}}. Measurements are valid for '
        "one seed: give it with --seed (it is in challenge.json of a finished run), or remove the file, and all "
        "recipes are measured again with a new seed."
    )


def _measured(jobs: Sequence[Job], settings: Settings, request: Request) -> Iterator[tuple[Job, Found]]:
    """Yield the stored results of an earlier run, then measure the rest and store each result at once."""
    memory = Memory(request.out / "results")
    left = []
    for job in jobs:
        kept = memory.get(f"{settings.key} {job.key}")
        if kept is None:
            left.append(job)
        else:
            yield job, Found(**kept)
    with closing(measure_all(left, settings, request.jobs)) as fresh:
        for job, found in fresh:
            if not found.failed:
                memory.keep(f"{settings.key} {job.key}", asdict(found))
            yield job, found


def _refuse(anchors: dict[str, Job], job: Job, found: Found) -> None:
    """Stop if one of the three recipes that define the points could not be measured."""
    for name, each in anchors.items():
        if each == job and found.problem:
            raise ValueError(f"the {name} recipe could not be measured: {found.problem}")


def _write_feedback(
    ranked: list[Row], works: Sequence[HandedIn], found: Mapping[Job, Found], anchors: Anchors, out: Path
) -> None:
    """Write a page for each student, with the same file name as in `course grade`."""
    of = {work.student: work for work in works}
    for row in ranked:
        work = of[row.student]
        html = feedback.html(work, row, found.get(job_of(work)), anchors)
        store.write(out / "feedback" / f"{file_name(row.student)}.html", html)


def _write(ranked: list[Row], request: Request, settings: Settings, anchors: Anchors, started: str) -> list[str]:
    """Write all files, each whole or not at all; return who is missing from the tables for course systems, and why."""
    out, results = request.out, [row.result for row in ranked]
    store.write(out / "challenge.csv", tables.ranking_csv(ranked, FULL))
    store.write(out / "grades.csv", lms.grades_csv(results))
    data = {"lesson": "12 Capstone", "seed": settings.seed, "windows": settings.windows, "length": settings.length}
    data |= {"text": str(request.text or ""), "budget": asdict(settings.budget), "anchors": asdict(anchors)}
    data |= {"started": started, "versions": versions(), "machine": machine(), "rows": tables.as_data(ranked)}
    store.write(out / "challenge.json", store.as_json(data))
    written = {}
    if request.canvas:
        written["canvas.csv"] = lms.canvas_csv(results, request.canvas, request.known_by or "ID")
    if request.moodle:
        written["moodle.csv"] = lms.moodle_csv(results, request.moodle, request.known_by or "Email address")
    for name, table in written.items():
        store.write(out / name, table.text)
    return [f"{name} leaves out {reason}" for name, table in written.items() for reason in table.left_out]


def _say(ranked: list[Row], left_out: list[str], out: Path, console: Console) -> int:
    """Print the outcome, how much one window decides, and what to do next."""
    placed, failed = [row for row in ranked if row.place], [row for row in ranked if row.failed]
    where = f"the ranking is in {out / 'challenge.csv'}, feedback in {out / 'feedback'}"
    console.print(f"{len(placed)} of {len(ranked)} are within the budget; {where}.", soft_wrap=True)
    swing = max((row.swing for row in placed), default=0.0)
    more = "" if swing < HALF_A_POINT else " That is too much: use more --windows."
    console.print(f"Without any one of the windows, grades change by at most {swing:.2f} points.{more}", soft_wrap=True)
    for line in [*left_out, *(f"The grader failed on {row.student}: {row.reason}" for row in failed)]:
        console.print(line, markup=False, soft_wrap=True, style="bold yellow")
    if failed:
        console.print("Fix the cause; `--resume` measures them again.")
    return int(bool(failed or left_out))
