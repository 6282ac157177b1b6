"""A made-up class with all that can happen to a submission, drawn from a seed: for the tests of pages and tables."""

import random

from course_lib.grading.records import CaseResult, ExerciseResult, Result
from course_lib.lessons.wanda.exercises import EXERCISES

LESSON = "04 Wanda"
ODD = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=cmd|' /C calc'!A0",
    "عبد الرحمن الخوارزمي",
    "דנה לוי",
    "👩🏽‍🔬 Ada",
    "Wolfeschlegelsteinhausenbergerdorff-Featherstonehaugh-" * 2,
    "-5",
    "\u202egnp.exe",
    "O’Brien, Séamus & Søren",
    "王小明",
    "a" * 90,
)
CODE = {
    exercise.id: f"def f(a, b):\n{'    c = a.abs() * b.norm(dim=0)' * (4 + i)}\n    return c"
    for i, exercise in enumerate(EXERCISES)
}
TRACE = """Traceback (most recent call last):
  File "cell 12", line 3, in wanda_score
    return weight.abs() * inputs.norm(dim=1)
           ~~~~~~~~~~~~~^~~~~~~~~~~~~~~~~~~~
RuntimeError: The size of tensor a (4) must match the size of tensor b (96) at non-singleton dimension 1
\x1b[0;31m<b onmouseover=alert(1)>not bold</b>\x1b[0m
"""
PROBLEMS = (
    "The notebook is not valid JSON: it ends in the middle of a cell. Save it again and hand it in again.",
    "got a notebook of more than 32 MiB; clear its outputs and hand it in again.",
    "There was no notebook in the zip.",
)


def student_name(index: int, draw: random.Random) -> str:
    if index % 17 == 0 and index // 17 < len(ODD):
        return ODD[index // 17]
    family = draw.choice(["smith", "garcia", "nguyen", "kowalski", "li"])
    return f"{draw.choice('abcdefghijklmnoprstw')}{family}{index:03}"


def case_results(draw: random.Random, n_right: int, n_cases: int) -> tuple[CaseResult, ...]:
    names = ["a 3 × 4 layer worked by hand", "37 × 96", "a dead input", "not contiguous", "one token", "bfloat16"]
    wrong = "first different at [0, 1]: got 3.2, expected 4; 12 of 12 entries differ"
    right = set(draw.sample(range(n_cases), n_right))
    return tuple(
        CaseResult(names[i % 6], i >= n_cases - 2, None if i in right else "wrong" if i >= n_cases - 2 else wrong)
        for i in range(n_cases)
    )


def exercise_result(exercise, skill: float, draw: random.Random) -> ExerciseResult:
    chance = skill - 0.07 * exercise.difficulty + 0.2
    of, row = float(exercise.points), (exercise.id, exercise.title)
    seconds = round(draw.lognormvariate(-2, 1), 2)
    if draw.random() > skill + 0.35:
        return ExerciseResult(*row, 0.0, of, "not attempted", "The cell is as it was given.")
    if draw.random() < 0.02:
        return ExerciseResult(*row, 0.0, of, "not found", "No function called wanda_score was found in any cell.")
    if draw.random() < 0.02:
        reason = "it did not finish within 60 seconds: does the loop end?"
        return ExerciseResult(*row, 0.0, of, "failed", reason, trace=TRACE, seconds=60.0)
    n_cases = 5 + exercise.difficulty % 2
    code = CODE[exercise.id] if draw.random() < 0.03 else f"{draw.getrandbits(64):x}"
    common = {"seconds": seconds, "code": code}
    if draw.random() < chance:
        calls = draw.random() < 0.01
        common |= {"only_calls": calls, "uses": ("course_lib.pruning.methods.wanda.Wanda",) if calls else ()}
        return ExerciseResult(*row, of, of, "right", cases=case_results(draw, n_cases, n_cases), **common)
    n_right = draw.choice((0, 0, 0, 1, 2, 3))
    mistake = draw.choice(exercise.mistakes) if draw.random() < 0.7 else None
    cases = case_results(draw, n_right, n_cases)
    first = next(case for case in cases if case.difference)
    return ExerciseResult(
        *row,
        round(of * n_right / n_cases, 2),
        of,
        "partly" if n_right else "wrong",
        f"wrong on a hidden case: {first.name}" if first.hidden else f"{first.name}: {first.difference}",
        mistake=mistake.name if mistake else "",
        explanation=mistake.explanation if mistake else "",
        hint=exercise.hints[0],
        cases=cases,
        trace=TRACE if draw.random() < 0.4 else "",
        notes=("The function is defined in two cells; the later one was graded.",) if draw.random() < 0.1 else (),
        touched=("open solutions/04_wanda.py",) if draw.random() < 0.005 else (),
        **common,
    )


def made_up_result(index: int, draw: random.Random) -> Result:
    student = student_name(index, draw)
    skill = min(max(draw.gauss(0.68, 0.25), 0.0), 1.0)
    rows = tuple(exercise_result(exercise, skill, draw) for exercise in EXERCISES)
    problem = PROBLEMS[index % 3] if index % 41 == 40 else ""
    if problem:
        rows = tuple(ExerciseResult(e.id, e.title, 0.0, float(e.points), "no submission", problem) for e in EXERCISES)
    elif index % 67 == 66:
        reason = "SyntaxError in cell 7: '(' was never closed <script>alert(1)</script>"
        rows = tuple(ExerciseResult(e.id, e.title, 0.0, float(e.points), "failed", reason) for e in EXERCISES)
    return Result(student, LESSON, f"class/{student[:40]}/04_wanda.ipynb", 7, rows, problem=problem)


def made_up_class(n: int, seed: int = 0) -> list[Result]:
    draw = random.Random(seed)
    return [made_up_result(index, draw) for index in range(n)]
