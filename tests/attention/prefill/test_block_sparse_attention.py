"""Block-sparse attention against a loop over queries, torch's attention and flex_attention; coverage by brute force."""

import pytest
import torch
from prefill_naive import attention, draw, weights
from torch.nn.functional import scaled_dot_product_attention

from course_lib.attention.prefill.baselines import RandomBlocks
from course_lib.attention.prefill.coverage import coverage
from course_lib.attention.prefill.execute import block_sparse_attention
from course_lib.attention.prefill.flex import block_mask, flex_block_sparse_attention
from course_lib.attention.prefill.index import BlockIndex, always_read, causal_blocks, dense_index
from course_lib.attention.prefill.pattern import check_heads

SHAPES = [(1, 1, 32, 8), (2, 3, 45, 8), (2, 1, 33, 16), (1, 4, 5, 8), (1, 2, 25, 12)]  # H, G, T, S: ragged, short


def index_of(query, keys, size, generator):
    n_heads, n = query.shape[0], -(-query.shape[1] // size)
    reads = (torch.rand(n_heads, n, n, generator=generator) < 0.4) & causal_blocks(n)
    reads |= torch.eye(n, dtype=torch.bool)  # the diagonal is all that an index must have
    reads[0] = causal_blocks(n)  # a dense head among the others
    return BlockIndex(reads, query.shape[1], size)


@pytest.mark.parametrize(("n_heads", "n_groups", "n_tokens", "size"), SHAPES)
def test_is_what_a_loop_over_queries_reads(n_heads, n_groups, n_tokens, size, generator):
    query, keys, values = draw(generator, n_heads, n_groups, n_tokens)
    index = index_of(query, keys, size, generator)
    got = block_sparse_attention(query, keys, values, index, 0.35)
    expected = attention(query, keys, values, index.reads, size, 0.35)
    torch.testing.assert_close(got.double(), expected, atol=1e-5, rtol=0)  # float32 sums of at most 45 terms


@pytest.mark.parametrize(("n_heads", "n_groups", "n_tokens", "size"), SHAPES)
def test_all_blocks_are_torchs_attention(n_heads, n_groups, n_tokens, size, generator):
    """One block short of dense in a head, which keeps that head out of the way that is torch's own."""
    query, keys, values = draw(generator, n_heads, n_groups, n_tokens)
    expected = scaled_dot_product_attention(query[None], keys[None], values[None], is_causal=True, enable_gqa=True)[0]
    got = block_sparse_attention(query, keys, values, dense_index(len(query), n_tokens, size), 8**-0.5)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:.*without torch.compile")
@pytest.mark.parametrize(("n_heads", "n_groups", "n_tokens", "size"), [*SHAPES, (2, 3, 90, 16)])
def test_flex_attention_reads_the_same_blocks(n_heads, n_groups, n_tokens, size, generator):
    """torch's own block-sparse attention, not compiled, beside the loop and attention under the whole mask."""
    query, keys, values = draw(generator, n_heads, n_groups, n_tokens)
    index = index_of(query, keys, size, generator)
    got = flex_block_sparse_attention(query, keys, values, block_mask(index), 0.3)
    loop = block_sparse_attention(query, keys, values, index, 0.3)
    may_read = index.reads.repeat_interleave(size, 1).repeat_interleave(size, 2)[:, :n_tokens, :n_tokens].tril()
    inputs = query[None], keys[None], values[None]
    dense = scaled_dot_product_attention(*inputs, attn_mask=may_read[None], scale=0.3, enable_gqa=True)[0]
    torch.testing.assert_close(got, loop, atol=1e-5, rtol=0)  # float32 sums of at most 90 terms
    torch.testing.assert_close(got, dense, atol=1e-5, rtol=0)


def test_a_mask_of_blocks_holds_the_index():
    """Two heads of three blocks by hand: how many whole blocks each reads before its own, and which."""
    reads = torch.tensor([[[1, 0, 0], [0, 1, 0], [1, 0, 1]], [[1, 0, 0], [1, 1, 0], [1, 1, 1]]], dtype=torch.bool)
    mask = block_mask(BlockIndex(reads, 20, 8))
    assert mask.kv_num_blocks.tolist() == [[[1, 1, 1], [1, 1, 1]]]  # its own, up to each query
    assert mask.kv_indices[0, :, :, 0].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert mask.full_kv_num_blocks.tolist() == [[[0, 0, 1], [0, 1, 2]]]
    assert mask.full_kv_indices[0, 0, 2, 0] == 0
    assert mask.full_kv_indices[0, 1, 2, :2].tolist() == [0, 1]


def test_what_is_not_read_does_not_matter(generator):
    query, keys, values = draw(generator, 1, 2, 40)
    reads = always_read(5).repeat(2, 1, 1)
    index = BlockIndex(reads, 40, 8)
    before = block_sparse_attention(query, keys, values, index, 0.3)
    keys[:, 16:24], values[:, 16:24] = torch.nan, torch.nan  # block 2, which its own queries alone read
    after = block_sparse_attention(query, keys, values, index, 0.3)
    others = [*range(16), *range(24, 40)]
    torch.testing.assert_close(after[:, others], before[:, others], atol=0, rtol=0)
    assert after[:, 16:24].isnan().all()


def test_half_precision_keeps_its_type(generator):
    query, keys, values = draw(generator, 1, 2, 40)
    index = RandomBlocks(block_size=8).index(query, keys, 0.3)
    exact = block_sparse_attention(query, keys, values, index, 0.3)
    got = block_sparse_attention(*(each.bfloat16() for each in (query, keys, values)), index, 0.3)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), exact, atol=0.15, rtol=0)  # 8 bits of logits of up to 10


def test_gradients_reach_all_three(generator):
    inputs = [each.requires_grad_() for each in draw(generator, 1, 2, 40)]
    index = RandomBlocks(block_size=8).index(*inputs[:2], 0.3)
    block_sparse_attention(*inputs, index, 0.3).sum().backward()
    assert all(each.grad.isfinite().all() and each.grad.any() for each in inputs)


@pytest.mark.parametrize("n_last", [None, 1, 9, 8, 45])
def test_coverage_by_brute_force(n_last, generator):
    query, keys, _ = draw(generator, 2, 2, 45)
    index = index_of(query, keys, 8, generator)
    first = 0 if n_last is None else 45 - n_last
    expected = torch.zeros(4)
    for head in range(4):
        for i in range(first, 45):
            row = weights(query, keys, 0.3, head, i)
            expected[head] += sum(w for j, w in enumerate(row) if index.reads[head, i // 8, j // 8])
    torch.testing.assert_close(coverage(query, keys, index, 0.3, n_last), expected / (45 - first))


def test_an_index_of_another_text_is_refused(generator):
    query, keys, values = draw(generator, 2, 3, 40)
    with pytest.raises(ValueError, match="got an index of 6 heads and 41 tokens"):
        block_sparse_attention(query, keys, values, dense_index(6, 41, 8), 1.0)
    with pytest.raises(ValueError, match="got an index of 3 heads"):
        block_sparse_attention(query, keys, values, dense_index(3, 40, 8), 1.0)
    with pytest.raises(ValueError, match="whole number of query heads"):
        block_sparse_attention(query[:5], keys, values, dense_index(5, 40, 8), 1.0)
    with pytest.raises(ValueError, match="of the same text"):
        check_heads(query, keys[:, :39])
