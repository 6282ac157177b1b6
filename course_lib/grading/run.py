"""`course grade`: write grades, feedback and a report for a folder of submissions."""

import hashlib
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

from rich.console import Console

from course_lib.grading import engine, store
from course_lib.grading.export import lms
from course_lib.grading.intake.submission import Submission
from course_lib.grading.intake.submissions import file_name, find, newest
from course_lib.grading.records import Result
from course_lib.grading.report import feedback, page, text
from course_lib.grading.report.tally import Facts, common_reason, nothing_ran
from course_lib.grading.sandbox import session
from course_lib.grading.workers import pool
from course_lib.measure.progress import bar
from course_lib.measure.result_files import machine, now

Pairs = Iterable[tuple[Submission, Result]]
MOST_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Request:
    """The options of `course grade`."""

    folder: Path
    out: Path
    lesson: str | None = None
    _: KW_ONLY
    jobs: int | None = None
    seed: int = 0
    seconds: float | None = None
    resume: bool = False
    kind: Literal["bwrap", "none"] = "bwrap"
    pattern: str | None = None
    roster: Path | None = None
    scheduler: str | None = None
    canvas: str | None = None
    moodle: str | None = None
    known_by: str | None = None


def run(request: Request, console: Console) -> int:
    """Grade a class; return 0 if every submission has its rows, 1 if the grader failed on some, 130 if interrupted.

    Raises:
        ValueError: if the folder, lesson, pattern or roster cannot be used, or there is no sandbox.
    """
    if request.kind not in ("bwrap", "none"):
        raise ValueError(f"got sandbox {request.kind!r}; expected bwrap or none.")
    check_columns(request.canvas, request.moodle, request.known_by)
    candidates = find(request.folder, request.pattern, roster_of(request.roster))
    if not candidates:
        raise ValueError(f"got no submissions in {request.folder}; expected notebooks, folders of them, or zips.")
    if request.seconds is not None and not 1 <= request.seconds <= MOST_SECONDS:
        raise ValueError(f"got --seconds {request.seconds:g}; expected from 1 to {MOST_SECONDS}, for one submission.")
    plan = engine.plan(request.lesson or _lesson(candidates), request.seed, request.kind, seconds=request.seconds)
    submissions = newest(candidates, plan.stem, exercises=plan.functions)
    if request.kind == "bwrap" and (problem := session.unavailable()) and not request.scheduler:
        raise ValueError(problem)
    check_out(request.out, request.resume)
    if request.kind == "none":
        console.print(
            "[bold yellow]no sandbox[/]: the students' code runs with your rights. Only for your own machine."
        )
    started, clock = now(), time.perf_counter()
    # Computed first: a notebook that is replaced while its old version is graded is graded again next time.
    keys = {submission.student: _key(submission, plan) for submission in submissions}
    finished, left = _split(submissions, keys, request)
    console.print(f"Lesson {plan.lesson}: {len(submissions)} submissions, {len(finished)} graded already")
    try:
        with closing(_graded(left, plan, request)) as graded:
            for submission, result in _shown(graded, len(left), console):
                store.save(request.out, result, keys[submission.student])
                finished[submission.student] = result
    except KeyboardInterrupt:
        console.print(
            f"Stopped. {len(finished)} of {len(submissions)} grades are stored; `--resume` continues from there."
        )
        return 130
    seconds = time.perf_counter() - clock
    results = [finished[submission.student] for submission in submissions]
    left_out = write_all(results, plan, request, started, seconds, len(left))
    _say(results, request.out, seconds, len(left), console)
    for line in left_out:
        console.print(line, markup=False, soft_wrap=True, style="bold yellow")
    return _failures(results, console) or int(bool(left_out))


def _failures(results: list[Result], console: Console) -> int:
    """Return the exit code, and print what to do about submissions that are not to blame for their zero."""
    n = sum(result.grader_failed for result in results)
    if n:
        console.print(f"[bold red]The grader itself failed on {n}[/]. Fix the cause; `--resume` grades them again.")
    return 1 if n else 0


def check_columns(canvas: str | None, moodle: str | None, known_by: str | None) -> None:
    """Check the options for course systems before grading: known columns, and no option without its table."""
    for option, named in (("--canvas", canvas), ("--moodle", moodle)):
        if named is not None and not named.strip():
            raise ValueError(f"got an empty {option}; expected what the grade is called there, or no {option}.")
    if known_by is not None and canvas is None and moodle is None:
        raise ValueError(f"got --known-by {known_by!r} alone; expected --canvas or --moodle as well.")
    if canvas is not None:
        lms.canvas_csv([], canvas)
    for heading, columns in ((canvas, get_args(lms.CanvasId)), (moodle, get_args(lms.MoodleId))):
        if heading and known_by and known_by not in columns:
            raise ValueError(f"got --known-by {known_by!r}; expected one of {', '.join(columns)}.")


def _lesson(submissions: list[Submission]) -> str:
    """Return the one lesson that the file names refer to."""
    named = sorted({lesson for submission in submissions if (lesson := getattr(submission, "lesson", ""))})
    if len(named) != 1:
        which = f"of lessons {', '.join(named)}" if named else "whose names do not tell the lesson"
        raise ValueError(f"got notebooks {which}; say which one to grade, such as --lesson 04.")
    return named[0]


