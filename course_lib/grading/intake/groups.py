"""Group paths by student: find the level of a folder at which the class begins, and the owner of each file.

Layers around a class are removed, such as a zip of everything or one folder per lesson.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from course_lib.grading.intake import layouts, zips
from course_lib.grading.intake.entries import ARCHIVE, DEEPEST, Entry
from course_lib.grading.intake.gradescope_groups import submitters
from course_lib.grading.intake.layouts import METADATA, Owner, lesson_of, owner
from course_lib.grading.intake.student_ids import clean

LARGEST_METADATA = 2**24
NBGRADER = ("source", "release", "autograded", "feedback", "exchange")  # its folders other than `submitted`
Level = list[tuple[tuple[str, ...], Entry]]  # the remaining parts of each path, and the entry


@dataclass
class Notebook:
    """One notebook of a student, with the information in its names."""

    entry: Entry
    lesson: str = ""
    attempt: int = 0
    flat: bool = False  # not in a folder or zip of its student


@dataclass
class Group:
    """Everything that one student submitted."""

    owner: Owner
    notebooks: list[Notebook] = field(default_factory=list)
    others: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    origin: str = ""


def by_layout(entries: list[Entry], roster: Iterable[str] = ()) -> list[Group]:
    """Return the students, named by the outermost names of the class. Names on the roster are never classes."""
    students = {clean(student).casefold() for student in roster}
    level, lessons = _unwrapped([(entry.parts, entry) for entry in entries if entry.parts], students)
    known = _submitters(level)
    groups: dict[str, Group] = {}
    inner = _children(level)
    for name, below in inner.items():
        first, folder = below[0][1], _is_folder(below)
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
    """Add an entry. Its lesson is the one that its names give, innermost name first."""
    if entry.kind != "notebook":
        group.others.append(entry)
        return
    inside = [name for name in reversed((whose.rest, *rest[1:])) if name]
    named_lesson = lesson_of(*inside, loosely=True) or lesson_of(rest[0]) or lesson
    group.notebooks.append(Notebook(entry, named_lesson, whose.attempt, flat=len(rest) == 1))


def _is_mishap(name: str) -> bool:
    """Check whether a file other than a notebook is still a submission: made by a course system, or another archive."""
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


def _unwrapped(level: Level, students: set[str]) -> tuple[Level, dict[int, str]]:
    """Return the level at which every name is a student's, and the lessons in the names of the folders around it."""
    lessons: dict[int, str] = {}
    for _ in range(DEEPEST):
        inner = _children(level)
        if submitted := next((name for name in inner if _is_submitted(name, inner)), ""):
            return _inside(inner[submitted]), lessons
        holders = {name: below for name, below in inner.items() if _is_folder(below) or _is_zip(below)}
        if not holders or any(entry.kind == "notebook" for rest, entry in level if len(rest) == 1):
            break
        named = {name: layouts.lesson_folder(name) for name in holders}
        for name, lesson in named.items():
            lessons |= {id(entry): lesson for _, entry in holders[name] if lesson}
        around = len(holders) == 1 and _is_around(*holders.values())
        classes = around or all(map(_is_export, holders, holders.values()))
        if not (all(named.values()) or (classes and _may_hold_classes(holders, inner, students))):
            break
        level = [pair for below in holders.values() for pair in _inside(below)]
    return level, lessons


def _may_hold_classes(names: Iterable[str], beside: dict[str, Level], students: set[str]) -> bool:
    """Check whether folders or zips may contain classes rather than the work of one student each.

    They do not if a course system has named them, or files next to them: it names every student's. Nor do they if they
    have a name from the roster.
    """
    if any(layouts.special(other, folder=_is_folder(below)) for other, below in beside.items()):
        return False
    owners = [owner(name, folder=_is_folder(beside[name])) for name in names]
    return not {clean(known).casefold() for whose in owners for known in (whose.student, *whose.also)} & students


def _is_submitted(name: str, beside: dict[str, Level]) -> bool:
    """Check whether this is nbgrader's folder of that name; its other folders then do not count.

    Among other folders with notebooks it is a student's, whose choice of name must not hide the rest of the class.
    """
    if name.lower() != "submitted" or not _is_folder(beside[name]):
        return False
    others = [below for other, below in beside.items() if other != name and other.lower() not in NBGRADER]
    return not any(entry.kind in ("notebook", "zip") for below in others for _, entry in below)


def _inside(below: Level) -> Level:
    return [(rest[1:], entry) for rest, entry in below if len(rest) > 1]


def _is_export(name: str, below: Level) -> bool:
    """Check whether a folder or zip contains a course system's export of a class."""
    if layouts.special(name, folder=_is_folder(below)):
        return False
    inner = _children(_inside(below))
    return any(layouts.special(child, folder=_is_folder(inner[child])) for child in inner)


def _is_around(below: Level, depth: int = DEEPEST) -> bool:
    """Check whether the only folder or zip contains a class rather than one student's work."""
    inner = _children(_inside(below))
    holders = {name: content for name, content in inner.items() if _is_folder(content) or _is_zip(content)}
    if any(_is_submitted(name, inner) or layouts.special(name, folder=_is_folder(inner[name])) for name in inner):
        return True
    flat = [name for name, content in inner.items() if name not in holders and content[0][1].kind == "notebook"]
    if flat:  # several names, other than names of lessons
        return len({student for name in flat if not lesson_of(student := owner(name, folder=False).student)}) > 1
    students = [name for name in holders if not layouts.lesson_folder(name)]
    deeper = holders.values() if depth and (len(holders) == 1 or not students) else ()
    return len(students) > 1 or any(_is_around(holder, depth - 1) for holder in deeper)


def _children(level: Level) -> dict[str, Level]:
    by_name: dict[str, Level] = {}
    for rest, entry in level:
        if rest:
            by_name.setdefault(rest[0], []).append((rest, entry))
    return by_name


def _is_folder(below: Level) -> bool:
    return any(len(rest) > 1 or entry.kind == "folder" for rest, entry in below) and not _is_zip(below)


def _is_zip(below: Level) -> bool:
    return any(len(rest) == 1 and entry.kind == "zip" for rest, entry in below)
