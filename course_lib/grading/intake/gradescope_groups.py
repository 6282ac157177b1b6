"""Read Gradescope's list of the students who submitted each folder."""

import json
import re


def submitters(text: str) -> dict[str, list[tuple[str, ...]]]:
    """Return the student ids of each folder in Gradescope's metadata, most reliable first: e-mail, number, name.

    Only these lines are read; the output of a student's program is in the file too, but is indented further.
    """
    folders: dict[str, list[dict[str, str]]] = {}
    group: list[dict[str, str]] = []
    inside = False
    for line in text.splitlines():
        if heading := re.fullmatch(r"([\w.-]{1,80}):\s*", line):
            group, inside = folders.setdefault(heading[1], []), False
        elif re.match(r"  ?:?\w", line):
            inside = re.match(r"  :?submitters:", line) is not None
        elif inside and (field := re.fullmatch(r"(  - |    ):?(name|sid|email): (.{1,300})", line)):
            if field[1] == "  - " or not group:
                group.append({})
            group[-1][field[2]] = _plain(field[3].strip())
    order = ("email", "sid", "name")
    return {
        folder: [ids for student in group if (ids := tuple(student[key] for key in order if student.get(key)))]
        for folder, group in folders.items()
    }


def _plain(scalar: str) -> str:
    """Read a YAML scalar, with or without quotes."""
    if len(scalar) > 1 and scalar[0] == scalar[-1] == "'":
        return scalar[1:-1].replace("''", "'")
    if scalar[:1] == '"':
        try:
            return str(json.loads(scalar))
        except ValueError:
            return scalar.strip('"')
    return "" if scalar in ("null", "~") else scalar
