"""Multiply by a weight matrix packed as N:M, where N of every M consecutive inputs are stored.

Dimension key: T tokens, O outputs (rows), I inputs (columns), M inputs a group, N of them stored, K = I * N / M values
stored in a row, P = K / 4 (rounded up) bytes of positions in a row.

In a chunk of 8 inputs (16 with more than one token): V values stored. Of 2:4: W words in a row, of two values each.

One token is bound by memory: 2:4 in bfloat16 moves 9/16 of the dense bytes (half the values, 2 bits of position for
each), so it can be at most 16/9 as fast as dense. Below DENSE_FROM tokens the bytes are the same, and speed depends on
how few instructions unpack a weight, in the registers from which a tensor core reads it. For a weight of 4096 x 14336
on an H200, this is 1.36 times as fast as dense at 1 token, 1.34 at 4, 1.23 at 16 and 1.13 at 64. With 64 tokens, a warp
reads the inputs of all tokens from shared memory for each 16 rows: 0.47 GB, which takes the multiprocessors 16 us, as
long as reading the weight from memory. The two overlap only in part, and the parts are summed after them.

More tokens are bound by arithmetic, and this saves none of it: the weight is unpacked once into a dense scratch, which
torch multiplies. This temporarily needs the memory of the dense weight, and writes and reads it; only the memory
between calls is saved. At 512 tokens, the dense product takes 79 us; reading the packed weight and writing the dense
one, 183 MB, takes at least 43 us more. So at most 0.65 of the speed of dense is possible, and 0.62 is reached.
Unpacking inside the product was slower still (0.40): each tile of tokens unpacks the weight again, and tensor cores
that take the weight from registers do not reach the rate of those that take both operands from shared memory, as
torch's product does. Sparse tensor cores halve the arithmetic, but Triton has no access to them. Tensor cores round
float32, so float32 is unpacked from two tokens on.
"""

from __future__ import annotations

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import (
    INTERPRETED,
    cdiv,
    jit,
    overlap_of,
    power_of_two,
    programs_to_fill,
    runs_kernel,
    tl,
    triton,
    tuned,
)
from course_lib.kernels.tiles import join_blocks, join_kernel, product
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from course_lib.sparsity.bitpacking import packed_width
from course_lib.sparsity.formats import NofMPacked
from course_lib.sparsity.patterns import NofM

PATTERNS = ((2, 4), (1, 4), (1, 2))  # supported N:M: N and M powers of two, positions of at most 2 bits
DENSE_FROM = 65  # tokens; 2 in float32
FEW = 16  # maximum number of tokens of `few_kernel`; `several_kernel` shares each input among more rows
WARPS, RESIDENT = 8, 2  # warps of a program, and how many programs a multiprocessor has room for
REGISTERS = 65536 // (32 * WARPS * RESIDENT)  # of a thread; with more, `several_kernel` would lose half the programs
PROGRAMS = 4  # without a GPU
# For the tests: one token, a few, several (in one part and in more), then many; ragged tiles, tiny and whole ones.
CASES = (
    {"shape": (1, 5, 1064)},
    {"shape": (1, 4, 1024), "n": 1, "m": 4},
    {"shape": (1, 1, 2), "n": 1, "m": 2},
    {"shape": (3, 17, 136)},
    {"shape": (16, 32, 128), "n": 1, "m": 2},
    {"shape": (2, 3, 4), "n": 1, "m": 4},
    {"shape": (9, 5, 2208)},
    {"shape": (19, 35, 136)},
    {"shape": (33, 9, 1056)},
    {"shape": (DENSE_FROM, 3, 2060)},
)


def reference(inputs: Float[Tensor, "*T I"], weight: NofMPacked) -> Float[Tensor, "*T O"]:
    """Compute y = x W^T, summed in float32."""
    return functional.linear(inputs.float(), weight.decode().float()).to(inputs.dtype)


def bytes_moved(inputs: Float[Tensor, "*T I"], weight: NofMPacked) -> int:
    """Count the bytes to move at least: packed weight and inputs are read once, outputs are written once."""
    n_outputs = inputs.numel() // weight.shape[1] * weight.shape[0]
    return weight.n_bytes + (inputs.numel() + n_outputs) * inputs.element_size()


