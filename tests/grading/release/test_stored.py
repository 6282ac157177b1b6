"""Answers become data, and the files of exercises lose them."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load

from course_lib.checking.recorded import decode, recorded
from course_lib.grading.release import exercises, strip, student_files
from course_lib.grading.release.record import Tensors, encode, record
from course_lib.workbook import masters
from course_lib.workbook.catalogue import exercises_of, file_of, find, lessons

EXERCISE = '''"""The exercise something.first.

Dimension key: N numbers.
"""

import math

import torch
from torch import Tensor

from course_lib.checking.exercise import Case, Exercise, Variant
from course_lib.checking.mistakes import read_mistakes
from course_lib.lessons.something.exercises.common import drawn, equal

SECRET = 3


def _helper(x):
    return math.sqrt(x) * SECRET


def _answer(x):
    return _helper(x)


def _near(got, expected: Tensor, case):
    """Nearly."""
    return _far(got, expected)


def _far(got, expected):
    return None if equal(got, expected) else "other"


FIRST = Exercise(
    id="something.first",
    reference=_answer,
    cases=drawn,
    agree=_near,
    picture=lambda case, got, expected: None,
    mistakes=read_mistakes(globals()),
)
'''

MISTAKES = """# something.first(x)

- **m**: n
  - `_helper(x) + 1`
"""

COMMON = '''"""What exercises share."""

import math

import torch

SIZE = 3


def drawn(generator):
    return [math.sqrt(SIZE)]


def equal(got, expected):
    return _same(got, expected)


def _same(got, expected):
    return torch.equal(got, expected)
'''

INDEX = '''"""Lesson 99."""

from course_lib.lessons.something.exercises.first import FIRST

LESSON = "99 Something"
EXERCISES = (FIRST,)
'''


def test_the_file_of_an_exercise_keeps_what_compares_and_loses_what_answers():
    left = exercises.without_answers(EXERCISE, "first.py")
    assert left == (
        '''"""The exercise something.first.

Dimension key: N numbers.

Without the answers: their results on the cases of `check` are data, in the file next to this one.
"""

from torch import Tensor

from course_lib.checking.recorded import recorded
from course_lib.lessons.something.exercises.common import equal


def _near(got, expected: Tensor, case):
    """Nearly."""
    return _far(got, expected)


def _far(got, expected):
    return None if equal(got, expected) else "other"


FIRST = recorded(__file__, agree=_near, picture=lambda case, got, expected: None)
'''
    )
    assert exercises.from_common(left) == {"equal"}


def test_of_what_exercises_share_only_what_compares_is_left():
    assert exercises.only(COMMON, {"equal"}) == (
        '''"""What exercises share.

