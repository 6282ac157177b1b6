"""Golden values by hand for each method, and the naive twins."""

import pytest
import torch

from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.wanda import CumulativeRows, Wanda
from course_lib.sparsity.patterns import NofM, Unstructured

WEIGHT = torch.tensor([[4.0, -3.0, 2.0, 1.0], [-1.0, 2.0, 3.0, -4.0], [0.5, 6.0, -5.0, 0.25]])
INPUTS = torch.tensor([[3.0, 0.0, 1.0, 6.0], [4.0, 1.0, 0.0, 8.0]])  # column norms 5, 1, 1, 10


def gram_of(inputs, needs="matrix"):
    gram = Gram(inputs.shape[1], needs)
    gram.add(inputs)
    return gram


def test_gram_by_hand():
    gram = gram_of(INPUTS)
    assert gram.matrix.tolist() == [[25, 4, 3, 50], [4, 1, 0, 8], [3, 0, 1, 6], [50, 8, 6, 100]]
    assert gram.diagonal.tolist() == gram_of(INPUTS, "diagonal").diagonal.tolist() == [25, 1, 1, 100]
    assert gram.n_tokens == 2


def test_gram_adds_batches_and_flattens_tokens(generator):
    x = torch.randn(3, 5, 7, generator=generator)
    whole, parts = gram_of(x.reshape(15, 7)), Gram(7)
    for window in x:
        parts.add(window[None])
    # float32 sums of 15 terms in another order
    torch.testing.assert_close(parts.matrix, whole.matrix, rtol=1e-5, atol=1e-5)
    assert parts.n_tokens == whole.n_tokens == 15


def test_gram_accumulates_in_float32_whatever_the_inputs():
    gram = Gram(1, "diagonal")
    for _ in range(300):  # in bfloat16 the sum would stop growing at 256
        gram.add(torch.ones(1, 1, dtype=torch.bfloat16))
    assert gram.diagonal.item() == 300


def test_gram_refuses_what_it_did_not_collect():
    with pytest.raises(ValueError, match="matrix was not collected; set needs = 'matrix'"):
        _ = gram_of(INPUTS, "diagonal").matrix
    with pytest.raises(ValueError, match="diagonal was not collected"):
        _ = gram_of(INPUTS, "nothing").diagonal


def test_gram_refuses_inputs_of_another_width():
    for needs in ("nothing", "diagonal", "matrix"):
        with pytest.raises(ValueError, match=r"got inputs of shape \(2, 1\); expected 4 along the last axis"):
            Gram(4, needs).add(INPUTS[:, :1])


def test_magnitude_by_hand():
    pruned = Magnitude(Unstructured(0.5)).prune(WEIGHT, Gram(4, "nothing"))
    assert pruned.tolist() == [[4, -3, 0, 0], [0, 0, 3, -4], [0, 6, -5, 0]]


def test_wanda_by_hand():
    """The norms 5, 1, 1, 10 turn the choice around: small weights on loud inputs stay."""
    method, gram = Wanda(Unstructured(0.5)), gram_of(INPUTS, "diagonal")
    assert method.score(WEIGHT, gram).tolist() == [[20, 3, 2, 10], [5, 2, 3, 40], [2.5, 6, 5, 2.5]]
    assert method.prune(WEIGHT, gram).tolist() == [[4, 0, 0, 1], [-1, 0, 0, -4], [0, 6, -5, 0]]


def test_wanda_two_of_four_by_hand():
    pruned = Wanda(NofM(2, 4)).prune(WEIGHT, gram_of(INPUTS))
    assert pruned.tolist() == [[4, 0, 0, 1], [-1, 0, 0, -4], [0, 6, -5, 0]]


def naive_wanda(weight, inputs, sparsity):
    """One output row after the other, as the paper's algorithm 1 reads."""
    norms = inputs.square().sum(dim=0).sqrt()
    pruned = weight.clone()
    for i in range(weight.shape[0]):
        scores = [(abs(weight[i, j]) * norms[j]).item() for j in range(weight.shape[1])]
        lowest = sorted(range(len(scores)), key=scores.__getitem__)[: int(len(scores) * sparsity)]
        for j in lowest:
            pruned[i, j] = 0
    return pruned


@pytest.mark.parametrize("sparsity", [0.3, 0.5, 0.7])
def test_wanda_equals_the_naive_loop_bit_for_bit(generator, sparsity):
    weight, inputs = torch.randn(37, 96, generator=generator), torch.randn(50, 96, generator=generator)
    inputs[:, 7] *= 100  # an outlier feature
    inputs[:, 11] = 0  # a dead one
    pruned = Wanda(Unstructured(sparsity)).prune(weight, gram_of(inputs, "diagonal"))
    assert torch.equal(pruned, naive_wanda(weight, inputs, sparsity))


def test_within_one_input_column_all_scores_choose_alike(generator):
    """A theorem: within a column the activation factor is constant, so magnitude and Wanda order it the same way."""
    weight, gram = torch.randn(24, 30, generator=generator), gram_of(torch.randn(9, 30, generator=generator))
    pattern = Unstructured(0.5, per="column")
    assert torch.equal(Wanda(pattern).prune(weight, gram), Magnitude(pattern).prune(weight, gram))
    by_row = Unstructured(0.5, per="row")
    assert not torch.equal(Wanda(by_row).prune(weight, gram), Magnitude(by_row).prune(weight, gram))


def test_cumulative_rows_by_hand():
    """Shares of the row sums: [.1 .2 .3 1] and [.25 .5 .75 1]. Half of 8 leave: alpha .3 takes 3 + 1."""
    score = torch.tensor([[1.0, 1.0, 1.0, 7.0], [1.0, 1.0, 1.0, 1.0]])
    assert CumulativeRows(0.5).keep(score).tolist() == [[False, False, False, True], [False, True, True, True]]


@pytest.mark.parametrize("sparsity", [0.0, 0.25, 0.5, 0.9])
def test_cumulative_rows_meets_the_target_and_drops_prefixes(generator, sparsity):
    score = torch.rand(40, 50, generator=generator)
    keep = CumulativeRows(sparsity).keep(score)
    assert (~keep).sum() == int(2000 * sparsity)  # no ties in a random score, so the count is exact
    for row, kept in zip(score, keep, strict=True):
        if (~kept).any():
            assert row[~kept].max() < row[kept].min()
    if sparsity:
        assert len(set(keep.sum(dim=1).tolist())) > 1  # rows differ, unlike Unstructured
