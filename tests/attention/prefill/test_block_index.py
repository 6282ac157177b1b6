"""The index as data: what it refuses, its density over causal blocks, its lists; the baselines that make one."""

import pytest
import torch
from prefill_naive import draw

from course_lib.attention.prefill.baselines import RandomBlocks, SinkAndWindow, VerticalSlash
from course_lib.attention.prefill.index import BlockIndex, always_read, causal_blocks, dense_index, n_blocks

BASELINES = [SinkAndWindow, VerticalSlash, RandomBlocks]


def test_density_counts_causal_blocks():
    """Three blocks have six causal pairs. Dense is 1, not 6/9; the first column and the diagonal are 5 of 6."""
    assert dense_index(2, 25, 10).density.tolist() == [1.0, 1.0]
    index = BlockIndex(always_read(3)[None], 25, 10)
    torch.testing.assert_close(index.density, torch.tensor([5 / 6]))
    assert index.is_dense.tolist() == [False]
    assert dense_index(1, 25, 10).is_dense.tolist() == [True]


def test_lists_by_hand():
    reads = torch.tensor([[[1, 0, 0], [1, 1, 0], [0, 0, 1]]]).bool()
    columns, counts = BlockIndex(reads, 25, 10).lists()
    assert counts.tolist() == [[1, 2, 1]]
    assert [columns[0, i, : counts[0, i]].tolist() for i in range(3)] == [[0], [0, 1], [2]]
    assert columns.dtype == counts.dtype == torch.int32


@pytest.mark.parametrize(("n_tokens", "expected"), [(1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_the_last_block_may_be_ragged(n_tokens, expected):
    assert n_blocks(n_tokens, 10) == expected


def test_what_is_no_index_is_refused():
    later = torch.ones(1, 3, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="reads later blocks"):
        BlockIndex(later, 25, 10)
    without_diagonal = causal_blocks(3)[None].clone()
    without_diagonal[0, 2, 2] = False
    with pytest.raises(ValueError, match="does not read its own keys"):
        BlockIndex(without_diagonal, 25, 10)
    with pytest.raises(ValueError, match=r"expected \(heads, 4, 4\) for 31 tokens"):
        BlockIndex(causal_blocks(3)[None], 31, 10)


@pytest.mark.parametrize("density", [0.4, 0.55, 0.8, 1.0])
@pytest.mark.parametrize("baseline", BASELINES)
def test_a_baseline_has_the_density_asked_for(baseline, density, generator):
    query, keys, _ = draw(generator, 2, 3, 76)
    index = baseline(block_size=8, density=density).index(query, keys, 8**-0.5)  # 10 blocks, 55 causal pairs
    assert index.reads.sum(dim=(1, 2)).tolist() == [round(density * 55)] * 6
    assert (index.reads | ~always_read(10)).all()


def test_a_density_below_the_first_column_and_the_diagonal_keeps_those(generator):
    query, keys, _ = draw(generator, 1, 1, 80)
    index = SinkAndWindow(block_size=8, density=0.01).index(query, keys, 1.0)
    assert torch.equal(index.reads[0], always_read(10))


def test_sinks_and_a_window_by_hand(generator):
    """Four blocks: 7 are read in any case; of the two on the second diagonal that remain, the first and, then, both."""
    query, keys, _ = draw(generator, 1, 1, 32)
    index = SinkAndWindow(block_size=8, density=0.9).index(query, keys, 1.0)
    assert index.reads[0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]]


def test_vertical_and_slash_follow_the_attention():
    """Every query looks at key 17, in block 2: of six blocks' columns, that one is read by all that may."""
    keys = torch.zeros(1, 48, 2)
    keys[0, 17] = torch.tensor([20.0, 0.0])
    query = torch.tensor([1.0, 0.0]).expand(1, 48, 2)
    index = VerticalSlash(block_size=8, density=14 / 21).index(query, keys, 1.0)
    assert index.reads[0, 2:, 2].all()
    assert int(index.reads[0].sum()) == 14


def test_random_blocks_differ_by_layer_and_seed_alone(generator):
    query, keys, _ = draw(generator, 1, 2, 160)
    reads = [RandomBlocks(block_size=8, seed=s).index(query, keys, 1.0, layer).reads for s, layer in
             ((0, 0), (0, 0), (0, 1), (1, 0))]  # fmt: skip
    assert torch.equal(reads[0], reads[1])
    assert not torch.equal(reads[0], reads[2])
    assert not torch.equal(reads[0], reads[3])
    assert not torch.equal(reads[0][0], reads[0][1])


def test_impossible_settings_are_refused():
    for density in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="got density"):
            SinkAndWindow(density=density)
    with pytest.raises(ValueError, match="got block_size 0"):
        RandomBlocks(block_size=0)
