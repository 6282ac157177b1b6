"""SparseSwaps by hand, against brute force over all pairs, and the promise that every swap lowers the error."""

import itertools

import pytest
import torch

from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods import sparse_swaps as module
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.sparse_swaps import SparseSwaps, swap_rows
from course_lib.pruning.methods.wanda import CumulativeRows, Wanda
from course_lib.sparsity.patterns import Block, Columns, NofM, Unstructured


def gram_of(inputs):
    gram = Gram(inputs.shape[1])
    gram.add(inputs)
    return gram


@pytest.fixture
def layer(generator):
    mixing = torch.randn(24, 24, generator=generator) / 24**0.5 + 0.5 * torch.eye(24)
    return torch.randn(10, 24, generator=generator), gram_of(torch.randn(200, 24, generator=generator) @ mixing)


def errors(weight, keep, matrix):
    dropped = weight.double().masked_fill(keep, 0)
    return ((dropped @ matrix.double()) * dropped).sum(1)


def brute_force(weight, keep, matrix, group):
    """The error of every mask that is one swap away, by making it; the best for each row."""
    best = keep.clone()
    for i, row in enumerate(keep):
        tried = [row]
        for p, q in itertools.product(row.nonzero()[:, 0].tolist(), (~row).nonzero()[:, 0].tolist()):
            if group is None or p // group == q // group:
                other = row.clone()
                other[p], other[q] = False, True
                tried.append(other)
        masks = torch.stack(tried)
        best[i] = masks[errors(weight[i].expand(masks.shape), masks, matrix).argmin()]
    return best


def test_by_hand():
    """Weights (3, 2, 2) on inputs with G = [[1, 0, 0], [0, 1, −1], [0, −1, 1]]: the last two cancel each other.

    With 3 and a 2 dropped the error is 9 + 4. Swapping the 3 for the other 2 takes it to 0. With one weight dropped,
    the error of 4 that a 2 costs is the least there is.
    """
    weight, matrix = torch.tensor([[3.0, 2.0, 2.0]]), torch.tensor([[1.0, 0, 0], [0, 1, -1], [0, -1, 1]])
    start = torch.tensor([[False, False, True]])
    assert errors(weight, start, matrix).item() == 13
    assert swap_rows(weight, start, matrix, sweeps=1).tolist() == [[True, False, False]]
    assert swap_rows(weight, torch.tensor([[True, False, True]]), matrix, sweeps=9).tolist() == [[True, False, True]]
    assert swap_rows(weight, torch.tensor([[False, True, True]]), matrix, sweeps=9)[0, 0]


@pytest.mark.parametrize("entries", [2**24, 600])
@pytest.mark.parametrize(("pattern", "group"), [(Unstructured(0.5), None), (NofM(2, 4), 4), (NofM(1, 4), 4)], ids=str)
def test_one_sweep_is_the_best_swap_there_is(layer, pattern, group, entries, monkeypatch):
    monkeypatch.setattr(module, "ENTRIES", entries)
    weight, gram = layer
    start = pattern.keep(weight.abs())
    found = swap_rows(weight, start, gram.matrix, 1, group)
    expected = brute_force(weight, start, gram.matrix, group)
    torch.testing.assert_close(errors(weight, found, gram.matrix), errors(weight, expected, gram.matrix))
    assert ((found != start).sum(1) <= 2).all()


@pytest.mark.parametrize("shortlist", [None, 4])
@pytest.mark.parametrize("pattern", [Unstructured(0.6), Unstructured(0.5, per="layer"), NofM(4, 8)], ids=str)
def test_every_sweep_lowers_the_error_of_every_row_and_keeps_its_count(layer, pattern, shortlist):
    weight, gram = layer
    masks = [Wanda(pattern).keep(weight, gram)]
    masks += [SparseSwaps(pattern, sweeps=n, shortlist=shortlist).keep(weight, gram) for n in range(1, 12)]
    losses = [errors(weight, mask, gram.matrix) for mask in masks]
    for before, after in itertools.pairwise(losses):
        assert (after <= before * (1 + 1e-9)).all()
    assert losses[-1].sum() < 0.95 * losses[0].sum()
    assert torch.equal(masks[-1].sum(1), masks[0].sum(1))
    if isinstance(pattern, NofM):
        assert (masks[-1].unflatten(1, (-1, 8)).sum(2) == 4).all()


def test_it_ends_where_no_swap_helps(layer):
    weight, gram = layer
    end = SparseSwaps(Unstructured(0.5), sweeps=10_000, shortlist=None).keep(weight, gram)
    assert torch.equal(brute_force(weight, end, gram.matrix, None), end)


def test_weights_keep_their_values(layer):
    weight, gram = layer
    pruned = SparseSwaps(NofM(2, 4)).prune(weight, gram)
    assert torch.equal(pruned, weight * (pruned != 0))


def test_any_mask_can_be_the_start(layer):
    weight, gram = layer
    better = SparseSwaps(Unstructured(0.5), start=Magnitude).keep(weight, gram)
    start = Magnitude(Unstructured(0.5)).keep(weight, gram)
    assert errors(weight, better, gram.matrix).sum() < errors(weight, start, gram.matrix).sum()


def test_rows_with_nothing_to_exchange_stay_as_they_are(layer):
    weight, gram = layer
    every = torch.ones_like(weight, dtype=torch.bool)
    for keep in (every, ~every):
        assert torch.equal(swap_rows(weight, keep, gram.matrix, 3), keep)


@pytest.mark.parametrize("inputs", [torch.zeros(4, 8), torch.ones(1, 8)], ids=["no signal", "one token"])
def test_singular_grams_and_constant_rows_still_give_exact_counts(inputs):
    keep = SparseSwaps(Unstructured(0.5)).keep(torch.ones(3, 8), gram_of(inputs))
    assert keep.sum(1).tolist() == [4, 4, 4]


BAD = {
    "tiles": (lambda: SparseSwaps(Block()), "which a swap within a row would break.*Use Refit"),
    "columns": (lambda: SparseSwaps(Columns()), "expected Unstructured per row"),
    "per column": (lambda: SparseSwaps(Unstructured(0.5, per="column")), "expected Unstructured per row"),
    "sweeps": (lambda: SparseSwaps(sweeps=0), "sweeps=0"),
    "nan": (lambda: SparseSwaps().prune(torch.ones(2, 4), gram_of(torch.full((2, 4), torch.nan))), "NaN"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name):
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_rows_of_different_counts_are_accepted(layer):
    weight, gram = layer
    keep = SparseSwaps(CumulativeRows(0.5)).keep(weight, gram)
    assert torch.equal(keep.sum(1), Wanda(CumulativeRows(0.5)).keep(weight, gram).sum(1))


def test_a_start_that_reads_nothing_does_not_hide_what_is_wrong_with_the_gram(generator):
    weight, inputs = torch.randn(5, 8, generator=generator), torch.randn(20, 8, generator=generator)
    pruner = SparseSwaps(NofM(2, 4), start=Magnitude)
    with pytest.raises(ValueError, match="without any calibration token"):
        pruner.keep(weight, Gram(8))
    with pytest.raises(ValueError, match="8 NaN or infinite entries on its diagonal"):
        pruner.keep(weight, gram_of(inputs * 1e30))
