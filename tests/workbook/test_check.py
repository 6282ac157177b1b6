"""What a student sees: check, hint and progress, in their hands and in strict mode."""

import functools
import json
import multiprocessing
import re
import signal
import subprocess
import sys
import threading

import pytest
import torch

from course_lib.checking import call
from course_lib.checking.exercise import Case
from course_lib.checking.given import LONG, given, own_names
from course_lib.lessons.wanda.exercises import EXERCISES
from course_lib.workbook import check, hint, progress, show_progress
from course_lib.workbook.catalogue import find, lessons
from course_lib.workbook.checks import CheckFailed
from course_lib.workbook.outline import outlines
from course_lib.workbook.progress import Record, load, update


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COURSE_STRICT", raising=False)
    return tmp_path / "home"


def right(weight, inputs):
    return weight.abs() * inputs.norm(dim=0)


def squared(weight, inputs):
    return weight.abs() * inputs.norm(dim=0) ** 2


def unwritten(weight, inputs):
    raise NotImplementedError


def test_right_answer(capsys):
    assert check("wanda.score", right) is None
    assert capsys.readouterr().out.startswith("Right · The Wanda score · 5 of 5 cases · 2 points")
    assert load()["wanda.score"].solved


def test_wrong_answer_says_which_case_got_expected_where_and_which_mistake(capsys):
    check("wanda.score", squared)
    out = capsys.readouterr().out
    assert out.startswith("Not yet · The Wanda score · ")
    for part in (
        "Case: ",
        "Given: weight = [[",
        "Got: ",
        "Expected: ",
        "Where: row ",
        "This looks like: squared norm",
        'hint("wanda.score")',
    ):
        assert part in out
    assert load()["wanda.score"] == Record(attempts=1)


VECTOR = torch.tensor([2.0, 1e-7, -0.333333])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((VECTOR, 3), "a = [2, 1e-07, -0.3333], b = 3"),
        ((torch.ones(6, 6), VECTOR), "a of shape (6, 6), b = [2, 1e-07, -0.3333]"),
        ((torch.ones(6, 6), torch.ones(36)), ""),
        ((None, True), "a = None, b = True"),
        (((2, 0.5), [VECTOR, "CSR"]), "a = (2, 0.5), b = [[2, 1e-07, -0.3333], 'CSR']"),
        (((1,), ()), "a = (1,), b = ()"),
        (({"up": torch.tensor(True)}, torch.tensor([[1, 2]])), "a = {'up': True}, b = [[1, 2]]"),
        (((torch.ones(6, 6), 1), 2), "a with 2 values, b = 2"),
        ((torch.zeros(0, 4), torch.zeros(0)), "a of shape (0, 4), b = []"),
        ((torch.rand(24), torch.rand(23, 1)), None),  # the longer one by its shape: both together are too long
        (("x" * 300, 1), f"a = '{'x' * 196}..., b = 1"),
    ],
)  # fmt: skip
def test_what_a_case_passes_is_written_out_where_it_is_small(arguments, said):
    shown = given(find("wanda.score"), Case("made up", arguments), ("a", "b"))
    assert len(shown) <= LONG
    if said is None:
        assert re.fullmatch(r"a = \[[-\d., e]+\], b of shape \(23, 1\)", shown)
    else:
        assert shown == said


def optional(weight, inputs, eps=1e-8, *, dim=0):
    return weight


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda w, x: w, ("w", "x")),
        (optional, ("weight", "inputs")),
        (functools.partial(optional, eps=1.0), ("weight", "inputs")),
        (lambda *given: given, ()),
        (lambda w, *rest: w, ()),
        (lambda w: w, ()),
        (lambda w, x, n: w, ()),
        (lambda w, x, *, n: w, ()),
        (max, ()),  # it has no signature
        (type("Broken", (), {"__call__": lambda self, w: w, "__signature__": 3})(), ()),
    ],
)  # fmt: skip
def test_a_functions_own_names_are_used_where_it_takes_the_arguments_one_by_one(function, names):
    assert own_names(function, Case("made up", (1, 2))) == names


def test_given_has_the_students_names_and_else_those_of_the_stub(capsys):
    check("classic.scale", lambda every, seen, each: 0)
    assert "Given: every = 10, seen = 3, each = 4" in capsys.readouterr().out
    check("classic.scale", lambda *numbers: 0)
    assert "Given: n_weights = 10, n_gradients = 3, bytes_per_number = 4" in capsys.readouterr().out


def test_unwritten_is_not_an_attempt(capsys):
    check("wanda.score", unwritten)
    assert capsys.readouterr().out.startswith("Not attempted · The Wanda score")
    assert load()["wanda.score"].attempts == 0


def fails(weight, inputs):
    return weight @ inputs


def leaves(weight, inputs):
    raise SystemExit(3)


def recurses(weight, inputs):
    return recurses(weight, inputs)


