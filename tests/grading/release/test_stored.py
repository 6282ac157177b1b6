"""Answers become data, and files of exercises lose them."""

import math

import pytest
import torch
from safetensors.torch import load

from course_lib.checking.recorded import decode, recorded
from course_lib.grading.release import strip
from course_lib.grading.release.record import Tensors, encode, record
from course_lib.workbook.catalogue import lessons
from course_lib.workbook.masters import ROOT

LESSON = '''"""Lesson 99: something."""

import math

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Mistake, Variant

LESSON = "99 Something"
SECRET = 3


def _helper(x):
    return math.sqrt(x) * SECRET


def _answer(x):
    return _helper(x)


def _near(got, expected: Tensor):
    """Nearly."""
    return _far(got, expected)


def _far(got, expected):
    return None if torch.equal(got, expected) else "other"


FIRST = Exercise(
    id="something.first",
    reference=_answer,
    agree=_near,
    mistakes=(Mistake("m", "n", lambda x: _helper(x) + 1),),
)
SECOND = Exercise(id="something.second", reference=lambda x: x**3, picture=lambda case, got, expected: None)
EXERCISES = (FIRST, SECOND)
'''


def test_a_file_of_exercises_keeps_what_compares_and_loses_what_answers():
    assert strip.without_answers(LESSON, "something.py") == (
        '''"""Lesson 99: something.

Without the answers: what they give on the cases of `check` is data, in the file beside this one.
"""

import torch
from torch import Tensor

from course_lib.checking.recorded import recorded


LESSON = "99 Something"


def _near(got, expected: Tensor):
    """Nearly."""
    return _far(got, expected)


def _far(got, expected):
    return None if torch.equal(got, expected) else "other"


EXERCISES = recorded(
    __file__,
    agree={
        "something.first": _near,
    },
    picture={
        "something.second": lambda case, got, expected: None,
    },
)
'''
    )


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("return _far(got, expected)", "return _far(got, FIRST.reference(1))", "comparisons and pictures that use no"),
        ('id="something.first"', 'id="something" + ".first"', 'expected Exercise\\(id="..."'),
        ('LESSON = "99 Something"', "", "expected a LESSON"),
    ],
)
def test_a_file_that_cannot_be_parted_from_its_answers_is_refused(before, after, message):
    with pytest.raises(ValueError, match=message):
        strip.without_answers(LESSON.replace(before, after), "something.py")


@pytest.mark.parametrize("module", lessons(), ids=lambda module: module.__name__.split(".")[-1])
def test_nothing_that_stays_is_part_of_an_answer(module):
    """What compares or draws may share imports with the answers, and nothing else."""
    source = (ROOT / (module.__name__.replace(".", "/") + ".py")).read_text(encoding="utf-8")
    shared = strip.shared_with_answers(source)
    assert not shared, f"{shared} would be in a student's copy; write the comparison without it"


def test_passages_for_instructors_are_left_out():
    text = (
        "one\n<!-- BEGIN INSTRUCTORS: why -->\ntwo\n<!-- END INSTRUCTORS -->\n\nthree\n<!-- FOR STUDENTS\nfour\n-->\n"
    )
    assert strip.for_students(text, "x") == "one\nthree\nfour\n"
    code = "a = 1\n    # BEGIN INSTRUCTORS\n    b = 2\n    # END INSTRUCTORS\nc = 3\n"
    assert strip.for_students(2 * code, "x") == 2 * "a = 1\nc = 3\n"


@pytest.mark.parametrize("text", ["# BEGIN INSTRUCTORS\na\n", "a\n# END INSTRUCTORS\n", "<!-- FOR STUDENTS\na\n"])
def test_a_marker_without_a_partner_is_refused(text):
    with pytest.raises(ValueError, match="has no partner"):
        strip.for_students(text, "README.md")


def test_rows_of_lessons_that_are_not_given_out_leave_the_table():
    table = "| a |\n|:--|\n| [00 A](notebooks/00_a.ipynb) | x |\n| [01 B](notebooks/01_b.ipynb) | y |\n"
    assert strip.without_rows(table, {"notebooks/01_b.ipynb"}) == "| a |\n|:--|\n| [01 B](notebooks/01_b.ipynb) | y |\n"


BASE = torch.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    "tensor",
    [
        BASE,
        BASE.T,
        BASE[:, 1:3],
        BASE[:, :1].expand(3, 5),
        BASE[1, 2],
        BASE[:0],
        BASE > 3,
        BASE.to(torch.uint8),
        BASE.to(torch.bfloat16),
        BASE.double()[::2, ::3],
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)}-{tensor.stride()}-{tensor.dtype}",
)
def test_a_tensor_comes_back_with_its_strides_and_in_memory_of_its_own(tensor):
    tensors = Tensors()
    stored = encode((tensor, tensor), tensors)
    assert len(tensors.named()) == 1  # each content once
    first, second = decode(stored, list(tensors.named().values()))
    for got in (first, second):
        assert (got.shape, got.stride(), got.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
        assert torch.equal(got, tensor)
    if first.numel():
        assert first.data_ptr() != second.data_ptr()


def test_plain_values_come_back():
    value = ({"a": (1, 2.5), 3: None}, math.inf, True, "text")
    assert decode(encode(value, Tensors()), []) == value
    with pytest.raises(ValueError, match="got a function among a case's arguments"):
        encode((lambda: 1,), Tensors())


def test_no_traceback_is_stored_and_the_file_is_the_same_each_time():
    """A traceback would quote the function that it comes from."""
    module = next(module for module in lessons() if module.__name__.endswith("wanda"))
    content = record(module)
    assert content == record(module)
    assert b"Traceback" not in content
    assert b"lambda" not in content
    assert len(content) < 10**6
    assert load(content)


def test_other_seeds_are_refused(tmp_path):
    module = lessons()[0]
    (tmp_path / "start.safetensors").write_bytes(record(module, seed=3))
    first = recorded(str(tmp_path / "start.py"), {}, {})[0]
    assert [case.name for case in first.cases(torch.Generator().manual_seed(3))]
    with pytest.raises(ValueError, match="got seed 0; .* has only the cases of seed 3"):
        first.cases(torch.Generator().manual_seed(0))
