"""Results on disk: what was kept comes back, and nothing that is damaged or out of date does."""

from dataclasses import replace

import pytest

from course_lib.grading import store
from course_lib.grading.records import CaseResult, ExerciseResult, Result

RESULT = Result(
    "ada",
    "04 Wanda",
    "ada/04_wanda.ipynb",
    3,
    (
        ExerciseResult(
            "wanda.score",
            "The Wanda score",
            1.5,
            2.0,
            "partly",
            "a reason",
            mistake="squared norm",
            explanation="why",
            hint="a hint",
            cases=(CaseResult("by hand", False, None), CaseResult("a tie", True, "wrong")),
            trace="a trace",
            notes=("a note",),
            seconds=0.25,
            touched=("opened solutions/",),
            code="v1",
            uses=("course_lib.pruning",),
            only_calls=True,
        ),
        ExerciseResult("wanda.interval", "How sure?", 0.0, 2.0, "not found"),
    ),
    problem="a problem",
    notes=("2 notebooks",),
)


def test_a_result_comes_back_as_it_was(tmp_path):
    store.save(tmp_path, RESULT, "key")
    assert store.load(tmp_path, "ada", "key") == RESULT
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["ada.json"]


def test_what_was_made_otherwise_does_not(tmp_path):
    store.save(tmp_path, RESULT, "key")
    assert store.load(tmp_path, "ada", "another key") is None
    assert store.load(tmp_path, "alan", "key") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"key": "key", "res',
        "[]",
        '{"key": "key"}',
        '{"key": "key", "result": {}}',
        '{"key": "key", "result": {"exercises": [{}], "notes": []}}',
        '{"key": "key", "result": {"exercises": [], "notes": null}}',
    ],
)
def test_what_is_damaged_does_not(text, tmp_path):
    store.save(tmp_path, RESULT, "key")
    store.path_of(tmp_path, "ada").write_text(text)
    assert store.load(tmp_path, "ada", "key") is None


def test_a_student_is_a_file_in_the_folder_whatever_the_name(tmp_path):
    names = ["../../etc/passwd", "a/b", "ada", "Ada", "ada ", "ADA", "x" * 500, "null\0", "\ud800", "ünï", "..", "con"]
    paths = [store.path_of(tmp_path, name) for name in names]
    assert {path.parent for path in paths} == {tmp_path / "results"}
    assert len({path.name.casefold() for path in paths}) == len(names)


def test_half_a_letter_becomes_a_question_mark(tmp_path):
    store.write(tmp_path / "page.html", "a \ud800 b")
    assert (tmp_path / "page.html").read_text() == "a ? b"


def test_what_a_submission_raised_leaves_the_file_strict_json(tmp_path):
    """An escape of half a letter, \\ud800, is refused by strict readers, and with it the whole class."""
    row = replace(RESULT.exercises[0], reason="it raised ValueError: \ud800 \u202e \0")
    store.save(tmp_path, replace(RESULT, exercises=(row,)), "key")
    text = store.path_of(tmp_path, "ada").read_text(encoding="utf-8")
    assert "\\ud" not in text
    assert store.load(tmp_path, "ada", "key").exercises[0].reason == "it raised ValueError: ? \u202e \0"


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    store.save(tmp_path, RESULT, "key")

    def full(self, content):
        raise OSError("the disk is full")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match="full"):
        store.save(tmp_path, RESULT, "another key")
    assert store.load(tmp_path, "ada", "key") == RESULT
