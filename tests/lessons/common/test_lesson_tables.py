"""What every lesson prints alike: rows, and where they come from."""

import pytest

from course_lib.lessons.common.results import COLUMNS, listed, load_measured, load_published, origin, rows, say, wrapped

RESULT = {
    "command": "course reproduce tiny",
    "seed": 3,
    "started": "2026-01-02T03:04:05+00:00",
    "machine": {"cpu": "a processor", "cores": 2, "torch": "2.13"},
    "tables": {"t": [{"name": "a", "n": 1}, {"name": "a", "n": 2}, {"name": "b", "n": 1}]},
}


def test_rows_have_every_wanted_value_and_may_be_asked_of_the_tables_alone():
    assert rows(RESULT, "t", name="a") == [{"name": "a", "n": 1}, {"name": "a", "n": 2}]
    assert rows(RESULT, "t", name="a", n=1) == rows(RESULT["tables"], "t", name="a", n=1) == [{"name": "a", "n": 1}]


def test_numbers_say_where_they_come_from():
    said = "`course reproduce tiny`, seed 3, 2026-01-02, a processor (2 cores), torch 2.13\n"
    assert origin(RESULT, "three rows") == said + "SmolLM2-135M-Instruct from a file with 4 bits per weight; three rows"
    assert origin(RESULT, "three rows", weights="") == said + "three rows"


def test_results_are_found_by_their_lesson():
    assert load_measured("wanda")["experiment"] == "wanda"
    assert load_measured("sinks", "backcopy")["experiment"] == "backcopy"
    assert load_published("kv")["published"]
    with pytest.raises(ValueError, match="nothing/measured.json, which is not there"):
        load_measured("nothing")


def test_names_are_listed_as_one_says_them():
    assert [listed(names) for names in (["a"], ["a", 2], ("a", "b", 3))] == ["a", "a and 2", "a, b and 3"]


def test_no_printed_line_is_wider_than_a_page_and_words_stay_whole():
    n = 40
    said = origin(RESULT, "many words " * n)
    assert max(map(len, said.splitlines())) <= COLUMNS
    assert said.split() == (origin(RESULT, "").split() + ["many", "words"] * n)
    assert wrapped("short\n\nlines") == "short\n\nlines"
    assert wrapped("a" * 60 + " " + "b" * 60) == "a" * 60 + "\n" + "b" * 60


def test_what_is_said_goes_on_indented(capsys):
    say("short\nClaim: " + "a word " * 20)
    short, claim, rest = capsys.readouterr().out.splitlines()
    assert (short, claim[:6], rest[:4], rest[4] == " ") == ("short", "Claim:", "    ", False)
    assert len(claim) <= COLUMNS
    assert f"{claim} {rest}".split() == ["Claim:"] + ["a", "word"] * 20