Without the answers: what the comparisons need is all that is left.
"""

import torch


def equal(got, expected):
    return _same(got, expected)


def _same(got, expected):
    return torch.equal(got, expected)
'''
    )


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "return _far(got, expected)",
            "return _far(got, FIRST.reference(1))",
            "a comparison, a picture and a library function that use no",
        ),
        ('id="something.first"', 'id="something" + ".first"', 'expected Exercise\\(id="..."'),
        ("FIRST = Exercise(", "FIRST = made(", "got 0 exercises; expected one"),
        ("SECRET = 3", "SECRET = Exercise()", "got 2 exercises; expected one"),
        ("exercises.common import drawn", "exercises.second import drawn", "line 13: of other files of exercises"),
        ("exercises.common import drawn, equal", "exercises import common", "line 13: of other files of exercises"),
        ("import drawn, equal", "import drawn, equal as same", "line 13: of other files of exercises"),
        ("import math", "import course_lib.lessons.something.exercises.common", "line 6: of other files of exercises"),
    ],
)
def test_a_file_that_cannot_be_parted_from_its_answers_is_refused(before, after, message):
    assert before in EXERCISE
    with pytest.raises(ValueError, match=message):
        exercises.without_answers(EXERCISE.replace(before, after), "first.py")


@pytest.mark.parametrize(
    "more", ["def answer(x):\n    return x", "x = lambda: 3", "FIRST.reference = None", "FIRST = Exercise()", "if 3: 4"]
)
def test_the_list_of_a_lessons_exercises_holds_none(more):
    exercises.check_index(INDEX, "__init__.py")
    with pytest.raises(ValueError, match="__init__.py, line .: expected imports, LESSON and EXERCISES"):
        exercises.check_index(f"{INDEX}{more}\n", "__init__.py")


def test_what_is_shared_with_an_answer_is_found():
    assert exercises.shared_with_answers([(EXERCISE, MISTAKES)], COMMON) == set()
    told = EXERCISE.replace("return _helper(x)", "return _far(x, x)")
    assert exercises.shared_with_answers([(told, MISTAKES)], COMMON) == {"_far", "equal", "_same"}
    other = EXERCISE.replace("return _helper(x)", "return equal(x, x)")
    other = other.replace("return None if equal(got, expected)", "return None if got is expected")
    assert exercises.shared_with_answers([(other, MISTAKES)], COMMON) == set()
    both = [(EXERCISE, MISTAKES), (other, MISTAKES)]
    assert exercises.shared_with_answers(both, COMMON) == {"equal", "_same"}  # the one's is the other's


def test_what_is_shared_with_the_text_of_a_mistake_is_found():
    mistaken = MISTAKES.replace("_helper(x) + 1", "_far(x, 1)")
    assert exercises.shared_with_answers([(EXERCISE, mistaken)], COMMON) == {"_far", "equal", "_same"}
    looped = MISTAKES.replace("`_helper(x) + 1`", "`each(x)` for `each` in `_near, _helper`")
    assert exercises.shared_with_answers([(EXERCISE, looped)], COMMON) == {"_near", "_far", "equal", "_same"}


def test_a_release_is_refused_that_would_give_part_of_an_answer_away(monkeypatch):
    monkeypatch.setattr(exercises, "shared_with_answers", lambda sources, common: {"equal", "_far"})
    with pytest.raises(ValueError, match=r"start/exercises/__init__.py: _far, equal would be in a student's copy"):
        student_files.student_files(masters.masters(["00"]), masters.ROOT)


@pytest.mark.parametrize("module", lessons(), ids=lambda module: module.__name__.split(".")[-2])
def test_nothing_that_stays_is_part_of_an_answer(module):
    """What compares or draws may share imports with the answers, and nothing else."""
    files = [file_of(exercise) for exercise in module.EXERCISES]
    sources = [tuple(f.with_suffix(end).read_text(encoding="utf-8") for end in (".py", ".md")) for f in files]
    common = Path(module.__file__).with_name("common.py")
    shared = exercises.shared_with_answers(sources, common.read_text(encoding="utf-8") if common.exists() else "")
    assert not shared, f"{shared} would be in a student's copy; write the comparison without it"


def test_passages_for_instructors_are_left_out():
    code = "a = 1\n    # BEGIN INSTRUCTORS: why\n    b = 2\n    # END INSTRUCTORS\nc = 3\n"
    assert strip.for_students(2 * code, "x") == 2 * "a = 1\nc = 3\n"


@pytest.mark.parametrize("text", ["# BEGIN INSTRUCTORS\na\n", "a\n# END INSTRUCTORS\n"])
def test_a_marker_without_a_partner_is_refused(text):
    with pytest.raises(ValueError, match="has no partner"):
        strip.for_students(text, "Makefile")


README = "# A\n\n| lesson | b |\n|:--|--:|\n| [00 A](notebooks/00_a.ipynb) | x |\n\n| other |\n|:--|\n| y |\n"
TEMPLATE = f"# A\n\n[i](install.md) [l](../LICENSE) [o](https://x)\n\n{strip.TABLE_LINK}\n[g](glossary.md#a)\n"


def test_the_students_readme_has_the_table_of_lessons_and_links_from_the_top_folder():
    assert strip.student_readme(TEMPLATE, README) == (
        "# A\n\n[i](docs/install.md) [l](LICENSE) [o](https://x)\n\n"
        "| lesson | b |\n|:--|--:|\n| [00 A](notebooks/00_a.ipynb) | x |\n\n[g](docs/glossary.md#a)\n"
    )


@pytest.mark.parametrize(("template", "readme"), [("# A\n", README), (TEMPLATE, "# A\n")])
def test_a_students_readme_without_the_table_is_refused(template, readme):
    with pytest.raises(ValueError, match="got no table of lessons"):
        strip.student_readme(template, readme)


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
    for exercise in exercises_of("wanda").EXERCISES:
        content = record(exercise)
        assert content == record(exercise)
        assert b"Traceback" not in content
        assert b"lambda" not in content
        assert len(content) < 10**6
        assert load(content) or b"tensor" not in content


def test_other_seeds_are_refused(tmp_path):
    (tmp_path / "sparsity.safetensors").write_bytes(record(find("start.sparsity"), seed=3))
    exercise = recorded(str(tmp_path / "sparsity.py"))
    assert [case.name for case in exercise.cases(torch.Generator().manual_seed(3))]
    with pytest.raises(ValueError, match="got seed 0; .* has only the cases of seed 3"):
        exercise.cases(torch.Generator().manual_seed(0))
