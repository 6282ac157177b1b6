"""Remove the parts that students do not get: passages marked for instructors, and rows of lessons not released."""

import re

BEGIN, END = "BEGIN INSTRUCTORS", "END INSTRUCTORS"
_REGION = re.compile(rf"^[ \t]*# {BEGIN}.*\n(?:.*\n)*?[ \t]*# {END}.*\n+", re.MULTILINE)
_MARKER = re.compile(rf"^[ \t]*# (?:{BEGIN}|{END}).*", re.MULTILINE)
_ROW = re.compile(r"^\| \[.*?\]\((notebooks/[^)]+)\).*\n", re.MULTILINE)
_TABLE = re.compile(r"^\|.*\n\|[:\-|]+\n(?:\| \[.*?\]\(notebooks/.*\n)+", re.MULTILINE)
TABLE_LINK = "[The list of lessons](../README.md#lessons)\n"  # in docs/student_readme.md


def for_students(text: str, where: str) -> str:
    """Leave out the passages between `# BEGIN INSTRUCTORS` and `# END INSTRUCTORS`.

    Raises:
        ValueError: if a marker has no partner, so that no passage is missed.
    """
    text = _REGION.sub("", text)
    if left := _MARKER.search(text):
        raise ValueError(
            f"{where}: the marker {left[0].strip()!r} has no partner; expected a {BEGIN} before each {END}."
        )
    return text


def student_readme(template: str, readme: str) -> str:
    """Make the README of a students' copy: docs/student_readme.md with the table of lessons, moved to the top folder.

    Raises:
        ValueError: if the template has no link to the table of lessons, or the README has no such table.
    """
    table = _TABLE.search(readme)
    if table is None or TABLE_LINK not in template:
        raise ValueError(
            f"got no table of lessons in README.md, or no line {TABLE_LINK.strip()!r} in docs/student_readme.md; "
            "expected both, for the README of the students' copy."
        )
    moved = re.sub(r"\]\((?!\w+:|#|\.\./)", "](docs/", template)
    around = [part.replace("](../", "](") for part in moved.split(TABLE_LINK)]
    return table[0].join(around)


def without_rows(text: str, notebooks: set[str]) -> str:
    """Return the README without the table rows of lessons that are not in this release."""
    return _ROW.sub(lambda row: row[0] if row[1] in notebooks else "", text)
