"""Bytes of a mask in the formats that can hold it: by hand, and against the formats themselves."""

import pytest
import torch

from course_lib.sparsity.choice import bytes_by_format, cheapest
from course_lib.sparsity.formats import CSR, Bitmap, BlockSparse, NofMPacked
from course_lib.sparsity.patterns import Block, Columns, NofM, Rows, Unstructured


def test_a_small_mask_by_hand():
    """Three stored of 2 × 4 in float16; a group of three does not fit 2:4; two columns of both rows are used."""
    sizes = bytes_by_format(torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]]).bool(), 2)
    assert sizes == {
        "dense": 16,
        "CSR": 3 * 6 + 12,
        "bitmap": 6 + 2 + 12,
        "2:4": 2 * (4 + 1),
        "3:4": 2 * (6 + 1),
        "rows and columns": 8 + 8,
    }
    assert cheapest(sizes) == "2:4"
    assert "2:4" not in bytes_by_format(torch.tensor([[1, 1, 1, 0]]).bool(), 2)
    assert {"2:4", "tiles of 4"}.isdisjoint(bytes_by_format(torch.ones(4, 6).bool(), 2))


@pytest.mark.parametrize("pattern", [Unstructured(0.5), NofM(1, 4), NofM(2, 4), Block(4, 4, 0.5), Block(16, 16, 0.5)])
def test_bytes_are_those_of_the_formats(pattern, generator):
    weight = torch.randn(32, 64, generator=generator)
    pruned = weight * pattern.keep(weight.abs())
    sizes = bytes_by_format(pruned != 0, 4)
    assert (sizes["CSR"], sizes["bitmap"]) == (CSR.encode(pruned).n_bytes, Bitmap.encode(pruned).n_bytes)
    if isinstance(pattern, NofM):
        assert sizes[f"{pattern.n}:4"] == NofMPacked.encode(pruned, pattern.n, 4).n_bytes
    if isinstance(pattern, Block):
        side = pattern.rows
        assert sizes[f"tiles of {side}"] == BlockSparse.encode(pruned, side, side).n_bytes
    assert min(sizes.values()) == sizes[cheapest(sizes)]


@pytest.mark.parametrize("pattern", [Rows(0.5), Columns(0.5)])
def test_whole_rows_and_columns_are_a_smaller_matrix(pattern, generator):
    keep = pattern.keep(torch.rand(32, 64, generator=generator))
    assert bytes_by_format(keep, 2)["rows and columns"] == 32 * 64 // 2 * 2 + 4 * (
        16 if isinstance(pattern, Rows) else 32
    )
