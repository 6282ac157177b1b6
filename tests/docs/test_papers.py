"""The index of papers names each paper whose address is in the code or the lessons, and nothing else."""

import re

import pytest

from course_lib.workbook.masters import ROOT

TEXT = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| .*?\]\((http[^)]+)\).*? \| (.+) \|$", TEXT, re.MULTILINE)
PAPER = re.compile(
    r"https://(?:arxiv\.org/abs/\d{4}\.\d{4,5}|doi\.org/[\w./]+\w|proceedings\.[\w./-]+html|iclr\.cc/virtual/[\w/]+\d|www\.evanmiller[\w./-]+html)|http://robots\.stanford\.edu/papers/[\w.]+html"
)
PLACES = [path for folder in ("course_lib", "kernels") for path in sorted((ROOT / folder).rglob("*.py"))]


def named(paths):
    """The addresses of papers in these files."""
    return set().union(*(PAPER.findall(path.read_text(encoding="utf-8")) for path in paths))


MASTERS = {path.stem[:2]: path for path in sorted((ROOT / "solutions").glob("*.py"))}
DECKS = sorted((ROOT / "slides").glob("*.md"))


def test_the_index_is_complete_and_names_nothing_else():
    everywhere = named([*PLACES, *MASTERS.values(), *DECKS])
    listed = [address for address, _ in ROWS]
    assert len(listed) == len(set(listed)) == TEXT.count("](http")
    assert sorted(everywhere - set(listed)) == [], "add these to docs/papers.md"
    assert sorted(set(listed) - everywhere) == [], "nothing in the course names these"


@pytest.mark.parametrize(("address", "where"), ROWS)
def test_the_paper_is_named_where_the_index_says(address, where):
    for path in re.findall(r"`([^`]+)`", where):
        assert address in (ROOT / path).read_text(encoding="utf-8")
    lessons = re.search(r"lessons? (\d\d(?:, \d\d)*)", where)
    for number in lessons[1].split(", ") if lessons else ():
        assert address in named([MASTERS[number]])
