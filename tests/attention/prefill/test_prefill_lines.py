"""Vertical and slash lines by hand and against loops, and how slashes lie on diagonals of blocks."""

import torch
from prefill_naive import draw
from prefill_naive import weights as naive_weights

from course_lib.attention.prefill.lines import (
    block_means,
    last_weights,
    on_block_diagonals,
    on_columns,
    slashes,
    where_lines_are,
)


def test_last_weights_are_causal_softmax(generator):
    query, keys, _ = draw(generator, 2, 3, 11)
    got = last_weights(query, keys, 0.3, 4)
    for head in range(6):
        for row, i in enumerate(range(7, 11)):
            expected = naive_weights(query, keys, 0.3, head, i) + [0.0] * (10 - i)
            torch.testing.assert_close(got[head, row], torch.tensor(expected))


def test_slashes_by_hand():
    """The queries 2 and 3 of four tokens. Distance 0: .5 and .1, distance 1: .3 and .2, 2: .2 and .3, 3: .4."""
    weights = torch.tensor([[[0.2, 0.3, 0.5, 0.0], [0.4, 0.3, 0.2, 0.1]]])
    torch.testing.assert_close(slashes(weights), torch.tensor([[0.3, 0.25, 0.25, 0.2]]))
    torch.testing.assert_close(on_columns(weights, 2), torch.tensor([[0.6, 0.4]]))


def test_a_slash_between_two_diagonals_of_blocks_by_hand():
    """Blocks of 4. A quarter of the slash at distance 5 is further than one block apart, all of that at 4 is one."""
    slash = torch.zeros(2, 12)
    slash[0, 5], slash[1, 4] = 1.0, 1.0
    torch.testing.assert_close(on_block_diagonals(slash, 4), torch.tensor([[0, 0.75, 0.25], [0, 1.0, 0]]))


def test_slashes_lie_on_diagonals_as_often_as_counting_says():
    """All pairs at one distance, of many blocks of queries: their share on each diagonal of blocks."""
    size = 5
    for distance in range(15):
        counts = torch.zeros(4)
        for i in range(40 * size, 41 * size):
            counts[i // size - (i - distance) // size] += 1 / size
        slash = torch.zeros(1, 20)
        slash[0, distance] = 1.0
        torch.testing.assert_close(on_block_diagonals(slash, size)[0], counts)


def test_all_three_sum_to_one(generator):
    query, keys, _ = draw(generator, 1, 2, 45)
    weights = last_weights(query, keys, 0.4, 8)
    for mass in (on_columns(weights, 8), slashes(weights), on_block_diagonals(slashes(weights), 8)):
        torch.testing.assert_close(mass.sum(dim=1), torch.ones(2))


def test_lines_make_a_causal_map_by_hand():
    columns, diagonals = torch.tensor([[1, 0, 0, 0]]).bool(), torch.tensor([[1, 0, 1, 0]]).bool()
    reads = where_lines_are(columns, diagonals)
    assert reads[0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]


def test_the_mean_of_a_ragged_block_is_over_what_it_has():
    vectors = torch.tensor([[[1.0], [3.0], [5.0]]])
    assert block_means(vectors, 2).tolist() == [[[2.0], [5.0]]]
