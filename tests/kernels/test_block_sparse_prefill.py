"""Block-sparse attention of a prompt: by hand, against torch's and the library's, what is read, refusals."""

import math

import pytest
import torch
from course_lib.kernels.cache import block_sparse_prefill
from course_lib.kernels.cache.block_sparse_prefill import bytes_moved, example
from kernel_device import on_device
from torch.nn.functional import scaled_dot_product_attention

from course_lib.attention.prefill.baselines import RandomBlocks
from course_lib.attention.prefill.execute import block_sparse_attention
from course_lib.attention.prefill.index import dense_index

launch = on_device(block_sparse_prefill.launch)


def draw(generator, shape):
    n_heads, n_groups, n_tokens, size = shape
    query = torch.randn(n_heads * n_groups, n_tokens, size, generator=generator)
    return query, *torch.randn(2, n_heads, n_tokens, size, generator=generator)


def test_three_tokens_by_hand():
    """Blocks of one token. The last reads the first and itself, whose exponentials are 3 and 1: ¾ · 4 + ¼ · 8 = 5."""
    query = torch.tensor([[[1.0], [1.0], [1.0]]])
    keys, values = torch.tensor([[[math.log(3)], [7.0], [0.0]]]), torch.tensor([[[4.0], [6.0], [8.0]]])
    columns, counts = torch.tensor([[[0, 0], [1, 0], [2, 0]]]).int(), torch.tensor([[1, 1, 2]]).int()
    got = launch(query, keys, values, columns, counts, 1.0, 1)
    torch.testing.assert_close(got, torch.tensor([[[4.0], [6.0], [5.0]]]))


@pytest.mark.parametrize(("n_tokens", "block_size"), [(64, 32), (70, 32), (31, 32)])
def test_all_blocks_are_torchs_attention(n_tokens, block_size, generator):
    query, keys, values = draw(generator, (2, 2, n_tokens, 16))
    expected = scaled_dot_product_attention(query[None], keys[None], values[None], is_causal=True, enable_gqa=True)[0]
    got = launch(query, keys, values, *dense_index(4, n_tokens, block_size).lists(), 0.25, block_size)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)  # float32 sums of at most 70 terms


def test_is_the_librarys_attention_over_the_same_index(generator):
    query, keys, values = draw(generator, (2, 2, 115, 16))
    index = RandomBlocks(block_size=32, density=0.75).index(query, keys, 0.25)
    got = launch(query, keys, values, *index.lists(), 0.25, 32)
    torch.testing.assert_close(got, block_sparse_attention(query, keys, values, index, 0.25), atol=1e-5, rtol=0)


def test_what_is_on_no_list_is_not_read(generator):
    """Keys and values of a block that only its own queries read; and numbers behind the lists."""
    query, keys, values = draw(generator, (1, 1, 96, 16))
    columns = torch.tensor([[[0, 99, 99], [0, 1, 99], [0, 2, 99]]]).int()
    counts = torch.tensor([[1, 2, 2]]).int()
    before = launch(query, keys, values, columns, counts, 0.25, 32)
    keys[:, 32:64], values[:, 32:64] = torch.nan, torch.nan
    after = launch(query, keys, values, columns, counts, 0.25, 32)
    assert torch.equal(after[:, :32], before[:, :32])
    assert torch.equal(after[:, 64:], before[:, 64:])


def test_huge_logits_stay_finite(generator):
    query, keys, values = draw(generator, (1, 1, 40, 16))
    index = dense_index(1, 40, 16)
    got = launch(1e4 * query, 1e4 * keys, values, *index.lists(), 1.0, 16)
    assert got.isfinite().all()


def test_bytes_by_hand(generator):
    """Two heads of 3 tokens and 8 numbers in float32, one key-value head, blocks of 2: two counts, lists of one number
    for the first block and of one or two for the second.
    """
    arguments = example(generator, torch.float32, "cpu", (1, 2, 3, 8), 2)
    listed = int(arguments[4].sum())
    assert bytes_moved(*arguments) == 4 * (2 * 2 * 3 * 8 + 2 * 3 * 8 + listed + 4)


def test_what_is_no_index_is_refused(generator):
    query, keys, values, columns, counts, _, size = example(generator, torch.float32, "cpu", (2, 3, 37, 16), 16)
    for block_size, message in ((0, "block_size is 0"), (8, r"columns has shape .*: expected \(6, 5, ")):
        with pytest.raises(ValueError, match=message):
            block_sparse_prefill._check(query, keys, values, columns, counts, 0.25, block_size)
    with pytest.raises(ValueError, match="a multiple of heads; join sequences"):
        block_sparse_prefill._check(query[:5], keys, values, columns, counts, 0.25, size)
    with pytest.raises(ValueError, match="columns is torch.int64: expected int32; convert"):
        block_sparse_prefill._check(query, keys, values, columns.long(), counts, 0.25, size)


@pytest.mark.parametrize("scaling", [0.0, -1.0, math.nan])
def test_a_scaling_that_is_not_positive_is_refused(scaling, generator):
    """The largest logit is found before it is scaled."""
    query, keys, values, columns, counts, _, size = example(generator, torch.float32, "cpu", (1, 1, 20, 16), 16)
    with pytest.raises(ValueError, match="scaling is .*: expected a positive number"):
        block_sparse_prefill.launch(query, keys, values, columns, counts, scaling, size)
