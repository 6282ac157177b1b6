"""SparseGPT by hand, against a plain loop that inverts a matrix a column, and against least squares."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.pruning.layerwise.block_masks import Tournament, keep_in_block
from course_lib.pruning.layerwise.cholesky import factorise
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.layerwise.solver import solve
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import CumulativeRows, Wanda
from course_lib.quantization.grid import Grid, Quantization
from course_lib.sparsity.patterns import Block, NofM, Rows, Unstructured, sparsity_of

HALF = Unstructured(0.5, per="layer")
PATTERNS = [HALF, Unstructured(0.3), Unstructured(0.7, size=4), Unstructured(0.4, "column", 2), NofM(2, 4), NofM(4, 8)]


def gram_of(inputs):
    gram = Gram(inputs.shape[1])
    gram.add(inputs)
    return gram


def example(generator, rows=13, columns=48, tokens=200, dtype=torch.float64):
    """A weight, and the Gram matrix of inputs that depend on each other and differ in size."""
    mixing = torch.randn(columns, columns, generator=generator, dtype=dtype) / columns**0.5
    inputs = torch.randn(tokens, columns, generator=generator, dtype=dtype) @ (mixing + torch.eye(columns, dtype=dtype))
    inputs *= torch.rand(columns, generator=generator, dtype=dtype) * 3
    return torch.randn(rows, columns, generator=generator, dtype=dtype), inputs.T @ inputs


def damped(matrix, damping):
    return matrix + damping * matrix.diagonal().mean() * torch.eye(len(matrix), dtype=matrix.dtype)


def slow_keep(pattern, score, start, keep_before):
    """The mask of one block, from sorted lists: as many leave of all columns so far as the whole pattern would take."""
    rows, columns = score.shape
    keep = torch.ones_like(score, dtype=torch.bool)

    def drop(cells, n):
        for i, j in sorted(cells, key=lambda cell: score[cell].item())[:n]:
            keep[i, j] = False

    if isinstance(pattern, NofM):
        for i, first in itertools.product(range(rows), range(0, columns, pattern.m)):
            drop([(i, j) for j in range(first, first + pattern.m)], pattern.m - pattern.n)
    elif pattern.per == "column":
        for first in range(0, columns, pattern.size):
            cells = list(itertools.product(range(rows), range(first, min(first + pattern.size, columns))))
            drop(cells, int(len(cells) * pattern.sparsity + 1e-6))
    else:
        size = rows if pattern.per == "layer" else pattern.size
        for first in range(0, rows, size):
            group = range(first, min(first + size, rows))
            before = int((~keep_before[group]).sum())
            n = int(len(group) * (start + columns) * pattern.sparsity + 1e-6) - before
            drop(list(itertools.product(group, range(columns))), n)
    return keep


def slow_sparsegpt(weight, hessian, pattern, block_size, grid=None):
    """Column by column: invert what is left, delete or keep, update what is right of it. One inversion a column.

    As slow as it is obvious; only the moment at which a mask is chosen (block, or n of m) comes from the paper.
    """
    weight, columns = weight.clone(), weight.shape[1]
    keep, losses = torch.ones_like(weight, dtype=torch.bool), torch.zeros(len(weight), dtype=weight.dtype)
    inverses = [torch.linalg.inv(hessian[i:, i:]) for i in range(columns)]
    price = torch.stack([inverse[0, 0] for inverse in inverses])
    for i in range(columns):
        size = pattern.m if isinstance(pattern, NofM) else block_size
        if i % size == 0:
            block = slice(i, min(i + size, columns))
            keep[:, block] = slow_keep(pattern, weight[:, block].square() / price[block], i, keep[:, :i])
        settled = weight[:, i] * keep[:, i]
        if grid is not None:
            settled = grid.round_column(settled, i)
        error = (weight[:, i] - settled) / inverses[i][0, 0]
        losses += error**2 * inverses[i][0, 0] / 2
        weight[:, i:] -= error[:, None] * inverses[i][0]
        weight[:, i] = settled
    return weight, keep, losses


def test_by_hand():
    """H = [[4, 2], [2, 2]], U_00² = U_11² = 1/2.

    Row (1, 2): scores 2 and 8, column 0 leaves, and 1 · U_01/U_00 = −1 is taken off column 1: (0, 3), loss 1.
    Row (3, 1): column 1 leaves, with nothing right of it to make up: (3, 0), loss 1.
    """
    gram = gram_of(torch.tensor([[2.0, 1.0], [0.0, 1.0]]))
    assert gram.matrix.tolist() == [[4, 2], [2, 2]]
    pruner, weight = SparseGPT(Unstructured(0.5), damping=0.0), torch.tensor([[1.0, 2.0], [3.0, 1.0]])
    torch.testing.assert_close(pruner.score(weight, gram), torch.tensor([[2.0, 8.0], [18.0, 2.0]]))
    torch.testing.assert_close(pruner.prune(weight, gram), torch.tensor([[0.0, 3.0], [3.0, 0.0]]))
    torch.testing.assert_close(pruner.solve(weight, gram).losses, torch.tensor([1.0, 1.0]))


SIZES = [(p, size) for p in PATTERNS for size in (1, 8, 40, 64) if size > 1 or p in PATTERNS[:3]]


@pytest.mark.parametrize(("pattern", "block_size"), SIZES, ids=str)
def test_equals_the_slow_twin(generator, pattern, block_size):
    weight, matrix = example(generator)
    found = solve(weight, factorise(matrix, 0.01), pattern, block_size)
    expected, keep, losses = slow_sparsegpt(weight, damped(matrix, 0.01), pattern, block_size)
    assert torch.equal(found.keep, keep)
    assert torch.equal(found.weight == 0, ~keep)
    torch.testing.assert_close(found.weight, expected, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found.losses, losses, rtol=1e-9, atol=1e-10)


def test_two_of_four_in_float32_within_1e_5(generator):
    weight, matrix = example(generator, rows=64, columns=96, tokens=400)
    gram = Gram(96)
    gram._matrix = matrix.float()
    gram.n_tokens = 400
    found = SparseGPT(NofM(2, 4), block_size=32).prune(weight.float(), gram)
    expected = slow_sparsegpt(weight, damped(matrix, 0.01), NofM(2, 4), 32)[0]
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_losses_are_the_quadratic_form_of_the_change_to_six_digits(generator, pattern):
    """½ tr(Δ H Δᵀ): the sum over columns telescopes only if every update is the right one."""
    weight, matrix = example(generator)
    for quantization in (None, Quantization(3, group=16)):
        grid = quantization and quantization.grid(weight)
        found = solve(weight, factorise(matrix, 0.01), pattern, 16, grid)
        change = weight - found.weight
        expected = torch.einsum("oi,ij,oj->o", change, damped(matrix, 0.01), change) / 2
        torch.testing.assert_close(found.losses, expected, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("columns", [3, 8])
def test_brute_force_surgery_on_few_columns(generator, columns):
    """Each column in turn: fix those up to it, and find the best values of the rest by least squares on the inputs."""
    inputs = torch.randn(60, columns, generator=generator, dtype=torch.float64)
    weight = torch.randn(5, columns, generator=generator, dtype=torch.float64)
    found = solve(weight, factorise(inputs.T @ inputs, 0.0), Unstructured(0.5), columns)
    expected = weight.clone()
    for i in range(columns):
        expected[~found.keep[:, i], i] = 0
        target = (inputs @ weight.T) - inputs[:, : i + 1] @ expected[:, : i + 1].T
        expected[:, i + 1 :] = torch.linalg.lstsq(inputs[:, i + 1 :], target).solution.T
    torch.testing.assert_close(found.weight, expected, rtol=1e-8, atol=1e-9)


def test_a_very_fine_quantizer_equals_none(generator):
    weight, matrix = example(generator)
    factor = factorise(matrix, 0.01)
    fine = Grid(torch.full((13, 1), 1e-7), torch.full((13, 1), 2.0**29), bits=30, group=48)
    plain, joint = (solve(weight, factor, NofM(2, 4), 16, grid) for grid in (None, fine))
    assert torch.equal(plain.keep, joint.keep)
    torch.testing.assert_close(joint.weight, plain.weight, rtol=1e-5, atol=1e-5)


def test_joint_quantization_equals_the_slow_twin_and_keeps_zeros_and_values(generator):
    weight, matrix = example(generator)
    grid = Quantization(3, group=20).grid(weight)
    found = solve(weight, factorise(matrix, 0.01), HALF, 16, grid)
    expected, keep, _ = slow_sparsegpt(weight, damped(matrix, 0.01), HALF, 16, grid)
    torch.testing.assert_close(found.weight, expected, rtol=1e-6, atol=1e-7)
    assert (found.weight[~keep] == 0).all()
    torch.testing.assert_close(grid.round(found.weight), found.weight, rtol=1e-6, atol=0.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 30), st.integers(1, 12), st.floats(0, 0.95), st.data())
def test_blocks_add_up_to_the_count_of_the_whole(rows, columns, block, sparsity, data):
    per, size = data.draw(st.sampled_from([("layer", 1), ("row", 1), ("row", 2), ("column", 1)]))
    pattern = Unstructured(sparsity, per=per, size=size)
    score = torch.rand(rows, columns, generator=torch.Generator().manual_seed(columns))
    parts = [keep_in_block(pattern, score[:, s : s + block], s) for s in range(0, columns, block)]
    assert torch.cat(parts, dim=1).sum() == pattern.keep(score).sum()


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 9), st.integers(1, 8), st.integers(0, 99))
def test_a_tournament_keeps_what_the_pattern_keeps(m, n, seed):
    pattern = NofM(min(n, m - 1), m)
    score = torch.randint(4, (7, m), generator=torch.Generator().manual_seed(seed)).float()  # ties everywhere
    assert torch.equal(~Tournament.of(pattern, score).losers(score.T).T, pattern.keep(score))


def test_one_block_of_all_columns_chooses_by_the_plain_score(generator):
    weight, matrix = example(generator, dtype=torch.float32)
    gram = gram_of(torch.linalg.cholesky(matrix, upper=True))
    pruner = SparseGPT(HALF, block_size=48)
    assert torch.equal(pruner.keep(weight, gram), HALF.keep(pruner.score(weight, gram)))
    assert not torch.equal(SparseGPT(HALF, block_size=4).keep(weight, gram), pruner.keep(weight, gram))


@pytest.mark.parametrize("pattern", [HALF, NofM(2, 4)], ids=str)
def test_less_is_lost_than_without_updates(generator, pattern):
    weight, matrix = example(generator, dtype=torch.float32)
    gram = gram_of(torch.linalg.cholesky(matrix, upper=True))
    lost = {
        type(pruner).__name__: torch.einsum("oi,ij,oj->", change, matrix, change)
        for pruner in (Wanda(pattern), SparseGPT(pattern, block_size=16))
        for change in [weight - pruner.prune(weight, gram)]
    }
    assert lost["SparseGPT"] < 0.9 * lost["Wanda"]


def test_constant_rows_lose_exactly_half(generator):
    """Ties everywhere: a threshold would take all of them."""
    gram = gram_of(torch.eye(32))
    pruned = SparseGPT(HALF, block_size=8).prune(torch.ones(6, 32), gram)
    assert sparsity_of(pruned) == 0.5


def test_an_earlier_mask_is_extended_and_never_filled_in(generator):
    weight, matrix = example(generator, dtype=torch.float32)
    gram = gram_of(torch.linalg.cholesky(matrix, upper=True))
    first = SparseGPT(NofM(2, 4)).prune(weight, gram)
    more = SparseGPT(Unstructured(0.7)).prune(first, gram)
    assert (more[first == 0] == 0).all()
    assert (more == 0).sum(1).tolist() == [33] * 13  # 0.7 of 48, rounded down
    for more in (SparseGPT(Unstructured(0.3)), SparseGPT(NofM(3, 4)), SparseGPT(quantization=Quantization(8, 1))):
        assert (more.prune(first, gram)[first == 0] == 0).all()
    again = SparseGPT(Unstructured(0.0), quantization=Quantization(3)).prune(first, gram)  # every column has an error
    assert (again[first == 0] == 0).all()


def test_zeros_leave_first_however_much_is_owed_to_them():
    """Column 1 repeats column 0 almost: what the 1 of row 0 loses would come back as a weight next to it."""
    gram = gram_of(torch.tensor([[1.0, 1.0], [0.0, 0.1]]))
    pruned = SparseGPT(HALF, block_size=1).prune(torch.tensor([[1.0, 0.0], [9.0, 0.1]]), gram)
    assert torch.equal(pruned == 0, torch.tensor([[True, True], [False, False]]))


def test_dead_inputs_lose_all_their_weights_even_where_nothing_is_pruned(generator):
    inputs = torch.randn(50, 12, generator=generator)
    inputs[:, 3] = 0
    gram = gram_of(inputs)
    pruned = SparseGPT(Unstructured(0.0)).prune(torch.ones(4, 12), gram)
    assert torch.equal(pruned == 0, torch.arange(12).expand(4, 12) == 3)
    assert gram.notes == ("1 of 12 inputs were always zero; their weights are zero now",)


def test_dead_inputs_lose_their_weights_first(generator):
    inputs = torch.randn(50, 12, generator=generator)
    inputs[:, 3] = 0
    pruned = SparseGPT(Unstructured(0.5)).prune(torch.randn(4, 12, generator=generator), gram_of(inputs))
    assert (pruned[:, 3] == 0).all()
    assert (pruned == 0).sum(1).tolist() == [6] * 4


@pytest.mark.parametrize("damping", [0.0, 0.01])
def test_fewer_tokens_than_inputs_still_solve(generator, damping):
    gram = gram_of(torch.randn(3, 24, generator=generator))
    pruned = SparseGPT(NofM(2, 4), damping=damping).prune(torch.randn(5, 24, generator=generator), gram)
    assert pruned.isfinite().all()
    assert sparsity_of(pruned) == 0.5
    assert ("damping raised" in " ".join(gram.notes)) is (damping == 0)


def test_half_precision_weights_are_solved_in_float32(generator):
    weight, matrix = example(generator, dtype=torch.float32)
    gram = gram_of(torch.linalg.cholesky(matrix, upper=True))
    stored = weight.bfloat16()
    pruned = SparseGPT().prune(stored, gram)
    assert torch.equal(pruned, SparseGPT().prune(stored.float(), gram).bfloat16())


BAD = {
    "zero blocks": (lambda: SparseGPT(block_size=0), "block_size=0: expected"),
    "2:4 in 126": (lambda: SparseGPT(NofM(2, 4), block_size=126), "block_size=126.*a multiple of 4, such as 124"),
    "2:4 in 1": (lambda: SparseGPT(NofM(2, 4), block_size=1), "a multiple of 4, such as 4"),
    "columns": (lambda: SparseGPT(Unstructured(0.5, "column", 3), block_size=8), "a multiple of 3, such as 6"),
    "whole rows": (lambda: SparseGPT(Rows(0.5)), r"Rows\(sparsity=0.5\), which needs.*expected Unstructured or NofM"),
    "tiles": (lambda: SparseGPT(Block()), r"Refit\(pattern\)"),
    "alpha": (lambda: SparseGPT(CumulativeRows()), "expected Unstructured or NofM"),
    "a class": (lambda: SparseGPT(quantization=Quantization), "got quantization <class.*expected an instance such as"),
    "width": (lambda: SparseGPT(NofM(2, 4)).prune(torch.ones(2, 6), gram_of(torch.eye(6))), "6 inputs has no 2:4"),
    "no tokens": (lambda: SparseGPT().prune(torch.ones(2, 4), Gram(4)), "without any calibration token"),
    "diagonal": (lambda: SparseGPT().prune(torch.ones(2, 4), Gram(4, "diagonal")), "matrix|token"),
    "nan": (lambda: SparseGPT().prune(torch.ones(2, 4), gram_of(torch.full((3, 4), torch.nan))), "NaN or infinite"),
    "nan weight": (lambda: SparseGPT().prune(torch.full((2, 4), torch.nan), gram_of(torch.eye(4))), "NaN"),
    "damping": (lambda: SparseGPT(damping=-1.0).prune(torch.ones(2, 4), gram_of(torch.eye(4))), "damping -1.0"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name):
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        make()