@pytest.mark.parametrize(
    ("function", "said"), [(fails, "RuntimeError"), (leaves, "SystemExit"), (recurses, "RecursionError")]
)
def test_whatever_a_function_raises_becomes_a_verdict_with_its_own_traceback(function, said, capsys):
    check("wanda.score", function)
    out = capsys.readouterr().out
    assert f"it raised {said}" in out
    assert "test_check.py" in out
    assert "call.py" not in out


def loops(weight, inputs):
    while True:
        try:
            weight = weight.abs()
        except Exception:
            return weight


def test_an_endless_loop_becomes_a_verdict(monkeypatch, capsys):
    monkeypatch.setattr(call, "LIMIT", 0.2)
    before = signal.getsignal(signal.SIGALRM)
    check("wanda.score", loops)
    out = capsys.readouterr().out
    assert "0 of " in out
    assert "Got" not in out  # nothing was
    assert "it did not finish within 0.2 seconds: does the loop end?" in out
    assert "test_check.py" in out
    assert "call.py" not in out
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    check("wanda.score", right)
    assert capsys.readouterr().out.startswith("Right")


def test_an_endless_loop_alone_gets_no_name(monkeypatch, capsys):
    monkeypatch.setattr(call, "LIMIT", 0.5)

    def prune(weight, hessian, limit):
        keep = torch.ones(len(weight), dtype=torch.bool)
        while keep.any():
            inverse = torch.linalg.inv(hessian[keep][:, keep])
            left = weight[keep]
            saliency = left.square() / (2 * inverse.diagonal())
            q = saliency.argmin()
            if saliency[q] > limit:
                break
            weight[keep] = left - left[q] / inverse[q, q] * inverse[:, q]
            weight[q] = 0
            keep[q] = False
        return weight

    check("classic.prune", prune)
    out = capsys.readouterr().out
    assert "it did not finish within 0.5 seconds: does the loop end?" in out
    assert "looks like" not in out  # a loop may run on for many reasons


def test_one_more_slip_does_not_cost_a_mistake_its_name(capsys):
    """The squared norm, and a floor under it that only the input which is always zero shows."""
    check(
        "wanda.score",
        lambda weight, inputs: weight.abs() * (inputs.square().sum(dim=0) + 1000.0 * (inputs == 0).all(0)),
    )
    assert "This looks like: squared norm (on 4 of the 5 wrong cases). " in capsys.readouterr().out


def test_off_the_main_thread_there_is_no_limit_and_no_error(capsys):
    worker = threading.Thread(target=check, args=("wanda.score", right))
    worker.start()
    worker.join()
    assert capsys.readouterr().out.startswith("Right")


def test_inputs_are_copies(capsys):
    def in_place(weight, inputs):
        inputs.square_()
        return weight.abs_().mul_(inputs.sum(0).sqrt_())

    check("wanda.score", in_place)
    assert capsys.readouterr().out.startswith("Right")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("wanda.scor", right), "did you mean wanda.score"),
        (("wanda.score", 3), "pass the function itself"),
        ((None, right), "None"),
    ],
)
def test_a_misused_check_explains_itself(arguments, said, capsys):
    check(*arguments)
    assert said in capsys.readouterr().out


def test_strict_mode_raises_unless_right(monkeypatch, capsys):
    monkeypatch.setenv("COURSE_STRICT", "1")
    check("wanda.score", right)
    with pytest.raises(CheckFailed, match="wanda.score is wrong: row"):
        check("wanda.score", squared)
    with pytest.raises(CheckFailed, match="not attempted"):
        check("wanda.score", unwritten)
    with pytest.raises(ValueError, match="did you mean"):
        check("wanda.nothing", right)


