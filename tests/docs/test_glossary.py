"""Each term of the glossary is said in the lesson it is listed under; terms are sorted, and defined in a sentence."""

import functools
import re

import pytest

from course_lib.workbook import masters

TEXT = (masters.ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| (.+) \| (\d\d) \|$", TEXT, re.MULTILINE)


@functools.cache
def said(number):
    """What the cells of a lesson say, with its lines joined."""
    cells = masters.for_students(masters.masters([number])[0]).cells
    return " ".join("\n".join(cell.source for cell in cells).split()).lower()


def test_every_line_of_the_table_is_read():
    assert len(ROWS) == len(re.findall(r"^\|", TEXT, re.MULTILINE)) - 2 >= 60


@pytest.mark.parametrize(("term", "number"), [(term, number) for term, _, number in ROWS])
def test_a_term_is_said_in_its_lesson(term, number):
    assert re.search(rf"(?<!\w){re.escape(term.lower())}", said(number))


@pytest.mark.parametrize("number", sorted({number for *_, number in ROWS}))
def test_terms_of_a_lesson_are_sorted_and_defined_once(number):
    terms = [term.lower() for term, _, there in ROWS if there == number]
    assert terms == sorted(terms)
    assert len({term.lower() for term, *_ in ROWS}) == len(ROWS)


def test_a_definition_is_a_sentence():
    assert [term for term, definition, _ in ROWS if not re.fullmatch(r"[^a-z].*\.|.*λ\.", definition)] == []
