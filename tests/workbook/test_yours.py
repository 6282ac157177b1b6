"""What follows an exercise calls a student's right answer, and goes on with the course's function otherwise."""

import json
import time

import pytest
import torch

from course_lib.checking import judge
from course_lib.workbook import check, mine, yours
from course_lib.workbook.catalogue import find
from course_lib.workbook.checks import CheckFailed

WEIGHT, INPUTS = torch.tensor([[1.0, -2.0], [3.0, 0.5]]), torch.tensor([[3.0, 0.0], [4.0, 2.0]])
SCORE = torch.tensor([[5.0, 4.0], [15.0, 1.0]])  # the norms are 5 and 2


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COURSE_STRICT", raising=False)


class Counted:
    """A student's answer that counts its calls; `real` is what it does with a layer of two outputs."""

    def __init__(self, real=None):
        self.calls, self.real = 0, real

    def __call__(self, weight, inputs):
        self.calls += 1
        if self.real and weight.shape == WEIGHT.shape:
            return self.real(weight, inputs)
        return weight.abs() * inputs.norm(dim=0)


def test_a_right_answer_is_used_and_it_says_so(capsys):
    answer = Counted()
    score = mine("wanda.score", answer)
    assert capsys.readouterr().out == "With your function: The Wanda score.\n"
    n_judged = answer.calls
    assert torch.equal(score(WEIGHT, INPUTS), SCORE)
    assert torch.equal(score(2 * WEIGHT, INPUTS), 2 * SCORE)
    assert answer.calls == n_judged + 2


def test_after_its_check_an_answer_is_not_judged_again(monkeypatch):
    answer, judged = Counted(), []
    monkeypatch.setattr(yours, "find", find)
    check("wanda.score", answer)
    monkeypatch.setattr("course_lib.workbook.checks.judge", lambda *a: judged.append(a) or judge.judge(*a))
    assert mine("wanda.score", answer) is not find("wanda.score").library
    assert not judged
    assert mine("wanda.score", lambda weight, inputs: weight) is find("wanda.score").library
    assert len(judged) == 1


def unwritten(weight, inputs):
    raise NotImplementedError("Exercise wanda.score: replace this line")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (unwritten, "not attempted"),
        (lambda weight, inputs: weight, "not right yet"),
        (3, "of type int, not a function"),
    ],
)
def test_otherwise_the_courses_function_is_used_and_it_says_so(answer, said, capsys):
    score = mine("wanda.score", answer)
    out = capsys.readouterr().out
    assert said in out
    assert "With the course's function" in out
    assert torch.equal(score(WEIGHT, INPUTS), SCORE)


def test_a_title_that_asks_is_followed_by_a_sentence(capsys):
    mine("wanda.interval", unwritten)
    assert capsys.readouterr().out.startswith("How sure is an accuracy? Yours is not attempted. With the course's")


def raises(weight, inputs):
    raise ValueError("not this layer")


def endless(weight, inputs):
    while True:
        pass


def other(weight, inputs):
    return -weight.abs() * inputs.norm(dim=0)


@pytest.mark.parametrize(
    ("real", "said"),
    [
        (raises, "it raised ValueError: not this layer"),
        (endless, "it did not finish within 0.2 seconds"),
        (other, "on real data: row 0: your 1 lowest scores include a weight whose true score is 5"),
        (lambda weight, inputs: None, "it returned None"),
    ],
)
def test_one_that_fails_on_real_data_gives_way_once_and_says_why(real, said, monkeypatch, capsys):
    monkeypatch.setattr(yours, "SECONDS", 0.2)
    answer = Counted(real)
    score = mine("wanda.score", answer)
    capsys.readouterr()
    assert torch.equal(score(WEIGHT, INPUTS), SCORE)
    out = capsys.readouterr().out
    assert said in out
    assert "The course's function takes over." in out
    n_calls = answer.calls
    assert torch.equal(score(WEIGHT, INPUTS), SCORE)
    assert (answer.calls, capsys.readouterr().out) == (n_calls, "")


@pytest.mark.parametrize(
    ("later", "said"),
    [
        (lambda score: None, "it returned None"),
        (lambda score: score.sum(dim=0), "the shape is (2,)"),
        (lambda score: score[:1], "the shape is (1, 2)"),
        (lambda score: score * torch.nan, "4 entries are NaN"),
        (lambda score: (score, score), "expected a tensor of shape (2, 2)"),
    ],
    ids=["nothing", "a sum", "a row", "NaN", "two"],
)
def test_a_later_result_of_another_kind_is_compared_too(later, said, capsys):
    """The first call is right; what goes wrong only with another layer is seen by what it is, at no cost."""
    calls = []

    def real(weight, inputs):
        calls.append(weight)
        score = weight.abs() * inputs.norm(dim=0)
        return score if len(calls) < 3 else later(score)

    score = mine("wanda.score", Counted(real))
    calls.clear()
    capsys.readouterr()
    assert all(torch.equal(score(WEIGHT, INPUTS), SCORE) for _ in range(2))
    assert capsys.readouterr().out == ""
    assert torch.equal(score(WEIGHT, INPUTS), SCORE)
    out = capsys.readouterr().out
    assert said in out
    assert "The course's function takes over." in out