def check_out(out: Path, resume: bool) -> None:
    """Check the folder before grading: it can be written to, and contains no grades.

    Grades are not overwritten by accident: an earlier run is continued with --resume, or another folder is named.
    """
    if not resume and any((out / "results").glob("*.json")):
        raise ValueError(
            f"{out} contains grades already. Use --resume to keep valid grades and grade the rest "
            "(grades of exercises that have changed are no longer valid), or another --out."
        )
    try:
        (out / "results").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out / "results"):
            pass
    except OSError as error:
        raise ValueError(
            f"got --out {out}, where nothing can be written ({error.strerror}); expected a folder of your own, "
            "new or from an earlier run."
        ) from None


def roster_of(path: Path | None) -> list[str] | None:
    """Read student ids, one per line, or the first column of a CSV."""
    if path is None:
        return None
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the roster {path} cannot be read: {error}; expected one student id per line.") from None
    ids = [line.split(",")[0].strip().strip('"') for line in lines if line.split(",")[0].strip()]
    if not ids:
        raise ValueError(f"got the roster {path}, which is empty; expected one student id per line.")
    return ids


def _split(
    submissions: list[Submission], keys: dict[str, str], request: Request
) -> tuple[dict[str, Result], list[Submission]]:
    """Split into stored results, from the same notebook in the same way, and submissions to grade."""
    finished, left = {}, []
    for submission in submissions:
        kept = store.load(request.out, submission.student, keys[submission.student]) if request.resume else None
        if kept is None or kept.grader_failed:
            left.append(submission)
        else:
            finished[submission.student] = kept
    return finished, left


def _key(submission: Submission, plan: engine.Plan) -> str:
    """Return a digest of the notebook and of the settings for grading."""
    try:
        content = submission.read()
    except Exception as error:  # as in engine.grade: then the row says so, and is the same next time
        content = f"{type(error).__name__}: {error}".encode()
    return f"{plan.key}/{hashlib.sha256(content).hexdigest()[:16]}"


def _graded(left: list[Submission], plan: engine.Plan, request: Request) -> Iterator[tuple[Submission, Result]]:
    if request.scheduler is None:
        return pool.grade_all(left, plan, request.jobs or pool.default_jobs())
    from course_lib.grading.workers import cluster

    return cluster.grade_all(left, plan, request.scheduler)


def _shown(graded: Pairs, total: int, console: Console) -> Iterator[tuple[Submission, Result]]:
    """Yield the same pairs while showing a progress bar."""
    with bar(console=console) as shown:
        task = shown.add_task("grading", total=total)
        for submission, result in graded:
            yield submission, result
            latest = f"{submission.student[:30]} has {result.points:g} of {result.of:g} points"
            shown.update(task, advance=1, description=f"grading ({latest})")


def write_all(
    results: list[Result], plan: engine.Plan, request: Request, started: str, seconds: float, n_graded: int
) -> list[str]:
    """Write all files of the class, each whole; return who is missing from the tables for course systems, and why."""
    out, facts = request.out, Facts(plan.lesson, plan.seed, started, seconds, n_graded, request.kind, versions())
    for result in results:
        store.write(out / "feedback" / f"{file_name(result.student)}.html", feedback.html(result))
    store.write(out / "grades.csv", lms.grades_csv(results))
    store.write(out / "grades.json", store.as_json(as_data(results, plan, request, facts)))
    store.write(out / "report.html", page.html(results, facts))
    tables = {}
    if request.canvas:
        tables["canvas.csv"] = lms.canvas_csv(results, request.canvas, request.known_by or "ID")
    if request.moodle:
        tables["moodle.csv"] = lms.moodle_csv(results, request.moodle, request.known_by or "Email address")
    for name, table in tables.items():
        store.write(out / name, table.text)
    return [f"{name} leaves out {reason}" for name, table in tables.items() for reason in table.left_out]


def as_data(results: list[Result], plan: engine.Plan, request: Request, facts: Facts) -> dict[str, Any]:
    """Return the data of grades.json: every result, and the settings that it was made with."""
    return {
        "lesson": plan.lesson,
        "seed": plan.seed,
        "key": plan.key,
        "sandbox": request.kind,
        "started": facts.started,
        "seconds": round(facts.seconds, 1),
        "versions": facts.versions,
        "machine": machine(),
        "results": [store.to_json(result) for result in results],
    }


def versions() -> dict[str, str]:
    return {name: version(name) for name in ("sparsity-workbook", "torch", "numpy", "safetensors")}


def _say(results: list[Result], out: Path, seconds: float, n_graded: int, console: Console) -> None:
    """Print the outcome and what to do next."""
    lost = [(result, result.problem) for result in results if result.problem]
    silent = [(result, f"nothing ran. {common_reason(result)}") for result in results if nothing_ran(result)]
    rate = f", {60 * n_graded / seconds:.0f} per minute" if n_graded and seconds else ""
    console.print(
        f"{n_graded} submissions graded in {seconds:.0f} s{rate}; {len(lost)} could not be graded"
        f"{f', in {len(silent)} nothing ran' if silent else ''}."
    )
    plain = {"markup": False, "highlight": False, "soft_wrap": True}
    for result, why in (lost + silent)[:10]:
        console.print(f"  {text.name(result.student)}, {text.name(result.origin)}: {text.clean(why)}", **plain)
    if len(lost + silent) > 10:
        console.print(f"  and {len(lost + silent) - 10} more, all in the report")
    where = f"Open {out / 'report.html'}; grades are in {out / 'grades.csv'}, feedback in {out / 'feedback'}."
    console.print(where, markup=False, soft_wrap=True)
