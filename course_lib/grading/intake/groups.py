"""From paths to students: where in a folder the class begins, and what belongs to whom."""

from dataclasses import dataclass, field

from course_lib.grading.intake import layouts, zips
from course_lib.grading.intake.entries import ARCHIVE, Entry
from course_lib.grading.intake.gradescope_groups import submitters
from course_lib.grading.intake.layouts import METADATA, Owner, lesson_of, owner
from course_lib.grading.intake.unwrap import Level, children, is_folder, unwrapped

LARGEST_METADATA = 2**24


@dataclass
class Notebook:
    """One notebook of a student, with what its names say of it."""

    entry: Entry
    lesson: str = ""
    attempt: int = 0


@dataclass
class Group:
    """All that one student handed in."""

    owner: Owner
    notebooks: list[Notebook] = field(default_factory=list)
    others: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    origin: str = ""


def by_layout(entries: list[Entry]) -> list[Group]:
    """The students, each by the outermost name below where the class begins."""
    level, lessons = unwrapped([(entry.parts, entry) for entry in entries if entry.parts])
    known = _submitters(level)
    groups: dict[str, Group] = {}
    inner = children(level)
    for name, below in inner.items():
        first, folder = below[0][1], is_folder(below)
        if first.kind == "other" and not folder and not first.problem and not _is_mishap(name):
            continue
        owners = [Owner(ids[0], ids[1:]) for ids in known.get(name, ())] or [owner(name, folder=folder)]
        for whose in owners if name != METADATA else ():
            group = groups.setdefault(whose.student, Group(whose, origin=first.where))
            for rest, entry in below:
                _add(group, whose, rest, entry, lessons.get(id(entry), ""))
    for name in known.keys() - inner.keys():
        for ids in known[name]:
            groups.setdefault(ids[0], Group(Owner(ids[0], ids[1:]), origin=f"{name} in {METADATA}"))
    return list(groups.values())


def _add(group: Group, whose: Owner, rest: tuple[str, ...], entry: Entry, lesson: str) -> None:
    """Add an entry. The lesson is what its names say, the innermost first."""
    if entry.kind != "notebook":
        group.others.append(entry)
        return
    inside = [name for name in reversed((whose.rest, *rest[1:])) if name]
    named_lesson = lesson_of(*inside, loosely=True) or lesson_of(rest[0]) or lesson
    group.notebooks.append(Notebook(entry, named_lesson, whose.attempt))


def _is_mishap(name: str) -> bool:
    """Whether a file that is no notebook is still somebody's submission: of a course system, or packed otherwise."""
    return layouts.special(name, folder=False) or ARCHIVE.fullmatch(name) is not None


def _submitters(level: Level) -> dict[str, list[tuple[str, ...]]]:
    for rest, entry in level:
        if rest == (METADATA,) and not entry.problem:
            try:
                text = zips.read(entry.path, entry.outer, entry.member, limit=LARGEST_METADATA)
            except ValueError:
                return {}
            return submitters(text.decode("utf-8", "replace"))
    return {}
