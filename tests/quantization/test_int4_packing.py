"""Packed codes come back, and take the bytes that the formulas say."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.quantization.grid import Quantization
from course_lib.quantization.storage import (
    Packed,
    code_bytes,
    dense_bytes,
    pack_codes,
    sparse_bytes,
    stored_grid,
    unpack_codes,
)


def test_by_hand():
    """Two int4 to the byte, the first in the low half. Three bits: 5 = 101 and 3 = 011 are low 01, 11 and high 1, 0."""
    assert pack_codes(torch.tensor([[5, 3, 15]], dtype=torch.uint8), 4)[0].tolist() == [[5 + 3 * 16, 15]]
    low, high = pack_codes(torch.tensor([[5, 3]], dtype=torch.uint8), 3)
    assert low.tolist() == [[0b1101]]
    assert high.tolist() == [[0b01]]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([2, 3, 4, 8]), st.integers(1, 5), st.integers(1, 20), st.integers(0, 99))
def test_every_code_comes_back_and_takes_its_bytes(bits, rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(2**bits, (rows, columns), generator=generator).to(torch.uint8)
    planes = pack_codes(codes, bits)
    assert torch.equal(unpack_codes(planes, bits, columns), codes)
    assert sum(plane.numel() for plane in planes) == rows * code_bytes(columns, bits)


@pytest.mark.parametrize("group", [None, 16, 24])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_a_packed_weight_is_the_rounded_weight(generator, bits, group):
    weight = torch.randn(7, 40, generator=generator)
    grid = stored_grid(Quantization(bits, group).grid(weight))
    packed = Packed.encode(weight, grid)
    torch.testing.assert_close(packed.decode(), grid.round(weight), rtol=0.0, atol=0.0)
    assert packed.n_bytes == dense_bytes(7, 40, bits, group)
    assert sum(p.numel() for p in packed.planes) + 2 * packed.scale.numel() < packed.n_bytes


def test_bytes_by_hand():
    """16 × 64 at 4 bits, one scale a row: 16 · 32 codes, 16 · 2 scales, 16 · 1 zeros (half a byte, rounded up)."""
    assert dense_bytes(16, 64, 4) == 16 * 32 + 16 * 2 + 16
    assert dense_bytes(16, 64, 4, group=32) == 16 * 32 + 16 * 2 * 2 + 16
    assert dense_bytes(16, 64, 3) == 16 * 24 + 16 * 2 + 16 * 2
    assert sparse_bytes(16, 64, 512, 4) == 256 + 16 * 8 + 4 * 17 + 16 * 2 + 16


def test_half_of_the_weights_at_four_bits_take_what_three_bits_take():
    rows, columns = 576, 1536
    ratio = sparse_bytes(rows, columns, rows * columns // 2, 4) / dense_bytes(rows, columns, 3)
    assert ratio == pytest.approx(1, abs=0.01)


def test_what_is_refused():
    with pytest.raises(ValueError, match="bits=5: expected one of 2, 3, 4, 8"):
        code_bytes(4, 5)
    with pytest.raises(ValueError, match="a code of 8 needs more than 3 bits"):
        pack_codes(torch.tensor([[8]], dtype=torch.uint8), 3)
