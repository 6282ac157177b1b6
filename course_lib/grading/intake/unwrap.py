"""Where below a folder the class begins: what wraps it, as a zip of all or a folder a lesson, is taken off."""

from course_lib.grading.intake import layouts
from course_lib.grading.intake.entries import DEEPEST, Entry
from course_lib.grading.intake.layouts import lesson_of, owner

NBGRADER = ("source", "release", "autograded", "feedback", "exchange")  # its folders beside `submitted`
Level = list[tuple[tuple[str, ...], Entry]]  # what is left of each path, and the entry


def unwrapped(level: Level) -> tuple[Level, dict[int, str]]:
    """The level at which every name is a student's, and the lessons that folders around it named."""
    lessons: dict[int, str] = {}
    for _ in range(DEEPEST):
        inner = children(level)
        if submitted := next((name for name in inner if _is_submitted(name, inner)), ""):
            return _inside(inner[submitted]), lessons
        holders = {name: below for name, below in inner.items() if is_folder(below) or is_zip(below)}
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


def _is_submitted(name: str, beside: dict[str, Level]) -> bool:
    """nbgrader's folder of that name, beside which its other folders are of no interest.

    Beside others with notebooks it is a student's: who calls a folder so must not hide the rest of the class.
    """
    if name.lower() != "submitted" or not is_folder(beside[name]):
        return False
    others = [below for other, below in beside.items() if other != name and other.lower() not in NBGRADER]
    return not any(entry.kind in ("notebook", "zip") for below in others for _, entry in below)


def _inside(below: Level) -> Level:
    return [(rest[1:], entry) for rest, entry in below if len(rest) > 1]


def _is_export(name: str, below: Level) -> bool:
    """Whether a folder or zip holds what a course system has written for a class."""
    if layouts.special(name, folder=is_folder(below)):
        return False
    inner = children(_inside(below))
    return any(layouts.special(child, folder=is_folder(inner[child])) for child in inner)


def _is_around(below: Level, depth: int = DEEPEST) -> bool:
    """Whether the only folder or zip there is holds a class rather than one student's work."""
    inner = children(_inside(below))
    holders = {name: content for name, content in inner.items() if is_folder(content) or is_zip(content)}
    if any(_is_submitted(name, inner) or layouts.special(name, folder=is_folder(inner[name])) for name in inner):
        return True
    flat = [name for name, content in inner.items() if name not in holders and content[0][1].kind == "notebook"]
    if flat:  # several names other than those of lessons
        return len({student for name in flat if not lesson_of(student := owner(name, folder=False).student)}) > 1
    students = [name for name in holders if not layouts.lesson_folder(name)]
    deeper = holders.values() if depth and (len(holders) == 1 or not students) else ()
    return len(students) > 1 or any(_is_around(holder, depth - 1) for holder in deeper)


def children(level: Level) -> dict[str, Level]:
    by_name: dict[str, Level] = {}
    for rest, entry in level:
        if rest:
            by_name.setdefault(rest[0], []).append((rest, entry))
    return by_name


def is_folder(below: Level) -> bool:
    return any(len(rest) > 1 or entry.kind == "folder" for rest, entry in below) and not is_zip(below)


def is_zip(below: Level) -> bool:
    return any(len(rest) == 1 and entry.kind == "zip" for rest, entry in below)
