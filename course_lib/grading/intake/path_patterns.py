"""Find submissions by a pattern for their paths that the instructor gives."""

import re
from dataclasses import replace

from course_lib.grading.intake.entries import Entry
from course_lib.grading.intake.groups import Group, Notebook
from course_lib.grading.intake.layouts import Owner, lesson_of

LONGEST_PATH = 2000  # characters of a path that are matched


def by_pattern(entries: list[Entry], pattern: str) -> list[Group]:
    """Return the students, where a pattern says which part of a path is the student's id.

    Raises:
        ValueError: if the pattern has no part for the student, or is invalid.
    """
    expression = compiled(pattern)
    groups: dict[str, Group] = {}
    fitted: set[str] = set()
    missed: dict[str, list[Entry]] = {}
    for entry in (candidate for candidate in entries if candidate.parts):
        match = expression.search(entry.where[:LONGEST_PATH]) if entry.kind != "folder" else None
        if match is None or not match["student"]:
            missed.setdefault(entry.parts[0], []).append(entry)
            continue
        fitted.add(entry.parts[0])
        group = groups.setdefault(match["student"], Group(Owner(match["student"]), origin=entry.where))
        if entry.kind == "notebook":
            names = (match.groupdict().get("lesson") or "", *reversed(entry.parts))
            flat = match.start("student") > entry.where.rfind("/")
            group.notebooks.append(Notebook(entry, lesson_of(*names, loosely=True), flat=flat))
        else:
            group.others.append(entry)
    # A pattern that fits most paths must not lose students: an entry that does not match is a student with a problem.
    for name, unfit in missed.items():
        if name not in fitted and any(stray.kind != "other" or stray.problem for stray in unfit):
            odd = [
                replace(stray, kind="other", problem=stray.problem or f"it does not fit {pattern!r}.")
                for stray in unfit
            ]
            groups.setdefault(name, Group(Owner(name), others=odd, origin=name))
    return list(groups.values())


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a template such as {student}/{lesson}.ipynb, or a regular expression."""
    if "(?P<student>" not in pattern:
        if "{student}" not in pattern:
            raise ValueError(
                f"got pattern {pattern!r}; expected one with {{student}}, such as '{{student}}/{{lesson}}.ipynb', "
                "or a regular expression with (?P<student>...)."
            )
        parts = re.split(r"(\{\w*\}|\*)", pattern)
        pattern = f"^{''.join(_template(part) for part in parts)}$"
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"got pattern {pattern!r}, which is no regular expression: {error}.") from None


def _template(part: str) -> str:
    if part in ("{student}", "{lesson}"):
        return f"(?P<{part[1:-1]}>[^/]+?)"
    return "[^/]*?" if part == "*" or re.fullmatch(r"\{\w*\}", part) else re.escape(part)
