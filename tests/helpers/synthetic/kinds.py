"""The kinds of students in a made-up class: what each hands in, and which functions it amounts to."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from synthetic import edits, setups
from synthetic.answers import STYLES, Known, plainly, shown_only, talking
from synthetic.notebooks import Notebook, Style, answer_cells, as_bytes, blank, fill, lines

from course_lib.checking.call import DidNotFinish
from course_lib.checking.exercise import Exercise

Does = Callable | str  # what is to be judged; or the state of an exercise that no function can have


@dataclass(frozen=True)
class File:
    """One file of a submission. `hour` says when it was saved; of two notebooks the newer one counts."""

    name: str
    content: bytes
    hour: int = 12


@dataclass(frozen=True)
class Work:
    """The work that one student hands in, and the result of each exercise."""

    does: dict[str, Does]
    files: tuple[File, ...]
    zipped: bool = False


@dataclass(frozen=True)
class Desk:
    """A lesson, and what is known of how its exercises are answered.

    Args:
        functions: the usual name of the function of each exercise.
        another: a lesson whose functions all have other names.
    """

    stem: str
    functions: dict[str, str]
    exercises: tuple[Exercise, ...]
    known: dict[str, list[Known]]
    another: "Desk | None" = field(default=None, repr=False)

    def right(self) -> dict[str, Known]:
        return {exercise: ways[0] for exercise, ways in self.known.items()}

    def also_right(self, rng: random.Random) -> dict[str, Known]:
        return {exercise: rng.choice([way for way in ways if not way.mistake]) for exercise, ways in self.known.items()}

    def wrong(self, number: int) -> dict[str, Known]:
        """The mistake of that number in every exercise; so many students make all of them."""
        mistaken = {exercise: [way for way in ways if way.mistake] for exercise, ways in self.known.items()}
        return {exercise: ways[number % len(ways)] for exercise, ways in mistaken.items()}

    def mixed(self, rng: random.Random) -> dict[str, Known]:
        """Much right, some of it wrong, some left out."""
        right, wrong = self.also_right(rng), self.wrong(rng.randrange(99))
        taken = {exercise: rng.choices((right, wrong, {}), (6, 3, 1))[0] for exercise in right}
        return {exercise: ways[exercise] for exercise, ways in taken.items() if exercise in ways}

    def does(self, answers: dict[str, Known]) -> dict[str, Does]:
        return {e: answers[e].function if e in answers else "not attempted" for e in self.functions}

    def notebook(
        self, answers: dict[str, Known], rng: random.Random, style: Style = plainly, apart: int | None = None
    ) -> Notebook:
        notebook = blank(self.stem)
        fill(notebook, answers, rng, style, apart)
        return notebook

    def work(self, answers: dict[str, Known], notebook: Notebook, zipped: bool = False) -> Work:
        return Work(self.does(answers), (self.file(as_bytes(notebook)),), zipped)

    def file(self, content: bytes) -> File:
        return File(f"{self.stem}.ipynb", content)


Kind = Callable[[Desk, random.Random], Work]


# Students whose notebook is as it should be ----------------------------------------------------------------------


def written(desk: Desk, rng: random.Random, style: Style | None) -> Work:
    """Right answers in one style, or each in another."""
    answers = desk.also_right(rng)
    return desk.work(answers, desk.notebook(answers, rng, style or _any_style(rng)))


def _any_style(rng: random.Random) -> Style:
    return lambda answer: rng.choice(STYLES)(answer)


def mistaken(desk: Desk, rng: random.Random, number: int) -> Work:
    answers = desk.wrong(number)
    return desk.work(answers, desk.notebook(answers, rng, _any_style(rng)))


def mixture(desk: Desk, rng: random.Random, zipped: bool = False) -> Work:
    answers = desk.mixed(rng)
    return desk.work(answers, desk.notebook(answers, rng, _any_style(rng)), zipped)


def half_done(desk: Desk, rng: random.Random) -> Work:
    answers = desk.also_right(rng)
    answers = {exercise: answers[exercise] for exercise in rng.sample(sorted(answers), len(answers) // 2)}
    return desk.work(answers, desk.notebook(answers, rng))


def right_on_what_is_shown(desk: Desk, rng: random.Random) -> Work:
    right = desk.right()
    answers = {exercise.id: shown_only(right[exercise.id], exercise) for exercise in desk.exercises}
    return desk.work(answers, desk.notebook(answers, rng))


def untouched(desk: Desk, rng: random.Random) -> Work:
    return desk.work({}, blank(desk.stem))


# Students whose notebook went through something -------------------------------------------------------------------


def edited(desk: Desk, rng: random.Random, edit: Callable[[Notebook, random.Random], None]) -> Work:
    """Right and wrong answers in a notebook to which something happened that changes none of them."""
    answers = desk.mixed(rng)
    notebook = desk.notebook(answers, rng)
    edit(notebook, rng)
    return desk.work(answers, notebook)


def renamed_in_the_def_alone(desk: Desk, rng: random.Random) -> Work:
    """The cell's id tells what it answers, as long as no other function is in it."""
    answers = desk.also_right(rng) | desk.mixed(rng)
    notebook = desk.notebook(answers, rng, apart=1)
    edits.renamed_in_the_def_alone(notebook, rng)
    return desk.work(answers, notebook)


