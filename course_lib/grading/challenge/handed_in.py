"""Find the submissions of a class: for each student a recipe, as bytes, and the files that it refers to.

Folders, zips, exports of course systems and names of students are those of notebooks (intake/). Of several recipes of a
student the newest counts; those called recipe before all others.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from course_lib.compose.part import SUFFIX, FiledPart
from course_lib.compose.reading import MOST_BYTES
from course_lib.compose.recipe import Recipe, from_json
from course_lib.grading.intake import layouts, zips
from course_lib.grading.intake.entries import Entry, walk
from course_lib.grading.intake.student_ids import clean
from course_lib.grading.intake.submission import Submission
from course_lib.grading.intake.submissions import among, newest

FILES = re.compile(r".*\.json(\.txt)?", re.IGNORECASE | re.DOTALL)
CALLED = "recipe (.json)"
STEM = "12_capstone"


@dataclass(frozen=True)
class HandedIn:
    """One student's recipe, or the reason why there is none.

    Args:
        recipe: with files renamed after the parts that use them. files: the name and the bytes of each.
    """

    student: str
    origin: str
    recipe: Recipe | None = None
    files: tuple[tuple[str, bytes], ...] = ()
    problem: str = ""
    missing: bool = False  # nothing was handed in
    notes: tuple[str, ...] = ()


def handed_in(folder: Path, pattern: str | None = None, roster: list[str] | None = None) -> list[HandedIn]:
    """Return one submission per student of a folder or a zip, in the order of their ids.

    Raises:
        ValueError: if the folder or the pattern cannot be used.
    """
    entries = [_as_work(entry) for entry in walk(folder)]
    candidates = among(folder, entries, pattern, roster, CALLED)
    return [_read(submission) for submission in newest(_preferred(candidates), STEM, CALLED)]


def _as_work(entry: Entry) -> Entry:
    """Treat a recipe as the kind of file to look for, instead of a notebook."""
    if entry.kind not in ("notebook", "other") or not entry.parts:
        return entry
    return replace(entry, kind="notebook" if FILES.fullmatch(entry.parts[-1]) else "other")


def _preferred(candidates: Iterable[Submission]) -> list[Submission]:
    """Keep only files called recipe if the student has any; a folder may contain other JSON files."""
    named = {work.student for work in candidates if work.path and _is_named(work)}
    return [work for work in candidates if work.student not in named or _is_named(work)]


def _is_named(work: Submission) -> bool:
    return "recipe" in work.origin.rpartition("/")[2].casefold()


def _read(work: Submission) -> HandedIn:
    who = HandedIn(work.student, work.origin, notes=work.notes)
    if work.path is None:
        return replace(who, problem=work.problem, missing=True)
    try:
        recipe = from_json(_content(work.path, work.outer, work.member, MOST_BYTES, "recipe"))
        files = tuple((part.name + SUFFIX, _file_of(work, part)) for part in recipe.filed)
        parts = (replace(each, file=each.name + SUFFIX) if each in recipe.filed else each for each in recipe.parts)
        return replace(who, recipe=replace(recipe, parts=tuple(parts)), files=files)
    except (ValueError, OSError) as error:
        return replace(who, problem=str(error))


def _content(path: Path, outer: str, member: str, limit: int, what: str) -> bytes:
    try:
        return zips.read(path, outer, member, limit=limit)
    except zips.TooLarge:
        raise ValueError(f"got a {what} of more than {limit:,} bytes; expected at most so many.") from None


def _file_of(work: Submission, part: FiledPart) -> bytes:
    """Find the file that a part refers to; a ValueError names the file if it cannot be read."""
    try:
        return _beside(work, part)
    except zips.Refused as error:
        raise ValueError(f"the {part.name} {part.file!r}: {error}") from None


def _beside(work: Submission, part: FiledPart) -> bytes:
    """Read a file next to the recipe, in its folder or zip."""
    if work.member:
        shown = {each.name: each.shown for each in zips.members(work.path, work.outer)}
        folder, _, own = shown[work.member].rpartition("/")
        there = {name.rpartition("/")[2]: raw for raw, name in shown.items() if name.rpartition("/")[0] == folder}
        return _content(work.path, work.outer, there[_named(part, own, there, work.flat)], part.most_on_disk, part.name)
    there = {each.name: each for each in work.path.parent.iterdir()}
    return _content(there[_named(part, work.path.name, there, work.flat)], "", "", part.most_on_disk, part.name)


def _named(part: FiledPart, own: str, there: Collection[str], flat: bool) -> str:
    """Find the file's name where the recipe is called `own`: a course system renames both in the same way.

    Args:
        flat: whether the folder may also contain files of other students.

    Raises:
        ValueError: if the file is missing, or belongs to another student.
    """
    if part.file in there and not (flat and _is_of_another(part.file, own, there)):
        return part.file
    student, of = layouts.owner(own, folder=False).student, {name: layouts.owner(name, folder=False) for name in there}
    renamed = [name for name in sorted(there) if (of[name].student, of[name].rest) == (student, part.file)]
    if not renamed and part.file in there:
        raise ValueError(
            f"got a recipe with the {part.name} {part.file[:60]!r}, which another student has handed in; expected one "
            "of your own. Hand it in together with the recipe."
        )
    if not renamed:
        raise ValueError(
            f"got a recipe whose part {part.name!r} reads {part.file[:60]!r}, which is missing; hand it in with the "
            "recipe."
        )
    return max(renamed, key=lambda name: of[name].attempt)


def _is_of_another(name: str, own: str, there: Collection[str]) -> bool:
    """Check by the names whether a file in a flat folder belongs to another student than the recipe `own`.

    A course system starts every name with the student. In a folder that was filled by hand, a file belongs to
    the submission whose name begins most as its own does; one that begins like none may be anybody's.
    """
    if layouts.special(name, folder=False):
        owners = {clean(layouts.owner(each, folder=False).student) for each in (name, own)}
        return len(owners) > 1 or not layouts.special(own, folder=False)
    common = {each: _n_words_in_common(name, each) for each in there if not each.endswith(SUFFIX)}
    return max(common.values(), default=0) > _n_words_in_common(name, own)


def _n_words_in_common(name: str, other: str) -> int:
    """Count the words at the start of two names that are the same, ignoring case and Unicode composition."""
    words = (re.findall(r"[^\W_]+", clean(layouts.without_marks(each)).casefold()) for each in (name, other))
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*words, strict=False)))
