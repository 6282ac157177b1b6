"""Every deck holds a lecture of 45 minutes: something to look at on each slide, few words, notes with a question."""

import re
from pathlib import Path

import pytest

from course_lib.workbook.decks.markdown import split_slides
from course_lib.workbook.decks.page import decks

MOST_WORDS = 40  # outside tables, code and formulas; a class reads or listens, it cannot do both
FEWEST_SLIDES, MOST_SLIDES = 18, 28  # 45 minutes at about two minutes a slide
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
DISPLAYED = re.compile(r"\$\$.+?\$\$", re.DOTALL)
INLINE = re.compile(r"\$[^$\n]+\$")
PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
TABLE = re.compile(r"^\|.*$", re.MULTILINE)
SENTENCE_ENDS = re.compile(r"[.?](?=[\s)\"*]|$)")
# An abbreviation or an initial ends no sentence.
NO_END = re.compile(r"\b(?:e\.g|i\.e|cf|vs|al|Fig|eq|[A-Z])\.(?=\s)")

every_deck = pytest.mark.parametrize("path", decks(), ids=lambda path: path.stem)


def numbered(path: Path) -> list[tuple[int, str, str]]:
    """(number, what the class sees, what the speaker reads) of each slide."""
    slides = split_slides(path.read_text(encoding="utf-8"))
    return [(number, *parts(slide)) for number, slide in enumerate(slides, 1)]


def parts(slide: str) -> tuple[str, str]:
    """(what the class sees, what the speaker reads)."""
    body, _, notes = re.sub(r"^Note: *", "\0", slide, count=1, flags=re.MULTILINE).partition("\0")
    return body, notes.strip()


def n_words(body: str) -> int:
    for what in (FENCE, DISPLAYED, INLINE, PICTURE, TABLE):
        body = what.sub(" ", body)
    return len(re.findall(r"[^\W_][\w'’\-.,]*", re.sub(r"<[^>]*>", " ", body)))


def n_sentences(notes: str) -> int:
    return len(SENTENCE_ENDS.findall(NO_END.sub("", INLINE.sub("x", notes))))


@every_deck
def test_a_deck_fills_45_minutes_and_ends_with_a_summary(path):
    slides = split_slides(path.read_text(encoding="utf-8"))
    assert FEWEST_SLIDES <= len(slides) <= MOST_SLIDES
    assert re.match(r"# ", slides[0]), "the first slide is the title"
    assert re.match(r"## To take home$", slides[-1].splitlines()[0])


@every_deck
def test_a_deck_shows_published_results(path):
    slides = split_slides(path.read_text(encoding="utf-8"))
    assert [slide for slide in slides if TABLE.search(slide) and re.search(r"\b(paper|published)\b", slide)]


@every_deck
def test_every_slide_but_the_title_shows_something(path):
    shown = (PICTURE, DISPLAYED, TABLE, FENCE)
    assert [number for number, body, _ in numbered(path)[1:] if not any(what.search(body) for what in shown)] == []


@every_deck
def test_no_slide_has_many_words(path):
    assert {number: n_words(body) for number, body, _ in numbered(path) if n_words(body) > MOST_WORDS} == {}


@every_deck
def test_the_speaker_has_two_to_five_sentences_for_each_slide(path):
    counts = {number: n_sentences(notes) for number, _, notes in numbered(path)}
    assert {number: count for number, count in counts.items() if not 2 <= count <= 5} == {}


@every_deck
def test_the_speaker_asks_the_class_at_each_slide_but_the_title(path):
    assert [number for number, _, notes in numbered(path)[1:] if "?" not in notes] == []


def test_what_is_counted():
    slide = "## One, two\n\n$$a + b$$ three $x$\n\n| no | words |\n\n![none](figure:a.b.c)\n\nNote: One. Two?"
    body, notes = parts(slide)
    assert n_words(body) == 3
    assert n_sentences(notes) == 2
    assert n_sentences("Frantar et al. say 0.5. See eq. 3 of $x.$. Why?") == 3
