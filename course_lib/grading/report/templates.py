"""Render the templates of the pages; text becomes HTML only here.

A page is one file that fetches nothing, and its own policy forbids every script but the page's. Whatever a template
prints is automatically cleaned, shortened to a sentence (`finalize`) and escaped (`autoescape`). The spaces around a
printed text are removed too; necessary spaces are in the template.
"""

import base64
import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from course_lib.grading.intake.student_ids import file_name
from course_lib.grading.report import charts, text
from course_lib.grading.report.tally import GROUPS

FOLDER = Path(__file__).with_name("templates")
SORT = (FOLDER / "sort.js").read_text(encoding="utf-8")
# Each group of exercises has a mark: a class of the style sheets, where it has a colour and a pattern of its own.
MARKS = dict(zip(GROUPS, ("right", "partly", "wrong", "failed", "none"), strict=True))


def render(name: str, **context: Any) -> str:
    """Render a template.

    Raises:
        jinja2.UndefinedError: if the template uses an undefined name.
    """
    return environment.get_template(name).render(context)


def _cleaned(value: Any) -> Any:
    return text.clean(value) if type(value) is str else value  # a template has already made Markup


def _path(origin: str) -> Markup:
    """Return a path that may break across lines at every slash."""
    return Markup("/<wbr>").join(text.clean(origin, 200).split("/"))


environment = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    finalize=_cleaned,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
environment.filters |= {
    "duration": text.duration,
    "signed": lambda value: f"{value:+.3f}",
    "fixed": lambda value, digits: f"{value:.{digits}f}",
    "name": lambda value: escape(text.name(value)),
    "number": text.number,
    "path": _path,
    "whole_percent": text.whole_percent,
    "sentence": lambda value: escape(text.sentence(value)),
    "sort_key": lambda value: f"{value:.6g}",
    "thousands": lambda value: f"{value:,}",
    "trace": lambda value: escape(text.trace(value)),
}
environment.globals |= {
    "GROUPS": GROUPS,
    "MARKS": MARKS,
    "SORT": Markup(SORT),
    "SORT_DIGEST": base64.b64encode(hashlib.sha256(SORT.encode()).digest()).decode(),
    "address": lambda student: f"feedback/{quote(file_name(student))}.html",
    "counted": text.counted,
    "points_of": text.points_of,
    "segments": charts.segments,
    "tick_every": charts.tick_every,
}
