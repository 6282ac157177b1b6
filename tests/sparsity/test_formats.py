"""Sparse formats: bytes by hand, exact round trips, sizes equal to formulas, products equal to dense ones."""

import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.sparsity.bitpacking import pack, packed_width, unpack
from course_lib.sparsity.formats import CSR, Bitmap, BlockSparse, Dense, NofMPacked
from course_lib.sparsity.patterns import Block, NofM, Unstructured
from course_lib.sparsity.sizes import (
    bitmap_bytes,
    block_bytes,
    break_even_density,
    csr_bytes,
    dense_bytes,
    nofm_bytes,
)

# 0 7 0 0 8 0 0 0 | 0 0 0 0 0 0 0 0 | 1 0 0 0 0 0 0 2, then two ragged columns: 0 0 | 0 0 | 0 3
WEIGHT = torch.tensor(
    [[0.0, 7, 0, 0, 8, 0, 0, 0, 0, 0], [0.0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [1.0, 0, 0, 0, 0, 0, 0, 2, 0, 3]]
)
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
UNSTRUCTURED = [Dense, CSR, Bitmap]


def tensors(encoded):
    return [value for value in vars(encoded).values() if isinstance(value, torch.Tensor)]


def test_csr_by_hand():
    encoded = CSR.encode(WEIGHT)
    assert encoded.values.tolist() == [7, 8, 1, 2, 3]
    assert encoded.columns.tolist() == [1, 4, 0, 7, 9]
    assert encoded.row_start.tolist() == [0, 2, 2, 5]
    assert encoded.n_bytes == 5 * 4 + 5 * 4 + 4 * 4


def test_bitmap_by_hand():
    encoded = Bitmap.encode(WEIGHT)
    assert encoded.values.tolist() == [7, 8, 1, 2, 3]
    # columns 1 and 4 are bits 1 and 4 of the first byte; column 9 is bit 1 of the second
    assert encoded.bitmap.tolist() == [[0b00010010, 0], [0, 0], [0b10000001, 0b00000010]]
    assert encoded.row_start.tolist() == [0, 2, 2, 5]
    assert encoded.n_bytes == 5 * 4 + 3 * 2 + 4 * 4


def test_nofm_by_hand():
    # five groups of four in the one row: places (1, 3), (0, 1), (2, 3), one value, none
    weight = torch.tensor([[0.0, 5, 0, -6, 7, 8, 0, 0, 0, 0, 9, 1, 0, 0, 2, 0, 0, 0, 0, 0]])
    encoded = NofMPacked.encode(weight)
    # a lone value takes the last of the equal zeros beside it, an empty group its last two places
    assert encoded.values.tolist() == [[5, -6, 7, 8, 9, 1, 2, 0, 0, 0]]
    assert unpack(encoded.positions, bits=2, n=10).tolist() == [[1, 3, 0, 1, 2, 3, 2, 3, 2, 3]]
    assert encoded.positions.tolist() == [[0b01_00_11_01, 0b11_10_11_10, 0b11_10]]
    assert encoded.columns.tolist() == [[1, 3, 4, 5, 10, 11, 14, 15, 18, 19]]
    assert encoded.n_bytes == 10 * 4 + 3


def test_blocks_by_hand():
    weight = torch.zeros(4, 6)
    weight[0, 2], weight[3, 5] = 1.0, 2.0
    encoded = BlockSparse.encode(weight, 2, 2)
    assert encoded.values.tolist() == [[[1, 0], [0, 0]], [[0, 0], [0, 2]]]
    assert encoded.columns.tolist() == [1, 2]
    assert encoded.row_start.tolist() == [0, 1, 2]
    assert encoded.n_bytes == 8 * 4 + 2 * 4 + 3 * 4


def matrices(max_rows=9, max_columns=37):
    """Random shapes, kinds of number and densities; density 0 is the all-zero matrix."""
    return st.tuples(
        st.integers(1, max_rows),
        st.integers(1, max_columns),
        st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        st.sampled_from(DTYPES),
        st.integers(0, 999),
    ).map(lambda drawn: random_matrix(*drawn))


def random_matrix(rows, columns, density, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    stays = torch.rand(rows, columns, generator=generator) < density
    return (torch.randn(rows, columns, generator=generator) * stays).to(dtype)


def assert_honest(encoded, weight):
    decoded = encoded.decode()
    assert decoded.dtype == weight.dtype
    assert torch.equal(decoded, weight)
    # what the tensors keep alive, not only what they show: a view of the dense matrix would be caught here
    assert encoded.n_bytes == sum(tensor.untyped_storage().nbytes() for tensor in tensors(encoded))


@settings(max_examples=60, deadline=None)
@given(weight=matrices(), layout=st.sampled_from(UNSTRUCTURED))
def test_round_trip(weight, layout):
    assert_honest(layout.encode(weight), weight)


@settings(max_examples=40, deadline=None)
@given(weight=matrices(), nm=st.sampled_from([(1, 2), (1, 4), (2, 4), (3, 4), (2, 3)]))
def test_nofm_round_trip(weight, nm):
    n, m = nm
    weight = weight.repeat(1, m)
    weight = weight * NofM(n, m).keep(weight.abs())
    encoded = NofMPacked.encode(weight, n, m)
    assert_honest(encoded, weight)
    places = unpack(encoded.positions, bits=2, n=encoded.values.shape[1]).reshape(-1, n).to(torch.int64)
    assert (places.diff(dim=1) > 0).all()
    assert (places < m).all()


@settings(max_examples=40, deadline=None)
@given(weight=matrices(4, 5), block=st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_block_round_trip(weight, block):
    weight = weight.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    assert_honest(BlockSparse.encode(weight, *block), weight)


@settings(max_examples=60, deadline=None)
@given(weight=matrices())
def test_formulas_equal_real_bytes(weight):
    (rows, columns), n_stored, width = weight.shape, int((weight != 0).sum()), weight.element_size()
    assert Dense.encode(weight).n_bytes == dense_bytes(rows, columns, width)
    assert CSR.encode(weight).n_bytes == csr_bytes(rows, n_stored, width)
    assert Bitmap.encode(weight).n_bytes == bitmap_bytes(rows, columns, n_stored, width)
    wide = weight.repeat(1, 4)
    for n in (1, 2, 3):
        packed = NofMPacked.encode(wide * NofM(n, 4).keep(wide.abs()), n, 4)
        assert packed.n_bytes == nofm_bytes(rows, 4 * columns, width, n, 4)
    blocks = weight.repeat_interleave(3, 0).repeat_interleave(2, 1)
    assert BlockSparse.encode(blocks, 3, 2).n_bytes == block_bytes(3 * rows, 3, 2, 6 * n_stored, width)


@settings(max_examples=60, deadline=None)
@given(bits=st.sampled_from([1, 2, 4]), rows=st.integers(0, 5), n=st.integers(0, 21), seed=st.integers(0, 999))
def test_packing_round_trip_and_layout(bits, rows, n, seed):
    codes = torch.randint(0, 2**bits, (rows, n), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    packed = pack(codes, bits)
    assert packed.shape == (rows, packed_width(n, bits))
    assert torch.equal(unpack(packed, bits, n), codes)
    for row, held in zip(codes.tolist(), packed.tolist(), strict=True):  # a row read as one little-endian integer
        assert int.from_bytes(bytes(held), "little") == sum(code << (bits * place) for place, code in enumerate(row))


def test_special_values_survive():
    weight = torch.tensor([[float("inf"), 0.0, -float("inf"), 1e-45]])
    for layout in (*UNSTRUCTURED, NofMPacked):
        held = weight if layout is not NofMPacked else torch.tensor([[float("inf"), 0.0, -float("inf"), 0.0]])
        assert torch.equal(layout.encode(held).decode(), held)
    assert struct.pack("f", CSR.encode(weight).values[2].item()) == struct.pack("f", 1e-45)


def test_encoding_copies(generator):
    weight = torch.randn(8, 8, generator=generator)
    for encoded in (
        Dense.encode(weight),
        BlockSparse.encode(weight, 4, 4),
        NofMPacked.encode(weight * NofM().keep(weight)),
    ):
        before = encoded.decode()
        weight.mul_(2)
        assert torch.equal(encoded.decode(), before)


@settings(max_examples=30, deadline=None)
@given(weight=matrices(), n_tokens=st.integers(0, 3))
def test_products_equal_dense_ones(weight, n_tokens):
    weight = weight.float()
    shape = [weight.shape[1]] if n_tokens == 0 else [n_tokens, weight.shape[1]]
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    expected = inputs.double() @ weight.double().T
    for encoded in (Dense.encode(weight), CSR.encode(weight)):
        torch.testing.assert_close(encoded.linear(inputs).double(), expected, rtol=1e-5, atol=1e-5)


def test_block_product_and_batches_of_sequences(generator):
    weight = torch.randn(24, 40, generator=generator)
    weight = weight * Block(8, 8, 0.5).keep(weight.abs())
    inputs = torch.randn(2, 3, 40, generator=generator)
    for encoded in (BlockSparse.encode(weight, 8, 8), CSR.encode(weight), Dense.encode(weight)):
        torch.testing.assert_close(encoded.linear(inputs), inputs @ weight.T, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(encoded.linear(inputs[0, 0]), weight @ inputs[0, 0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("width", "csr", "bitmap"), [(4, 1 / 2, 31 / 32), (2, 1 / 3, 15 / 16)])
def test_densities_where_formats_start_to_pay(width, csr, bitmap):
    """Without row starts: v = d (v + 4) gives d = v / (v + 4); 8 v = 8 v d + 1 gives d = 1 - 1 / (8 v)."""
    rows, columns = 4096, 4096
    dense = lambda n: dense_bytes(rows, columns, width)  # noqa: E731
    as_csr = lambda n: csr_bytes(rows, n, width)  # noqa: E731
    as_bitmap = lambda n: bitmap_bytes(rows, columns, n, width)  # noqa: E731
    assert break_even_density(dense, as_csr, rows, columns) == pytest.approx(csr, abs=1e-3)
    assert break_even_density(dense, as_bitmap, rows, columns) == pytest.approx(bitmap, abs=1e-3)
    # 4 bytes of column against 1 bit of map: d = 1 / 32 whatever the value's width
    assert break_even_density(as_csr, as_bitmap, rows, columns) == pytest.approx(1 / 32, abs=1e-6)
    assert break_even_density(dense, dense, rows, columns) is None


def test_break_even_is_where_real_bytes_cross():
    rows, columns = 96, 104
    edge = break_even_density(lambda n: dense_bytes(rows, columns, 2), lambda n: csr_bytes(rows, n, 2), rows, columns)
    for density, csr_is_smaller in ((edge - 0.01, True), (edge + 0.01, False)):
        score = torch.rand(rows, columns, generator=torch.Generator().manual_seed(0))
        weight = Unstructured(1 - density, "layer").keep(score).half()
        assert (CSR.encode(weight).n_bytes < Dense.encode(weight).n_bytes) == csr_is_smaller


REFUSED = {
    "too many in a group": (
        lambda: NofMPacked.encode(torch.ones(1, 4)),
        r"2 non-zeros do not fit 2:4.*prune with NofM",
    ),
    "wide groups": (lambda: NofMPacked.encode(torch.zeros(1, 8), 4, 8), r"4:8.*2-bit"),
    "ragged groups": (lambda: NofMPacked.encode(torch.zeros(1, 6)), r"6 inputs"),
    "ragged blocks": (lambda: BlockSparse.encode(torch.zeros(4, 6), 4, 4), r"\(4, 6\).*4 x 4"),
    "empty block": (lambda: BlockSparse.encode(torch.zeros(4, 6), 4, 0), r"columns=0"),
    "half on CPU": (lambda: CSR.encode(torch.ones(2, 2).half()).linear(torch.ones(2).half()), r"float16.*float32"),
    "oblong blocks on CPU": (lambda: BlockSparse.encode(torch.ones(2, 4), 2, 4).linear(torch.ones(4)), r"2 x 4"),
    "three bits": (lambda: pack(torch.zeros(1, 1, dtype=torch.uint8), 3), r"bits=3"),
    "large code": (lambda: pack(torch.full((1, 1), 4, dtype=torch.uint8), 2), r"code of 4.*2 bits"),
    "too many codes": (lambda: unpack(torch.zeros(1, 1, dtype=torch.uint8), 2, 5), r"no 5 codes"),
    "size of ragged groups": (lambda: nofm_bytes(1, 6, 4), r"6 inputs"),
    "size of part of a block": (lambda: block_bytes(4, 2, 2, 3, 4), r"3 stored"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()
