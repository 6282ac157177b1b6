"""What students do not get: passages marked for instructors, and rows of lessons that are not given out."""

import re

BEGIN, END = "BEGIN INSTRUCTORS", "END INSTRUCTORS"
_REGION = re.compile(rf"^[ \t]*(?:#|<!--) {BEGIN}.*\n(?:.*\n)*?[ \t]*(?:#|<!--) {END}.*\n+", re.MULTILINE)
_INSTEAD = re.compile(r"^<!-- FOR STUDENTS\n((?:.*\n)*?)-->\n", re.MULTILINE)
_MARKER = re.compile(rf"^[ \t]*(?:#|<!--) (?:{BEGIN}|{END}|FOR STUDENTS).*", re.MULTILINE)
_ROW = re.compile(r"^\| \[.*?\]\((notebooks/[^)]+)\).*\n", re.MULTILINE)


def for_students(text: str, where: str) -> str:
    """A text without the passages between `# BEGIN INSTRUCTORS` and `# END INSTRUCTORS`, or the same as <!-- … -->.

    A comment <!-- FOR STUDENTS … --> becomes text: what is said in place of a passage.

    Raises:
        ValueError: when a marker has no partner, so that nothing slips through.
    """
    text = _INSTEAD.sub(r"\1", _REGION.sub("", text))
    if left := _MARKER.search(text):
        raise ValueError(
            f"{where}: the marker {left[0].strip()!r} has no partner; expected a {BEGIN} before each {END}."
        )
    return text


def without_rows(text: str, notebooks: set[str]) -> str:
    """The README without the table rows of lessons that are not in this release."""
    return _ROW.sub(lambda row: row[0] if row[1] in notebooks else "", text)