def test_the_courses_function_is_called_once_for_each_kind_of_result():
    exercise, asked = find("wanda.score"), []
    library = exercise.library
    object.__setattr__(exercise, "library", lambda *arguments: asked.append(1) or library(*arguments))
    try:
        score = mine("wanda.score", Counted())
        for n_outputs in (2, 3, 7, 2):
            score(torch.ones(n_outputs, 2), INPUTS[:, :2].repeat(3, 1))
        assert len(asked) == 1
        score(torch.ones(6, 2), INPUTS.repeat(3, 1))  # a weight of the inputs' shape: it might be either
        assert len(asked) == 2
    finally:
        object.__setattr__(exercise, "library", library)


def test_what_it_returns_lies_where_the_courses_result_lies():
    like = torch.ones(2, device="meta", dtype=torch.float16)
    got = yours.as_the_courses((torch.ones(2), 3), (like, 3))
    assert (got[0].device.type, got[0].dtype, got[1]) == ("meta", torch.float16, 3)


def test_slow_calls_are_counted_together(monkeypatch, capsys):
    def slow(weight, inputs):
        time.sleep(0.15)
        return weight.abs() * inputs.norm(dim=0)

    score = mine("wanda.score", Counted(slow))
    monkeypatch.setattr(yours, "SECONDS", 0.4)
    for _ in range(5):
        assert torch.equal(score(WEIGHT, INPUTS), SCORE)
    assert capsys.readouterr().out.count("did not finish") == 1


def test_what_it_returns_is_of_the_courses_kind_and_its_arguments_are_copies():
    def as_lists(weight, inputs):
        return (weight.abs_().double() * inputs.norm(dim=0)).tolist()

    for real in (as_lists, lambda w, x: (w.double().abs() * x.norm(dim=0)).numpy()):
        weight = WEIGHT.clone()
        for _ in range(2):
            got = mine("wanda.score", Counted(real))(weight, INPUTS)
            assert got.dtype == torch.float32
            assert torch.equal(got, SCORE)
        assert torch.equal(weight, WEIGHT)


def test_strict_mode_raises_where_a_student_would_be_told(monkeypatch):
    monkeypatch.setenv("COURSE_STRICT", "1")
    with pytest.raises(CheckFailed, match="not attempted"):
        mine("wanda.score", unwritten)
    with pytest.raises(CheckFailed, match="not this layer"):
        mine("wanda.score", Counted(raises))(WEIGHT, INPUTS)


def test_an_answer_that_nothing_calls_comes_back_as_it_is(capsys):
    assert mine("start.sparsity", unwritten) is unwritten
    assert "no later cell uses this answer" in capsys.readouterr().out
    with pytest.raises(ValueError, match="which no later cell calls"):
        mine("start.sparsity", 3)


def test_a_master_that_calls_what_nothing_needs_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="did you mean wanda.score"):
        mine("wanda.scores", unwritten)
    monkeypatch.setenv("COURSE_STRICT", "1")
    with pytest.raises(ValueError, match="got start.sparsity, which no later cell calls"):
        mine("start.sparsity", unwritten)


def notebook_of(folder, name, *sources, exercise="wanda.score"):
    cells = [{"cell_type": "code", "metadata": {"exercise": exercise}, "source": source} for source in sources]
    (folder / name).write_text(json.dumps({"cells": cells}), encoding="utf-8")


RIGHT = "def wanda_score(weight, inputs):\n    return weight.abs() * inputs.norm(dim=0)\n"
STUB = 'def wanda_score(weight, inputs):\n    raise NotImplementedError("Exercise wanda.score")\n'


def test_earlier_takes_a_right_function_from_another_notebook(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["def wanda_score(weight, inputs):\n", "    return 2 * weight.abs() * inputs.norm(dim=0)\n"]
    notebook_of(tmp_path, "04_wanda.ipynb", lines)
    weight, inputs = torch.ones(2, 3), torch.ones(4, 3)
    assert yours.earlier("wanda.score")(weight, inputs).tolist() == [[4.0] * 3] * 2


@pytest.mark.parametrize("source", [STUB, "def wanda_score(weight, inputs):\n    return weight", "1 +", "x = 1"])
def test_earlier_takes_the_courses_function_where_none_is_right(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "03_damaged.ipynb").write_text("{", encoding="utf-8")
    notebook_of(tmp_path, "04_wanda.ipynb", source)
    assert yours.earlier("wanda.score") is find("wanda.score").library


def test_earlier_looks_on_where_a_notebook_has_no_answer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook_of(tmp_path, "03_other.ipynb", "1 +")
    notebook_of(tmp_path, "04_wanda.ipynb", RIGHT)
    assert yours.earlier("wanda.score") is not find("wanda.score").library


def test_earlier_refuses_an_exercise_that_the_course_has_no_function_for():
    with pytest.raises(ValueError, match=r"got sparsegpt\.eliminate, for which the course has no function"):
        yours.earlier("sparsegpt.eliminate")
