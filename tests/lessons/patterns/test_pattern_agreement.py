"""How answers of lesson 01 are compared: of several equal candidates any may be kept, but their number is fixed."""

import pytest
import torch

from course_lib.checking.exercise import Case
from course_lib.workbook.catalogue import find

T = torch.tensor
COLUMNS, BLOCKS, NOFM = (find(f"patterns.{name}").agree for name in ("columns", "blocks", "nofm"))
WEIGHT = T([[3.0, 0.0, 4.0, 1.0], [4.0, 5.0, -3.0, 0.0]])  # columns of norm 5, 5, 5 and 1
KEPT = (WEIGHT[:, :2], T([0, 1]))


@pytest.mark.parametrize("columns", [[0, 1], [0, 2], [1, 2]])
def test_any_two_of_three_equal_columns_may_be_kept(columns):
    assert COLUMNS((WEIGHT[:, columns], T(columns)), KEPT, Case("", (WEIGHT, 2))) is None


@pytest.mark.parametrize(
    ("columns", "matrix", "message"),
    [
        ([2, 1], [2, 1], "the indices are tensor (2,) int64 [2, 1]"),
        ([1, 1], [1, 1], "the indices are"),
        ([-1, 1], [3, 1], "the indices are"),
        ([1, 3], [1, 3], "value 0: first different"),
        ([1, 2], [0, 2], "the matrix does not contain the columns of its indices"),
        ([0, 1, 2], [0, 1, 2], "the matrix: the shape is (2, 3), expected (2, 2)"),
    ],
)
def test_other_columns_are_refused(columns, matrix, message):
    assert COLUMNS((WEIGHT[:, matrix], T(columns)), KEPT, Case("", (WEIGHT, 2))).startswith(message)


def test_one_tensor_instead_of_two_values_is_refused():
    assert COLUMNS(KEPT[0], KEPT, Case("", (WEIGHT, 2))) == "got one tensor of shape (2, 2), expected 2 values"


TILES = T([[1.0, -1, 2, 0, 0, 1], [0, 0, 0, 0, 0, 0]])  # blocks of 2 × 2: totals 2, 2 and 1


def blocks(*kept):
    return T([[block in kept for block in range(3) for _ in range(2)]] * 2)


def test_either_of_two_equal_blocks_may_be_kept():
    case = Case("", (TILES, 2, 2, 1))
    assert BLOCKS(blocks(1), blocks(0), case) is None
    assert BLOCKS(blocks(1).float(), blocks(0), case) is None
    assert BLOCKS(blocks(2), blocks(0), case).startswith("first different")
    assert BLOCKS(blocks(0, 1), blocks(0), case) == "2 blocks are kept, expected 1"
    part = blocks(1)
    part[0, 2] = False
    assert BLOCKS(part, blocks(0), case).startswith("1 blocks of 2 × 2 are kept only partly")
    assert BLOCKS(TILES, blocks(0), case).startswith("got float32 values, expected True and False")


def test_either_of_two_weights_of_equal_size_may_be_kept():
    weight = T([[2.0, -2.0, 1.0, 3.0]])
    expected, case = (T([[2.0, 3.0]]), T([[0, 3]])), Case("", (weight,))
    assert NOFM((T([[-2.0, 3.0]]), T([[1, 3]])), expected, case) is None
    assert NOFM((T([[2.0, 3.0]]), T([[1, 3]])), expected, case).startswith("the values are not the weights")
    assert NOFM((T([[1.0, 3.0]]), T([[2, 3]])), expected, case).startswith("value 0: first different")


@pytest.mark.parametrize("name", ["columns", "blocks", "nofm"])
def test_the_picture_under_a_right_answer_shows_no_difference(name):
    """Ties may be broken either way, so the two panels are equal."""
    exercise = find(f"patterns.{name}")
    case, got, expected = {
        "columns": (Case("", (WEIGHT, 2)), (WEIGHT[:, 1:3], T([1, 2])), KEPT),
        "blocks": (Case("", (TILES, 2, 2, 1)), blocks(1), blocks(0)),
        "nofm": (Case("", (T([[2.0, -2.0, 1.0, 3.0]]),)), (T([[-2.0, 3.0]]), T([[1, 3]])), (T([[2, 3]]), T([[0, 3]]))),
    }[name]
    assert exercise.agree(got, expected, case) is None
    mine, theirs = exercise.picture(case, got, expected).axes
    assert drawn(mine) == drawn(theirs)
    assert len(mine.patches) == len(theirs.patches) == (len(WEIGHT[0]) if name == "columns" else 0)


def drawn(axes):
    return [image.get_array().tolist() for image in axes.images], [bar.get_facecolor() for bar in axes.patches]
