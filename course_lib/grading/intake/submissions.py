"""Turn the submitted files of a class, in any layout, into one submission per student, whatever is wrong with them."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from course_lib.grading.intake.entries import Entry, walk
from course_lib.grading.intake.groups import Group, Notebook, by_layout
from course_lib.grading.intake.layouts import lesson_of
from course_lib.grading.intake.path_patterns import by_pattern
from course_lib.grading.intake.student_ids import clean, file_name
from course_lib.grading.intake.submission import Submission

__all__ = ["among", "file_name", "find", "newest"]

MOST_NOTES = 5
NOTEBOOK = "notebook (.ipynb)"


def find(folder: Path, pattern: str | None = None, roster: list[str] | None = None) -> list[Submission]:
    """Return every notebook of every student, and an entry with a problem for each student without one.

    layouts.py lists the layouts that we recognise.

    Args:
        folder: or a zip of the whole class.
        pattern: where the student's id is in a path below the folder (in a zip: its name, then the member's), as
            '{student}/{lesson}.ipynb', in which * stands for any part of a name, or as a regular expression with
            (?P<student>...).
        roster: ids of all students. A missing student gets an entry, and a student who is not on it gets a note.

    Raises:
        ValueError: if the folder or the pattern cannot be used.
    """
    return among(folder, walk(folder), pattern, roster)


def among(
    folder: Path, entries: list[Entry], pattern: str | None, roster: list[str] | None, called: str = NOTEBOOK
) -> list[Submission]:
    """Do the work of `find` on entries. It searches for the kind "notebook"; messages use the name `called`."""
    if problem := next((entry.problem for entry in entries if not entry.parts), ""):
        raise ValueError(f"got {folder}: {problem}")
    groups = by_layout(entries, roster or ()) if pattern is None else by_pattern(entries, pattern)
    named = _named(groups, roster or [])
    candidates = [candidate for name, group in named for candidate in _candidates(name, group, called)]
    if roster is not None:
        candidates = _against(candidates, roster)
    return sorted(candidates, key=lambda candidate: (candidate.student.casefold(), candidate.student, candidate.origin))


def newest(
    submissions: list[Submission], stem: str, called: str = NOTEBOOK, exercises: Iterable[str] = ()
) -> list[Submission]:
    """Return one submission per student: the newest notebook of the lesson.

    A notebook without a lesson in its name may belong to this one. It counts if no other does, or if it is newer than
    those that do and has as many of the lesson's exercises; one that is newer and has fewer is named in a note.

    Args:
        exercises: ids of the lesson's exercises. Without them only names of notebooks count.
    """
    ids = tuple(exercises)
    students: dict[str, list[Submission]] = {}
    for submission in submissions:
        students.setdefault(submission.student, []).append(submission)
    return [_one(mine, stem, called, ids) for mine in students.values()]


def _one(mine: list[Submission], stem: str, called: str, exercises: tuple[str, ...]) -> Submission:
    lessons = [(work.lesson or lesson_of(work.origin), work) for work in mine if work.path or work.problem]
    of_lesson = [work for lesson, work in lessons if lesson == stem]
    unnamed = [work for lesson, work in lessons if not lesson]
    attempts, passed_over = _newer(of_lesson, unnamed, exercises) if of_lesson and exercises else ([], ())
    fits = [*of_lesson, *attempts] or unnamed
    if not fits:
        others = ", ".join(sorted({lesson for lesson, _ in lessons}))
        what = called.partition(" ")[0]
        problem = f"there is no {what} of {stem}, only of {others}." if others else f"there is no {what}."
        return Submission(mine[0].student, mine[0].origin, problem=problem, notes=mine[0].notes)
    chosen = max(fits, key=_age)
    if len(fits) > 1 and chosen.path is not None:
        which = "the newest was taken" if len({_age(fit)[1:3] for fit in fits}) > 1 else "one of them was taken"
        note = f"{len(fits)} {called.partition(' ')[0]}s, {which}: {chosen.origin}"
        chosen = replace(chosen, notes=(*chosen.notes, note))
    return replace(chosen, notes=(*chosen.notes, *passed_over))


def _newer(
    named: list[Submission], unnamed: list[Submission], exercises: tuple[str, ...]
) -> tuple[list[Submission], tuple[str, ...]]:
    """Among notebooks without a lesson in their name, find newer attempts at this one; return a note on the others."""
    best = max(named, key=_age)
    newer = [work for work in unnamed if work.path is not None and _age(work)[:3] > _age(best)[:3]]
    if not newer:
        return [], ()
    n_needed, n_written = _n_exercises(best, exercises)
    attempts, passed_over = [], []
    for work in newer:
        n, written = _n_exercises(work, exercises)
        if n >= max(1, n_needed) and (written or not n_written):
            attempts.append(work)
        else:
            why = f"it has {n} of the {len(exercises)} exercises" if written or not n else "nothing in it is written"
            passed_over.append((work, f"its name says no lesson, and {why}"))
    rest = [
        f"{work.origin} is newer but was not graded: {why}"
        for work, why in passed_over
        if not attempts or _age(work) > max(map(_age, attempts))
    ]
    return attempts, tuple(rest[:MOST_NOTES])


def _n_exercises(work: Submission, exercises: tuple[str, ...]) -> tuple[int, int]:
    """Count the exercises that a notebook names, and those of them whose stub was replaced.

    The search is on bytes: no submitted file is parsed here.
    """
    try:
        content = work.read()
    except (ValueError, OSError):
        return 0, 0
    names = [re.escape(name).encode() for name in exercises]
    named = [name for name in names if re.search(rb"""["']%s\\?["']""" % name, content)]
    return len(named), sum(re.search(rb"Exercise %s: replace this line" % name, content) is None for name in named)


def _age(submission: Submission) -> tuple[bool, int, float, str]:
    """Return a sort key that puts the newest last: gradable ones, then by attempt number, then by time of saving."""
    return submission.path is not None, submission.attempt, submission.stamp, submission.origin


def _candidates(student: str, group: Group, called: str) -> list[Submission]:
    """Return a group's notebooks, or its problem."""
    problems = [f"{_shown(entry)}: {entry.problem}" for entry in group.others if entry.problem]
    notes = (*group.notes, *problems[:MOST_NOTES])
    if group.notebooks:
        return [_candidate(student, notebook, notes) for notebook in group.notebooks]
    if problems:
        more = f" ({len(problems) - 1} more like this)" if len(problems) > 1 else ""
        problem = f"no {called.partition(' ')[0]} could be taken from {problems[0]}{more}"
    else:
        files = [_shown(entry) for entry in group.others if entry.kind == "other"]
        holds = f"it holds {', '.join(files[:3])}" + (" and more" if len(files) > 3 else "") if files else "it is empty"
        problem = f"there is no {called}: {holds}."
    return [Submission(student, _clean_path(group.origin), problem=problem, notes=tuple(group.notes))]


def _candidate(student: str, notebook: Notebook, notes: tuple[str, ...]) -> Submission:
    entry = notebook.entry
    place = {} if entry.problem else {"path": entry.path, "member": entry.member, "outer": entry.outer}
    problem = f"{_shown(entry)}: {entry.problem}" if entry.problem else ""
    known = {"lesson": notebook.lesson, "attempt": notebook.attempt, "stamp": entry.stamp, "flat": notebook.flat}
    return Submission(student, _clean_path(entry.where), problem=problem, notes=notes, **place, **known)


def _clean_path(where: str) -> str:
    """Return a path without unreadable characters."""
    return "/".join(clean(part) for part in where.split("/"))


def _shown(entry: Entry) -> str:
    return clean(entry.parts[-1])


def _named(groups: list[Group], roster: list[str]) -> list[tuple[str, Group]]:
    """Return every group with the unique id under which it is graded: the roster's spelling if it lists the student."""
    listed = {clean(student).casefold(): clean(student) for student in roster}
    aliases = Counter(key for group in groups for key in {clean(alias).casefold() for alias in group.owner.also})
    taken: dict[str, Group] = {}
    named = []
    exact = set(listed.values())

    def surest_first(group: Group) -> tuple[bool, bool, bool, str]:
        """Return a sort key: ids spelled as on the roster, then clean ids, then lower-case ids (bob before BOB)."""
        name = group.owner.student
        return name not in exact, clean(name) != name, name != name.casefold(), name

    for group in sorted(groups, key=surest_first):
        name = clean(group.owner.student)
        keys = [name.casefold(), *(key for alias in group.owner.also if aliases[key := clean(alias).casefold()] == 1)]
        name = next((listed[key] for key in keys if key in listed), name)
        number, unique = 1, name
        while unique.casefold() in taken:
            number += 1
            unique = f"{name} ({number})"
        taken[unique.casefold()] = group
        if unique != name:
            group.notes.append(f"another submission has the id {name} as well")
            first = taken[name.casefold()]
            if first.owner.student not in exact:  # a person must decide which of the two is meant
                first.notes.append(f"{_clean_path(group.origin)} has this id as well; it is graded as {unique}")
        named.append((unique, group))
    return named


def _against(submissions: list[Submission], roster: list[str]) -> list[Submission]:
    """Add a note to each submission that is not on the roster, and an entry for each missing student."""
    listed = dict.fromkeys(clean(name) for name in roster)
    noted = [
        work if work.student in listed else replace(work, notes=(*work.notes, "this id is not on the roster"))
        for work in submissions
    ]
    there = {work.student for work in submissions}
    missing = [Submission(name, "the roster", problem="nothing was handed in.") for name in listed if name not in there]
    return [*noted, *missing]