def test_a_home_that_cannot_be_written_does_not_stand_in_the_way(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_HOME", str(tmp_path / "file" / "under"))
    check("wanda.score", right)
    assert capsys.readouterr().out.startswith("Right")


def test_hints_come_one_by_one_and_are_counted(capsys):
    for n_calls, seen in enumerate((1, 2, 3, 3), 1):
        hint("wanda.score")
        said = capsys.readouterr().out
        assert said.count("Hint ") == seen
        assert ("This exercise has no more hints" in said) == (n_calls == 4)
        assert load()["wanda.score"].hints == seen
    hint("wanda.nonsense")
    assert "did you mean" in capsys.readouterr().out


def test_where_progress_cannot_be_kept_hints_come_one_by_one_all_the_same(home, monkeypatch, capsys):
    monkeypatch.setattr(progress, "update", lambda *_, **__: (_ for _ in ()).throw(OSError(30, "Read-only")))
    for seen in (1, 2, 3, 3):
        hint("wanda.keep_rows")
        said = capsys.readouterr().out
        assert said.count("Hint ") == seen
        assert f"Progress was not stored: cannot write to {home} (Read-only). Set COURSE_HOME" in said
    check("wanda.keep_rows", lambda weight, score, sparsity: weight)
    assert "All 3 hints were shown" in capsys.readouterr().out
    check("wanda.score", right)
    said = capsys.readouterr().out
    assert said.startswith("Right")
    assert "Progress was not stored" in said


def test_solved_stays_solved():
    check("wanda.score", right)
    first = load()["wanda.score"].solved
    check("wanda.score", squared)
    assert load()["wanda.score"] == Record(attempts=2, solved=first)


def test_progress_table_counts(capsys):
    check("wanda.score", right)
    check("wanda.n_of_m", squared)
    hint("wanda.score")
    capsys.readouterr()
    show_progress()
    row = next(line for line in capsys.readouterr().out.splitlines() if "04 Wanda" in line)
    points = f"{find('wanda.score').points} of {sum(exercise.points for exercise in EXERCISES)}"
    n_exercises = str(len(EXERCISES))
    assert [cell.strip() for cell in row.strip("│ ").split("│")] == ["04 Wanda", "1", "2", n_exercises, "1", points]


def test_a_broken_progress_file_is_kept_beside(home):
    home.mkdir()
    (home / "progress.json").write_text("{ half a file")
    update("wanda.score", attempts=1)
    (kept,) = home.glob("progress.unreadable-*.json")
    assert kept.read_text() == "{ half a file"
    assert load() == {"wanda.score": Record(attempts=1)}


@pytest.mark.parametrize("text", ['{"wanda.score": {"attempts": "x"}}', '{"wanda.score": 3}', "[]", '{"a": {"b": 1}}'])
def test_a_progress_file_of_the_wrong_kind_is_kept_and_a_check_goes_on(home, text, capsys):
    home.mkdir()
    (home / "progress.json").write_text(text)
    check("wanda.score", right)
    assert capsys.readouterr().out.startswith("Right")
    assert [p.read_text() for p in home.glob("progress.unreadable-*.json")] == [text]


def test_what_cannot_be_compared_is_said_to_be_returned_not_raised(capsys):
    check("wanda.score", lambda w, x: {1: object()})
    assert "it returned what cannot be compared: got a value of type object" in capsys.readouterr().out
    check("wanda.score", lambda w, x: None)
    assert "it returned None: is there a `return`?" in capsys.readouterr().out


def test_nested_lists_are_right_too_and_ties_need_exact_counts(capsys):
    check("wanda.score", lambda w, x: right(w, x).tolist())
    assert capsys.readouterr().out.startswith("Right")

    def threshold(score, n, m):
        groups = score.reshape(-1, m)
        return (groups >= groups.topk(n, dim=1).values[:, -1:]).reshape(score.shape)

    check("wanda.n_of_m", threshold)
    assert "Not yet · N of M · " in capsys.readouterr().out


def _many_updates(folder):
    import os

    os.environ["COURSE_HOME"] = folder
    for _ in range(20):
        update("wanda.score", attempts=1)


def test_two_notebooks_at_once_lose_nothing(home):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_many_updates, args=(str(home),)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert json.loads((home / "progress.json").read_text())["wanda.score"]["attempts"] == 40


def test_a_tensor_that_requires_gradients_is_fine(capsys):
    check("wanda.score", lambda w, x: torch.nn.Parameter(w).abs() * x.norm(dim=0))
    assert capsys.readouterr().out.startswith("Right")


def test_the_outline_read_from_the_text_is_that_of_the_exercises():
    expected = [(module.LESSON, {e.id: e.points for e in module.EXERCISES}) for module in lessons()]
    assert [(outline.lesson, list(outline.points.items())) for outline in outlines()] == [
        (lesson, list(points.items())) for lesson, points in expected
    ]


def test_progress_imports_nothing_that_takes_seconds():
    program = "import sys; from course_lib.workbook import show_progress as show; show(); print(sys.modules.keys())"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "04 Wanda" in shown
    assert not any(f"'{heavy}'" in shown for heavy in ("torch", "transformers", "matplotlib", "numpy"))


def test_functions_stay_functions_whatever_was_imported_before():
    import course_lib.workbook as workbook
    import course_lib.workbook.checks
    import course_lib.workbook.hints  # noqa: F401

    assert callable(workbook.check)
    assert callable(workbook.hint)
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        _ = workbook.chekc


def test_an_outline_is_read_past_assignments_of_several_names(tmp_path):
    folder = tmp_path / "made" / "exercises"
    folder.mkdir(parents=True)
    listing = 'from x.one import ONE\n\nA, B = 1, 2\nLESSON = "99 Made"\nEXERCISES = (ONE,)\n'
    (folder / "__init__.py").write_text(listing, encoding="utf-8")
    (folder / "one.py").write_text('C, D = 3, 4\nONE = Exercise(id="made.one", points=2)\n', encoding="utf-8")
    (outline,) = outlines(tmp_path)
    assert (outline.lesson, outline.points) == ("99 Made", {"made.one": 2})