@jit
def load_packed(
    values, positions, row, row_inside, chunk,
    I: tl.constexpr, N: tl.constexpr, M: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """The V values that each row stores for each chunk, and their places: (rows, chunks, V), the place in 2 low bits.

    A chunk is 8 inputs, 16 bytes where they have two each; a thread has whole ones, so it needs no other thread.
    """
    V: tl.constexpr = 8 * N // M
    k = V * chunk + tl.arange(0, V)[None, None, :]
    value = tl.load(values + row * (I // M * N) + k, mask=row_inside & (k < I // M * N), other=0.0)
    p = V * chunk // 4
    byte = tl.load(positions + row * P + p, mask=row_inside & (p < P), other=0)
    return value, byte.to(tl.int32) >> (2 * (k % 4))


@jit
def load_inputs(inputs, chunk, I: tl.constexpr):
    """(1, chunks, 8)"""
    column = 8 * chunk + tl.arange(0, 8)[None, None, :]
    return tl.load(inputs + column, mask=column < I, other=0.0)


@tuned(
    ["O", "I", "N"],
    {"BLOCK_O": 1, "BLOCK_I": 1024, "num_warps": 1},
    {"BLOCK_O": 1, "BLOCK_I": 2048, "num_warps": 2},
    {"BLOCK_O": 2, "BLOCK_I": 1024, "num_warps": 1},
    float32=({"BLOCK_O": 1, "BLOCK_I": 1024, "num_warps": 1},),  # rare on a GPU: not worth the time of tuning
)
@jit
def gemv_kernel(
    inputs, values, positions, outputs, O,
    I: tl.constexpr, N: tl.constexpr, M: tl.constexpr, P: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """y[o] = sum_k value[o, k] * x[group of k * M + place[o, k]], for BLOCK_O rows."""
    C: tl.constexpr = BLOCK_I // 8
    row = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    offset, inside = row.to(tl.int64)[:, None, None], (row < O)[:, None, None]
    chunk = tl.arange(0, C)[None, :, None]
    total = tl.zeros([BLOCK_O, C, 8 * N // M], tl.float32)
    x = load_inputs(inputs, chunk, I)
    value, place = load_packed(values, positions, offset, inside, chunk, I, N, M, P)
    for start in range(0, I, BLOCK_I):
        chunk = (start // 8 + C + tl.arange(0, C))[None, :, None]
        following = load_inputs(inputs, chunk, I)  # comes while this tile is multiplied
        following_packed = load_packed(values, positions, offset, inside, chunk, I, N, M, P)
        # Each bit of the place halves the candidates: a gather from memory would serve one row, this serves all.
        place = tl.reshape(place, (BLOCK_O, C, 8 // M, N, 1))
        x = tl.reshape(x.to(tl.float32), (1, C, 8 // M, 1, M))
        for bit in tl.static_range(M // 2):
            even, odd = tl.split(tl.reshape(x, (x.shape[0], C, 8 // M, x.shape[3], x.shape[4] // 2, 2)))
            x = tl.where((place >> bit) & 1 != 0, odd, even)
        total += value.to(tl.float32) * tl.reshape(x, value.shape)
        x = following
        value, place = following_packed
    tl.store(outputs + row, tl.sum(tl.sum(total, 2), 1).to(outputs.dtype.element_ty), mask=row < O)


@jit
def choose_bytes(low, high, choice, UPCAST: tl.constexpr):
    """Byte i of the result is one of the 8 bytes of `low` and `high`: the one that digit i of `choice` (hex) says."""
    if UPCAST:  # the interpreter runs no PTX
        result = choice & 0
        for i in tl.static_range(4):
            digit = (choice >> (4 * i)) & 7
            result = result | ((tl.where(digit < 4, low, high) >> (8 * (digit & 3))) & 0xFF) << (8 * i)
        return result
    else:
        asm: tl.constexpr = "prmt.b32 $0, $1, $2, $3;"
        return tl.inline_asm_elementwise(asm, "=r,r,r,r", [low, high, choice], dtype=tl.int32, is_pure=True, pack=1)


@jit
def load_words(values, positions, row, inside, lane, I: tl.constexpr, P: tl.constexpr):
    """2:4 in 16 bits, of 32 inputs a lane: 8 words of two values, (4, 8, warps, 8-row tiles, 2, 4), and one of places.

    The hints say which axis a warp lies along: first the 4 lanes that share a row, then the 8 rows, as in the operand
    of a tensor core. So nothing changes hands on the way there.
    """
    W: tl.constexpr = I // 4
    half, group = tl.arange(0, 2)[None, None, None, None, :, None], tl.arange(0, 4)[None, None, None, None, None, :]
    w = lane // 4 + 4 * half + group
    at = tl.max_contiguous(values.to(tl.pointer_type(tl.int32)) + (row * W + w), (8, 4, 2, 1, 1, 16))
    value = tl.load(at, mask=inside & (w < W), other=0)
    p = lane // 32
    at = tl.max_contiguous(positions.to(tl.pointer_type(tl.int32)) + (row * (P // 4) + p), (8, 4, 2, 1, 1, 1))
    return value, tl.load(at, mask=inside & (p < P // 4), other=0)


@jit
def unpack_words(value, place, dtype: tl.constexpr, UPCAST: tl.constexpr):
    """The weights of 32 inputs a lane, (4, 8, warps, 8-row tiles, 2, 4, 2, 2): 2.5 instructions for a stored value.

    p ^ (p >> 1) tells the 6 ways to place 2 of 4 apart by 3 bits. With these, one instruction looks up, for 4 groups,
    which bytes of the stored pair become weight 0 of the group (0x10: the first value, 0x32: the second, 0x44: zero);
    likewise weights 1 to 3.
    """
    half, group = tl.arange(0, 2)[None, None, None, None, :, None], tl.arange(0, 4)[None, None, None, None, None, :]
    place = ((place ^ (place >> 1)) & 0x77777777) >> (16 * half)
    first = choose_bytes(0x44104444, 0x44104410, place, UPCAST)
    second = choose_bytes(0x10444444, 0x44321044, place, UPCAST)
    third = choose_bytes(0x44441044, 0x44443232, place, UPCAST)
    fourth = choose_bytes(0x32323244, 0x44444444, place, UPCAST)
    of_group = group * 0x11 + 0x40  # byte `group` of the one, then of the other
    left = choose_bytes(value, 0, choose_bytes(first, second, of_group, UPCAST), UPCAST)
    right = choose_bytes(value, 0, choose_bytes(third, fourth, of_group, UPCAST), UPCAST)
    pair = tl.join(left, right)
    low, high = pair.to(tl.int16).to(dtype, bitcast=True), (pair >> 16).to(tl.int16).to(dtype, bitcast=True)
    return tl.join(low, high)


@jit
def load_entries(
    values, positions, row, inside, lane, I: tl.constexpr, N: tl.constexpr, M: tl.constexpr, P: tl.constexpr
):
    """Any pattern and alignment: values and places, (4, 8, warps, 8-row tiles, 2, V)."""
    V: tl.constexpr = 16 * N // M
    half, entry = tl.arange(0, 2)[None, None, None, None, :, None], tl.arange(0, V)[None, None, None, None, None, :]
    k = lane // M * N + V * half + entry
    value = tl.load(values + row * (I // M * N) + k, mask=inside & (k < I // M * N), other=0.0)
    byte = tl.load(positions + row * P + k // 4, mask=inside & (k // 4 < P), other=0)
    return value, byte.to(tl.int32) >> (2 * (k % 4))


@jit
def unpack_entries(value, place, N: tl.constexpr, M: tl.constexpr):
    """The same weights as `unpack_words`."""
    G: tl.constexpr = 16 // M
    own: tl.constexpr = (value.shape[0], value.shape[1], value.shape[2], value.shape[3], 2, G, N, 1)
    each: tl.constexpr = (value.shape[0], value.shape[1], value.shape[2], value.shape[3], 2, 4, 2, 2)
    candidate = tl.arange(0, M)[None, None, None, None, None, None, None, :]
    at_place = tl.where(tl.reshape(place & 3, own) == candidate, tl.reshape(value.to(tl.float32), own), 0.0)
    return tl.reshape(tl.sum(at_place, 6), each).to(value.dtype)  # at most one term is not 0


@jit
def load_weight(
    values, positions, row, inside, lane,
    I: tl.constexpr, N: tl.constexpr, M: tl.constexpr, P: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    if WORDS:
        return load_words(values, positions, row, inside, lane, I, P)
    else:
        return load_entries(values, positions, row, inside, lane, I, N, M, P)


@jit
def unpack(
    value, place, dtype: tl.constexpr, N: tl.constexpr, M: tl.constexpr, WORDS: tl.constexpr, UPCAST: tl.constexpr
):
    if WORDS:
        return unpack_words(value, place, dtype, UPCAST)
    else:
        return unpack_entries(value, place, N, M)


@jit(lengths=("T",))
def few_kernel(
    inputs, values, positions, parts, T, O,
    I: tl.constexpr, PART: tl.constexpr, N: tl.constexpr, M: tl.constexpr, P: tl.constexpr, WORDS: tl.constexpr,
    UPCAST: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_T: tl.constexpr, WARPS: tl.constexpr,
):  # fmt: skip
    """parts[s]^T = W x^T over the inputs from s * PART on, for 16 rows and all tokens.

    Each warp takes inputs of its own, 128 at a time. The sum over inputs is taken in any order, so weights and inputs
    are loaded as memory has them, 32 neighbours a lane, and what the lanes hold, in turn, is an operand of a tensor
    core: no lane and no warp needs another's numbers.
    """
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    eight = tl.arange(0, 8)[None, :, None, None, None, None]
    row = tl.program_id(0) * 16 + 8 * tl.arange(0, 2)[None, None, None, :, None, None] + eight
    token = 8 * tl.arange(0, BLOCK_T // 8)[None, None, None, :, None, None] + eight
    begin = tl.program_id(1) * PART
    lane = (
        begin
        + 128 * tl.arange(0, WARPS)[None, None, :, None, None, None]
        + 32 * tl.arange(0, 4)[:, None, None, None, None, None]
    )
    eighth, one = tl.arange(0, 4)[None, None, None, None, :, None], tl.arange(0, 8)[None, None, None, None, None, :]
    total = tl.zeros([WARPS, 16, BLOCK_T], tl.float32)
    value, place = load_weight(values, positions, row.to(tl.int64), row < O, lane, I, N, M, P, WORDS)
    for _ in range(begin, begin + PART, 128 * WARPS):
        following = load_weight(  # comes while this tile is multiplied
            values, positions, row.to(tl.int64), row < O, lane + 128 * WARPS, I, N, M, P, WORDS
        )
        column = lane + 8 * eighth + one
        at = tl.max_contiguous(inputs + (token.to(tl.int64) * I + column), (8, 4, 2, 1, 1, 16))
        x = tl.load(at, mask=(column < I) & (token < T), other=0.0)
        x = tl.reshape(x, (4, 8, WARPS, BLOCK_T // 8, 8, 4))
        x = tl.reshape(tl.permute(x, (2, 4, 0, 5, 3, 1)), (WARPS, 128, BLOCK_T))
        weight = unpack(value, place, inputs.dtype.element_ty, N, M, WORDS, UPCAST)
        weight = tl.reshape(tl.permute(weight, (2, 3, 1, 4, 5, 0, 6, 7)), (WARPS, 16, 128))
        total += product(weight, x, UPCAST)
        lane += 128 * WARPS
        value, place = following
    o, t = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, BLOCK_T)
    at = parts + (tl.program_id(1).to(tl.int64) * T + t)[None, :] * O + o[:, None]
    tl.store(at, tl.sum(total, 0).to(parts.dtype.element_ty), mask=(o < O)[:, None] & (t < T)[None, :])


@jit(lengths=("T",))
def several_kernel(
    inputs, values, positions, parts, T, O,
    I: tl.constexpr, PART: tl.constexpr, N: tl.constexpr, M: tl.constexpr, P: tl.constexpr, WORDS: tl.constexpr,
    UPCAST: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_T: tl.constexpr, WARPS: tl.constexpr,
):  # fmt: skip
    """Likewise, but each warp takes 16 rows of its own, and all warps share the inputs."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    row = (
        tl.program_id(0) * (16 * WARPS)
        + 16 * tl.arange(0, WARPS)[None, None, :, None, None, None]
        + 8 * tl.arange(0, 2)[None, None, None, :, None, None]
        + tl.arange(0, 8)[None, :, None, None, None, None]
    )
    token = tl.arange(0, BLOCK_T)
    begin = tl.program_id(1) * PART
    lane = begin + 32 * tl.arange(0, 4)[:, None, None, None, None, None]
    total = tl.zeros([16 * WARPS, BLOCK_T], tl.float32)
    value, place = load_weight(values, positions, row.to(tl.int64), row < O, lane, I, N, M, P, WORDS)
    for start in range(begin, begin + PART, 128):
        following = load_weight(values, positions, row.to(tl.int64), row < O, lane + 128, I, N, M, P, WORDS)
        column = (start + tl.arange(0, 128))[None, :]
        at = inputs + token.to(tl.int64)[:, None] * I + column
        x = tl.load(at, mask=(column < I) & (token < T)[:, None], other=0.0)
        x = tl.permute(tl.reshape(x, (BLOCK_T, 4, 8, 2, 2)), (2, 3, 1, 4, 0))
        weight = unpack(value, place, inputs.dtype.element_ty, N, M, WORDS, UPCAST)
        weight = tl.reshape(tl.permute(weight, (2, 3, 1, 4, 5, 6, 0, 7)), (16 * WARPS, 128))
        total += product(weight, tl.reshape(x, (128, BLOCK_T)), UPCAST)
        lane += 128
        value, place = following
    o = tl.program_id(0) * (16 * WARPS) + tl.arange(0, 16 * WARPS)
    at = parts + (tl.program_id(1).to(tl.int64) * T + token)[None, :] * O + o[:, None]
    tl.store(at, total.to(parts.dtype.element_ty), mask=(o < O)[:, None] & (token < T)[None, :])


@tuned(
    ["O", "I", "N"],
    {"BLOCK_O": 1, "BLOCK_I": 2048, "num_warps": 4},
    {"BLOCK_O": 4, "BLOCK_I": 1024, "num_warps": 4},
    float32=({"BLOCK_O": 1, "BLOCK_I": 2048, "num_warps": 4},),
)
@jit
def unpack_kernel(
    values, positions, dense, O,
    I: tl.constexpr, N: tl.constexpr, M: tl.constexpr, P: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """The dense weight, zeros included."""
    C: tl.constexpr = BLOCK_I // 8
    row = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    offset, inside = row.to(tl.int64)[:, None, None], (row < O)[:, None, None]
    chunk = (tl.program_id(1) * C + tl.arange(0, C))[None, :, None]
    value, place = load_packed(values, positions, offset, inside, chunk, I, N, M, P)
    place = tl.reshape(place & 3, (BLOCK_O, C, 8 // M, N, 1))
    value = tl.reshape(value.to(tl.float32), (BLOCK_O, C, 8 // M, N, 1))
    at_place = tl.where(place == tl.arange(0, M)[None, None, None, None, :], value, 0.0)
    weight = tl.reshape(tl.sum(at_place, 3), (BLOCK_O, C, 8))  # at most one term is not 0
    column = 8 * chunk + tl.arange(0, 8)[None, None, :]
    tl.store(dense + offset * I + column, weight.to(dense.dtype.element_ty), mask=inside & (column < I))


def takes(inputs: Tensor, n: int, m: int) -> bool:
    """Return whether the kernel can multiply these inputs by a weight packed as n:m."""
    return (n, m) in PATTERNS and inputs.ndim > 0 and inputs.is_contiguous()


def launch(inputs: Float[Tensor, "*T I"], weight: NofMPacked) -> Float[Tensor, "*T O"]:
    """Compute y = x W^T, like `torch.nn.functional.linear` without a bias."""
    _check(inputs, weight)
    if not runs_kernel(inputs):
        return reference(inputs, weight)
    n_tokens = inputs.numel() // weight.shape[1]
    with torch.cuda.device_of(inputs):  # triton launches on the current GPU, which may be another one
        if n_tokens >= (DENSE_FROM if inputs.element_size() == 2 else 2):
            return functional.linear(inputs, _unpacked(weight))
        outputs = torch.empty(*inputs.shape[:-1], weight.shape[0], dtype=inputs.dtype, device=inputs.device)
        if n_tokens == 1:
            gemv_kernel[lambda meta: (triton.cdiv(weight.shape[0], meta["BLOCK_O"]),)](
                inputs, weight.values, weight.positions, outputs, **_sizes(weight)
            )
        elif n_tokens:
            _multiply_some(inputs, weight, outputs, n_tokens)
    return outputs


def _multiply_some(inputs: Tensor, weight: NofMPacked, outputs: Tensor, n_tokens: int) -> None:
    n_rows, n_columns = weight.shape
    # Rows of a program, inputs that it processes at a time, and the maximum number of registers per thread.
    few, several = (few_kernel, 16, 128 * WARPS, None), (several_kernel, 16 * WARPS, 128, REGISTERS)
    kernel, rows, span, registers = few if n_tokens <= FEW else several
    n_row_tiles = cdiv(n_rows, rows)
    span *= _spans_per_part(n_row_tiles, cdiv(n_columns, span), inputs.device)
    n_parts, parts, overlap = cdiv(n_columns, span), outputs, {}
    if n_parts > 1:
        parts = torch.empty(n_parts, n_tokens, n_rows, dtype=torch.float32, device=inputs.device)
        overlap = overlap_of(inputs.device)
    kernel[n_row_tiles, n_parts](
        inputs, weight.values, weight.positions, parts, T=n_tokens, PART=span, WORDS=_in_words(weight),
        UPCAST=INTERPRETED, OVERLAP=bool(overlap), BLOCK_T=max(8, power_of_two(n_tokens)), WARPS=WARPS,
        num_warps=WARPS, num_stages=1, maxnreg=registers, **_sizes(weight),
    )  # fmt: skip
    if n_parts > 1:
        blocks = join_blocks(n_parts, outputs.numel())
        join_kernel[cdiv(outputs.numel(), blocks["BLOCK_N"]),](
            parts, outputs, P=n_parts, N=outputs.numel(), OVERLAP=bool(overlap), **blocks, **overlap
        )


def _in_words(weight: NofMPacked) -> bool:
    """Return whether the weight can be read as whole words of 4 bytes."""
    aligned = all(tensor.data_ptr() % 4 == 0 for tensor in (weight.values, weight.positions))
    return (weight.n, weight.m) == (2, 4) and weight.positions.shape[1] % 4 == 0 and aligned


def _spans_per_part(n_row_tiles: int, n_spans: int, device: torch.device) -> int:
    """Return so few spans that the parts of a row keep a GPU busy."""
    n_programs = programs_to_fill(device, RESIDENT, PROGRAMS)
    return cdiv(n_spans, max(1, n_programs // max(1, n_row_tiles)))


def _unpacked(weight: NofMPacked) -> Tensor:
    """Return the dense weight, like `weight.decode()`, but in one pass."""
    n_rows, n_columns = weight.shape
    dense = torch.empty(weight.shape, dtype=weight.values.dtype, device=weight.values.device)
    unpack_kernel[lambda meta: (triton.cdiv(n_rows, meta["BLOCK_O"]), triton.cdiv(n_columns, meta["BLOCK_I"]))](
        weight.values, weight.positions, dense, **_sizes(weight)
    )
    return dense


def _sizes(weight: NofMPacked) -> dict[str, int]:
    n_rows, n_columns = weight.shape
    return {"O": n_rows, "I": n_columns, "N": weight.n, "M": weight.m, "P": weight.positions.shape[1]}


def example(
    generator: torch.Generator, dtype: torch.dtype, device: str, shape: tuple[int, int, int], n: int = 2, m: int = 4
) -> tuple[Tensor, NofMPacked]:
    """Draw random arguments for `launch`: inputs (T, I) and a pruned, packed weight (O, I)."""
    where = {"generator": generator, "device": generator.device}
    n_tokens, n_rows, n_columns = shape
    weight = torch.randn(n_rows, n_columns, **where) / n_columns**0.5
    weight = (weight * NofM(n, m).keep(weight.abs())).to(device, dtype)
    return torch.randn(n_tokens, n_columns, **where).to(device, dtype), NofMPacked.encode(weight, n, m)


def _check(inputs: Tensor, weight: NofMPacked) -> None:
    if (weight.n, weight.m) not in PATTERNS:
        expected = " or ".join(f"{n}:{m}" for n, m in PATTERNS)
        raise ValueError(f"weight is packed as {weight.n}:{weight.m}: expected {expected}; multiply by weight.decode()")
    n_rows, n_columns = weight.shape
    n_stored = n_columns // weight.m * weight.n
    check_tensor("inputs", inputs, (*inputs.shape[:-1], n_columns), FLOATS)
    check_tensor("weight.values", weight.values, (n_rows, n_stored), (inputs.dtype,))
    check_tensor("weight.positions", weight.positions, (n_rows, packed_width(n_stored, bits=2)), (torch.uint8,))
    check_device(inputs=inputs, values=weight.values, positions=weight.positions)
