"""Recognise how course systems lay out the submissions of a class, and find the owner of each file.

Only the outermost name gives the owner of a file: names inside a student's folder or zip were chosen by the
student. Recognised, below the folder of submissions or in one zip of the whole class:

    alice.ipynb                  04_wanda_alice.ipynb         alice_04_wanda (1).ipynb
    alice/04_wanda.ipynb         alice.zip                    04_wanda/alice.ipynb
    nbgrader    submitted/alice/04_wanda/04_wanda.ipynb
    Canvas      examplealice_123456_7890_04_wanda-2.ipynb     examplealice_LATE_123456_7890_04_wanda.ipynb
                anon_x7Yz2_7890_04_wanda.ipynb when graded anonymously; -2 marks the second resubmission
    Moodle      Alice Example_12345_assignsubmission_file_/04_wanda.ipynb, or all in one folder:
                Alice Example_12345_assignsubmission_file_04_wanda.ipynb
    Gradescope  submission_123456/04_wanda.ipynb, with submission_metadata.yml next to it
"""

import re
from dataclasses import dataclass
from functools import cache

from course_lib.workbook.masters import ROOT

METADATA = "submission_metadata.yml"

_CANVAS = re.compile(
    r"(?:(?:LATE_)?anon_(?P<anon>[^\W_]+)|(?P<name>\w+?)(?:_LATE)?_(?P<user>\d+))"
    r"_(?:\d+_(?P<rest>.+?)(?:-(?P<attempt>\d{1,3}))?(?P<suffix>(?:\.\w+)+)|(?:text|link)\.html)"
)
# The first number counts: the student chose the name after it, and may imitate such names.
_MOODLE = re.compile(r"(?P<name>.+?)_(?P<user>\d+)_assignsubmission_(?:file|onlinetext)(?:_(?P<rest>.*))?")
_GRADESCOPE = re.compile(r"submission_\d+")
_SUFFIX = re.compile(
    r"(\.ipynb(\.txt|\.json)?|\.json(\.txt)?|\.zip|\.rar|\.7z|\.tgz|(\.tar)?(\.(gz|xz|bz2))?)$", re.IGNORECASE
)
_COPY = re.compile(r"^copy of |[ _]?\(\d{1,3}\)$|[-_ ]copy ?\d*$", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:lesson|notebook|nb|week|l)?[\W_]*0*(?P<number>\d{1,2})", re.IGNORECASE)
LONGEST_NAME = 300  # characters of a name that are read


@dataclass(frozen=True)
class Owner:
    """The owner of a file or folder, according to its name.

    Args:
        also: other ids under which a roster may know the student.
        rest: the student's own name for the file, if the course system keeps it.
        attempt: number of the resubmission, if the course system counts them.
    """

    student: str
    also: tuple[str, ...] = ()
    rest: str = ""
    attempt: int = 0


def owner(name: str, *, folder: bool) -> Owner:
    """Return the owner of the outermost name."""
    name = name[:LONGEST_NAME]
    if system_owner := _of_a_system(name, folder):
        return system_owner
    bare = without_marks(name, folder=folder)
    student = bare
    for stem in stems():
        student = _like(stem).sub("", student)
    return Owner(student.strip(" _-.+") or bare)


def special(name: str, *, folder: bool) -> bool:
    """Check whether a course system made a name."""
    of_gradescope = _GRADESCOPE.fullmatch(name) if folder else name == METADATA
    return bool(of_gradescope or _of_a_system(name[:LONGEST_NAME], folder))


def _of_a_system(name: str, folder: bool) -> Owner | None:
    if moodle := _MOODLE.fullmatch(name):
        return Owner(f"{moodle['name']}_{moodle['user']}", (moodle["name"], moodle["user"]), moodle["rest"] or "")
    if folder or not (canvas := _CANVAS.fullmatch(name)) or (canvas["name"] or "x").replace("_", "").isdigit():
        return None
    rest, attempt = f"{canvas['rest'] or ''}{canvas['suffix'] or ''}", int(canvas["attempt"] or 0)
    if canvas["anon"]:
        return Owner(f"anon_{canvas['anon']}", (canvas["anon"],), rest, attempt)
    return Owner(f"{canvas['name']}_{canvas['user']}", (canvas["user"], canvas["name"]), rest, attempt)


def without_marks(name: str, *, folder: bool = False) -> str:
    """Return a file's name without its suffix and without the marks of copies by browsers or editors: (1), -Copy1."""
    name = name if folder else _SUFFIX.sub("", name, count=1) or name
    while (shorter := _COPY.sub("", name)) not in (name, ""):
        name = shorter
    return name


@cache
def stems() -> tuple[str, ...]:
    """Return the file names of the lessons, such as 04_wanda."""
    names = {path.stem for folder in ("solutions", "notebooks") for path in (ROOT / folder).glob("[0-9][0-9]_*.*")}
    return tuple(sorted(stem for stem in names if re.fullmatch(r"\d\d_\w+", stem)))


@cache
def _like(stem: str) -> re.Pattern[str]:
    """Match a stem with any separators: 04_wanda, 04-Wanda, 04 wanda."""
    words = r"[\W_]{0,3}".join(map(re.escape, stem.split("_")))
    return re.compile(rf"(?<![^\W_]){words}(?![^\W_])", re.IGNORECASE)


def lesson_of(*names: str, loosely: bool = False) -> str:
    """Return the lesson of a path, from the first of its names that gives one; empty if none does.

    Args:
        loosely: accept the title or the number alone. Not for students' names: a student may be called Wanda.
    """
    for name in names:
        bare = without_marks(name[:LONGEST_NAME])
        lessons = [stem for stem in stems() if _like(stem).search(bare)]
        if loosely and not lessons:
            number = _NUMBERED.fullmatch(bare)
            lessons = [stem for stem in stems() if _like(stem[3:]).search(bare)]
            lessons = lessons or [stem for stem in stems() if number and int(stem[:2]) == int(number["number"])]
        if len(lessons) == 1:
            return lessons[0]
    return ""


def lesson_folder(name: str) -> str:
    """Return the lesson of a folder whose name contains nothing else: 04_wanda, lesson 04. A number may be an id."""
    is_id = name.replace("_", "").isdigit()
    named = not is_id and _NUMBERED.fullmatch(name) is not None
    whole = any(_like(stem).fullmatch(name) for stem in stems())
    return lesson_of(name, loosely=True) if named or whole else ""