def helpers_apart(desk: Desk, rng: random.Random, where: int) -> Work:
    answers = desk.mixed(rng)
    return desk.work(answers, desk.notebook(answers, rng, apart=where))


def changed_their_mind(desk: Desk, rng: random.Random, place: Callable) -> Work:
    """An earlier version of every answer is still in the notebook, and often it was the right one."""
    answers = desk.also_right(rng) | desk.mixed(rng)
    earlier = desk.wrong(rng.randrange(99)) if rng.random() < 0.5 else desk.right()
    notebook = desk.notebook(answers, rng)
    place(notebook, {exercise: "\n\n".join([*way.needs, way.text]) for exercise, way in earlier.items()}, rng)
    return desk.work(answers, notebook)


def in_format_3(desk: Desk, rng: random.Random) -> Work:
    answers = desk.mixed(rng)
    return desk.work(answers, edits.as_format_3(desk.notebook(answers, rng)))


def encoded(desk: Desk, rng: random.Random, encoding: str) -> Work:
    answers = desk.mixed(rng)
    content = as_bytes(desk.notebook(answers, rng)).decode().encode(encoding, errors="replace")
    return Work(desk.does(answers), (desk.file(content),))


def two_notebooks(desk: Desk, rng: random.Random) -> Work:
    """The newer of two counts, whatever the names say."""
    old, new = desk.mixed(rng), desk.mixed(rng)
    files = (
        File(f"{desk.stem}_final.ipynb", as_bytes(desk.notebook(old, rng)), hour=9),
        File(f"{desk.stem}.ipynb", as_bytes(desk.notebook(new, rng)), hour=17),
    )
    return Work(desk.does(new), files)


def set_up_above(desk: Desk, rng: random.Random, ways: list[str]) -> Work:
    """Answers that need what a loop, a call or a decorator does at the top level."""
    answers = desk.mixed(rng)
    notebook = blank(desk.stem)
    setups.set_up(notebook, answers, ways, rng)
    return desk.work(answers, notebook)


# Students with exercises that do not end well ---------------------------------------------------------------------


def _raises(error: BaseException) -> Callable:
    def function(*arguments):
        raise error

    return function


# The code written for {name} in one exercise each, and its result.
BAD: dict[str, tuple[tuple[str, Does], ...]] = {
    "syntax error in an answer": (("def {name}(first, second)\n    return first", "failed"),),
    "an endless loop": (("def {name}(*arguments):\n    while True:\n        pass", _raises(DidNotFinish())),),
    "answers that end the process": (
        ("import os\n\ndef {name}(*arguments):\n    os._exit(0)", "failed"),
        ("import ctypes\n\ndef {name}(*arguments):\n    ctypes.string_at(0)", "failed"),
        ("import os\n\nready = os._exit(0)\n\ndef {name}(*arguments):\n    return ready", "failed"),
    ),
    "answers that give nothing": (
        ("import sys\n\ndef {name}(*arguments):\n    sys.exit(0)", _raises(SystemExit(0))),
        ('def {name}(*arguments):\n    raise ValueError("half done")', _raises(ValueError("half done"))),
        ("def {name}(*arguments):\n    pass", lambda *arguments: None),
        ("def {name}(*arguments):\n    return object()", lambda *arguments: object()),
    ),
}


