"""From paths to students: where in a folder the class begins, and what belongs to whom."""

import re
from dataclasses import dataclass, field, replace

from course_lib.grading import layouts, zips
from course_lib.grading.entries import ARCHIVE, DEEPEST, Entry
from course_lib.grading.layouts import METADATA, Owner, lesson_of, owner

LARGEST_METADATA = 2**24
LONGEST_PATH = 2000

Level = list[tuple[tuple[str, ...], Entry]]  # what is left of each path, and the entry


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
    level, lessons = _unwrapped([(entry.parts, entry) for entry in entries if entry.parts])
    known = _submitters(level)
    groups: dict[str, Group] = {}
    children = _children(level)
    for name, below in children.items():
        first, folder = below[0][1], _is_folder(below)
        if first.kind == "other" and not folder and not first.problem and not _is_mishap(name):
            continue
        found = [Owner(ids[0], ids[1:]) for ids in known.get(name, ())] or [owner(name, folder=folder)]
        for each in found if name != METADATA else ():
            group = groups.setdefault(each.student, Group(each, origin=first.where))
            for rest, entry in below:
                _add(group, each, rest, entry, lessons.get(id(entry), ""))
    for name in known.keys() - children.keys():
        for ids in known[name]:
            groups.setdefault(ids[0], Group(Owner(ids[0], ids[1:]), origin=f"{name} in {METADATA}"))
    return list(groups.values())


def _add(group: Group, whose: Owner, rest: tuple[str, ...], entry: Entry, lesson: str) -> None:
    """Add an entry. The lesson is what its names say, the innermost first."""
    if entry.kind != "notebook":
        group.others.append(entry)
        return
    inside = [name for name in reversed((whose.rest, *rest[1:])) if name]
    said = lesson_of(*inside, loosely=True) or lesson_of(rest[0]) or lesson
    group.notebooks.append(Notebook(entry, said, whose.attempt))


def by_pattern(entries: list[Entry], pattern: str) -> list[Group]:
    """The students, where a pattern says where in a path they are named.

    Raises:
        ValueError: for a pattern that names no student, or is none.
    """
    expression = compiled(pattern)
    groups: dict[str, Group] = {}
    missed: dict[str, list[Entry]] = {}
    for entry in (each for each in entries if each.parts):
        found = expression.search(entry.where[:LONGEST_PATH]) if entry.kind != "folder" else None
        if found is None or not found["student"]:
            missed.setdefault(entry.parts[0], []).append(entry)
            continue
        group = groups.setdefault(found["student"], Group(Owner(found["student"]), origin=entry.where))
        if entry.kind == "notebook":
            names = (found.groupdict().get("lesson") or "", *reversed(entry.parts))
            group.notebooks.append(Notebook(entry, lesson_of(*names, loosely=True)))
        else:
            group.others.append(entry)
    # Nobody is lost because of a pattern that fits most: what it has nothing to say of is a student with a problem.
    fitted = {each.parts[0] for group in groups.values() for each in _all(group)}
    for name, unfit in missed.items():
        if name not in fitted and any(each.kind != "other" or each.problem for each in unfit):
            odd = [
                replace(each, kind="other", problem=each.problem or f"it does not fit {pattern!r}.") for each in unfit
            ]
            groups.setdefault(name, Group(Owner(name), others=odd, origin=name))
    return list(groups.values())


def _all(group: Group) -> list[Entry]:
    return [*group.others, *(each.entry for each in group.notebooks)]


def compiled(pattern: str) -> re.Pattern[str]:
    """A template such as {student}/{lesson}.ipynb, or a regular expression, as a regular expression."""
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


def _children(level: Level) -> dict[str, Level]:
    found: dict[str, Level] = {}
    for rest, entry in level:
        if rest:
            found.setdefault(rest[0], []).append((rest, entry))
    return found


def _is_folder(below: Level) -> bool:
    return any(len(rest) > 1 or entry.kind == "folder" for rest, entry in below) and not _is_zip(below)


def _is_zip(below: Level) -> bool:
    return any(len(rest) == 1 and entry.kind == "zip" for rest, entry in below)


def _is_mishap(name: str) -> bool:
    """Whether a file that is no notebook is still somebody's submission: of a course system, or packed otherwise."""
    return layouts.special(name, folder=False) or ARCHIVE.fullmatch(name) is not None


def _unwrapped(level: Level) -> tuple[Level, dict[int, str]]:
    """The level at which every name is a student's, and the lessons that folders around it named."""
    lessons: dict[int, str] = {}
    for _ in range(DEEPEST):
        children = _children(level)
        if submitted := next((name for name in children if _is_submitted(name, children[name])), ""):
            return _inside(children[submitted]), lessons
        holders = {name: below for name, below in children.items() if _is_folder(below) or _is_zip(below)}
        if not holders or any(entry.kind == "notebook" for rest, entry in level if len(rest) == 1):
            break
        named = {name: layouts.lesson_folder(name) for name in holders}
        for name, lesson in named.items():
            lessons |= {id(entry): lesson for _, entry in holders[name] if lesson}
        around = len(holders) == 1 and _is_around(*holders.values())
        if not (all(named.values()) or around or all(map(_is_export, holders, holders.values()))):
            break
        level = [pair for below in holders.values() for pair in _inside(below)]
    return level, lessons


def _is_submitted(name: str, below: Level) -> bool:
    """nbgrader's folder of that name, beside which its other folders are of no interest."""
    return name.lower() == "submitted" and _is_folder(below)


def _inside(below: Level) -> Level:
    return [(rest[1:], entry) for rest, entry in below if len(rest) > 1]


def _is_export(name: str, below: Level) -> bool:
    """Whether a folder or zip holds what a course system has written for a class."""
    if layouts.special(name, folder=_is_folder(below)):
        return False
    inner = _children(_inside(below))
    return any(layouts.special(each, folder=_is_folder(inner[each])) for each in inner)


def _is_around(below: Level, depth: int = DEEPEST) -> bool:
    """Whether the only folder or zip there is holds a class rather than one student's work."""
    inner = _children(_inside(below))
    holders = {name: each for name, each in inner.items() if _is_folder(each) or _is_zip(each)}
    if any(_is_submitted(*each) or layouts.special(each[0], folder=_is_folder(each[1])) for each in inner.items()):
        return True
    flat = [name for name, each in inner.items() if name not in holders and each[0][1].kind == "notebook"]
    if flat:  # several names other than those of lessons
        return len({each for name in flat if not lesson_of(each := owner(name, folder=False).student)}) > 1
    students = [name for name in holders if not layouts.lesson_folder(name)]
    deeper = holders.values() if depth and (len(holders) == 1 or not students) else ()
    return len(students) > 1 or any(_is_around(each, depth - 1) for each in deeper)


def _submitters(level: Level) -> dict[str, list[tuple[str, ...]]]:
    for rest, entry in level:
        if rest == (METADATA,) and not entry.problem:
            try:
                text = zips.read(entry.path, entry.outer, entry.member, limit=LARGEST_METADATA)
            except ValueError:
                return {}
            return layouts.submitters(text.decode("utf-8", "replace"))
    return {}
