"""SparseGPT's column loop on chip: by hand, against brute-force brain surgery, within a larger matrix, and errors."""

import pytest
import torch
from course_lib.kernels.weights import sparsegpt_columns
from course_lib.kernels.weights.sparsegpt_columns import example
from kernel_device import on_device

from course_lib.sparsity.patterns import NofM

launch = on_device(sparsegpt_columns.launch)


def test_two_columns_by_hand():
    """U = [[2, 1], [0, 4]]: without its 6, a row owes 6/2 = 3 times 1 to its second weight."""
    weight, upper = torch.tensor([[6.0, 5.0], [6.0, 5.0], [6.0, 5.0]]), torch.tensor([[2.0, 1.0], [0.0, 4.0]])
    keep = torch.tensor([[False, True], [True, False], [False, False]])
    got = launch(weight, upper, keep)
    assert got.weight.tolist() == [[0.0, 2.0], [6.0, 0.0], [0.0, 0.0]]
    assert got.errors.tolist() == [[3.0, 0.0], [0.0, 1.25], [3.0, 0.5]]


def test_one_of_two_by_hand():
    """|w| / U_ii: 6/2 beats 5/4, so the second leaves. 1/2 does not: the first leaves and takes 1/2 · 1 off the 5."""
    weight, upper = torch.tensor([[6.0, 5.0], [1.0, 5.0]]), torch.tensor([[2.0, 1.0], [0.0, 4.0]])
    got = launch(weight, upper, None, 1, 2)
    assert got.weight.tolist() == [[6.0, 0.0], [0.0, 4.5]]
    assert got.errors.tolist() == [[0.0, 1.25], [0.5, 0.0]]


def test_later_groups_are_chosen_from_what_earlier_ones_left_behind():
    """The 1 of the first group leaves and takes 3 · 1 off the third weight, which then is the smaller of its group."""
    upper = torch.eye(4)
    upper[0, 2] = 3.0
    got = launch(torch.tensor([[1.0, 2.0, 5.0, 4.0]]), upper, None, 1, 2)
    assert got.weight.tolist() == [[0.0, 2.0, 0.0, 4.0]]


def test_ties_leave_by_lower_index():
    got = launch(torch.ones(1, 8), torch.eye(8), None, 2, 4)
    assert got.weight.tolist() == [[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]]


def test_weights_that_are_zero_leave_first_by_hand():
    """The second and the fourth are zero already. Of 2:4, they are the two that leave; of 3:4, both leave, too."""
    weight, zero = torch.tensor([[3.0, 0.0, 2.0, 0.0]]), torch.tensor([[False, True, False, True]])
    upper = torch.eye(4)
    upper[0, 1] = 8.0  # if the first left, this would fill the second
    for n in (2, 3):
        got = launch(weight, upper, None, n, 4, zero)
        assert got.weight.tolist() == weight.tolist()
        assert got.keep.tolist() == [[True, False, True, False]]
    # Of 1:4 the 2 leaves as well, and owes nothing to those left of it.
    assert launch(weight, upper, None, 1, 4, zero).errors.tolist() == [[0.0, 0.0, 2.0, 0.0]]


def test_what_a_zero_takes_in_from_the_left_is_lost_again():
    """The first leaves and takes 3 · 1 off the zero right of it, which leaves as -3 though its mask would keep it."""
    weight, zero = torch.tensor([[3.0, 0.0]]), torch.tensor([[False, True]])
    got = launch(weight, torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.tensor([[False, True]]), zero=zero)
    assert got.weight.tolist() == [[0.0, 0.0]]
    assert got.errors.tolist() == [[3.0, -3.0]]


@pytest.mark.parametrize("row", range(4))
def test_equals_solving_for_the_weights_that_are_still_free(row, generator):
    """Brain surgery by brute force: after each column, the best values of all columns right of it, from H itself."""
    weight, upper, keep, *_ = example(generator, torch.float32, "cpu", (4, 6))
    hessian = torch.linalg.inv(upper.double().T @ upper.double())
    w = weight[row].double().clone()
    for i in range(6):
        target = 0.0 if not keep[row, i] else w[i].item()
        change = torch.zeros(6, dtype=torch.float64)
        change[i] = target - w[i]
        free = slice(i + 1, 6)
        if i < 5:
            change[free] = -torch.linalg.solve(hessian[free, free], hessian[free, i] * change[i])
        w += change
    # float32 sums of six terms against float64
    torch.testing.assert_close(launch(weight, upper, keep).weight[row].double(), w, rtol=1e-4, atol=1e-5)


def test_blocks_of_a_matrix_joined_by_the_errors_equal_one_block(generator):
    weight, upper, keep, *_ = example(generator, torch.float32, "cpu", (5, 32))
    whole = launch(weight, upper, keep)
    left = launch(weight[:, :16].contiguous(), upper[:16, :16].contiguous(), keep[:, :16].contiguous())
    rest = weight[:, 16:] - left.errors @ upper[:16, 16:]
    right = launch(rest, upper[16:, 16:].contiguous(), keep[:, 16:].contiguous())
    torch.testing.assert_close(torch.cat([left.weight, right.weight], 1), whole.weight, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.cat([left.errors, right.errors], 1), whole.errors, rtol=1e-4, atol=1e-5)


def test_equals_the_librarys_solver(generator):
    from course_lib.pruning.layerwise.cholesky import Factor
    from course_lib.pruning.layerwise.solver import solve

    weight, upper, _, n, m, _ = example(generator, torch.float32, "cpu", (6, 32), 2, 4)
    expected = solve(weight, Factor(upper, torch.zeros(32, dtype=torch.bool), 0.0), NofM(n, m), 32).weight
    got = launch(weight, upper, None, n, m).weight
    assert torch.equal(got == 0, expected == 0)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_below_the_diagonal_nothing_is_read(generator):
    weight, upper, keep, *_ = example(generator, torch.float32, "cpu", (3, 8))
    spoilt = upper + torch.full((8, 8), torch.nan).tril(-1).nan_to_num(nan=1e9)
    assert torch.equal(launch(weight, spoilt, keep).weight, launch(weight, upper, keep).weight)


def test_the_arguments_stay_as_they_were(generator):
    arguments = example(generator, torch.float32, "cpu", (3, 8))
    before = [argument.clone() for argument in arguments[:3]]
    launch(*arguments)
    assert all(torch.equal(a, b) for a, b in zip(arguments[:3], before, strict=True))


def test_nan_has_no_rank():
    weight = torch.ones(3, 8)
    weight[2, 5] = torch.nan
    with pytest.raises(ValueError, match=r"NaN.*expected comparable numbers; look for NaN"):
        launch(weight, torch.eye(8))


@pytest.mark.parametrize(
    ("width", "settings", "message"),
    [
        (8, {"n": 4, "m": 4}, "expected n < m"),
        (12, {"n": 4, "m": 8}, "4:8 for 12 columns: expected m in .* that divides them; choose another m, or give"),
        (12, {"n": 1, "m": 3}, "1:3 for 12 columns: expected m in"),
        (129, {}, r"weight has shape \(2, 129\): expected rows and 1 to 128 columns; take a block at a time"),
    ],
)
def test_wrong_settings_are_refused(width, settings, message):
    with pytest.raises(ValueError, match=message):
        launch(torch.ones(2, width), torch.eye(width), **settings)