def bad(desk: Desk, rng: random.Random, answers: tuple[tuple[str, Does], ...]) -> Work:
    """Some exercises end badly; the others count as ever."""
    right = desk.mixed(rng)
    notebook, does = desk.notebook(right, rng), desk.does(right)
    for exercise, (text, amounts_to) in zip(rng.sample(sorted(does), len(answers)), answers, strict=True):
        answer_cells(notebook)[exercise]["source"] = lines(text.format(name=desk.functions[exercise]))
        does[exercise] = amounts_to
    return Work(does, (desk.file(as_bytes(notebook)),))


# Students of whom nothing can be graded ---------------------------------------------------------------------------


def only_files(desk: Desk, rng: random.Random, state: str, *files: tuple[str, bytes]) -> Work:
    named = tuple(File(name.format(stem=desk.stem), content) for name, content in files)
    return Work(dict.fromkeys(desk.functions, state), named)


def damaged(desk: Desk, rng: random.Random) -> Work:
    """A notebook of which the end is missing."""
    content = as_bytes(desk.notebook(desk.right(), rng))
    return Work(dict.fromkeys(desk.functions, "failed"), (desk.file(content[: len(content) // 2]),))


def another_lesson(desk: Desk, rng: random.Random, renamed: bool) -> Work:
    """The file's name says that there is nothing to grade; or it says that there is, and nothing is found."""
    other = desk.another
    content = as_bytes(other.notebook(other.right(), rng))
    file, state = (desk.file(content), "not found") if renamed else (other.file(content), "no submission")
    return Work(dict.fromkeys(desk.functions, state), (file,))


EDITS = {
    "cells reordered": edits.reordered,
    "a cell moved to the end": edits.moved_to_the_end,
    "stripped by Colab": edits.stripped_by_colab,
    "cells merged": edits.merged,
    "renamed, in the check too": edits.renamed,
    "outputs of megabytes": edits.outputs_of_megabytes,
    "experiments": edits.experiments,
    "magics": edits.magics,
    "syntax error elsewhere": edits.syntax_error_elsewhere,
    "a package that is not there": edits.missing_package,
    "stub copied after the answer": edits.stub_copied_after,
}
NOT_JSON = ("{stem}.ipynb", b"<!DOCTYPE html><title>Sign in</title>")
NOT_A_NOTEBOOK = ("{stem}.ipynb", json.dumps({"cells": "none"}).encode())

KINDS: dict[str, Kind] = {
    "right": partial(written, style=plainly),
    "right, in many styles": partial(written, style=None),
    "right, talking": partial(written, style=talking),
    "mixture": mixture,
    "half done": half_done,
    "right on what is shown": right_on_what_is_shown,
    "untouched": untouched,
    **{name: partial(edited, edit=edit) for name, edit in EDITS.items()},
    "renamed in the def alone": renamed_in_the_def_alone,
    "helpers in a cell above": partial(helpers_apart, where=1),
    "helpers in a cell at the end": partial(helpers_apart, where=-1),
    "older answers above": partial(changed_their_mind, place=edits.older_answers_above),
    "newer answers below": partial(changed_their_mind, place=edits.newer_answers_below),
    "format 3": in_format_3,
    "UTF-16": partial(encoded, encoding="utf-16"),
    "byte order mark": partial(encoded, encoding="utf-8-sig"),
    "two notebooks": two_notebooks,
    "a zip": partial(mixture, zipped=True),
    **{name: partial(bad, answers=answers) for name, answers in BAD.items()},
    "damaged": damaged,
    "empty file": lambda desk, rng: only_files(desk, rng, "failed", ("{stem}.ipynb", b"")),
    "not JSON": lambda desk, rng: only_files(desk, rng, "failed", NOT_JSON),
    "JSON, but no notebook": lambda desk, rng: only_files(desk, rng, "failed", NOT_A_NOTEBOOK),
    "no notebook": lambda desk, rng: only_files(desk, rng, "no submission", ("notes.txt", b"I will be late.")),
    "another lesson": partial(another_lesson, renamed=False),
    "another lesson under this name": partial(another_lesson, renamed=True),
    **{name: partial(set_up_above, ways=[name]) for name in setups.SETUPS},
}
