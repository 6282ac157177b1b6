"""Multiply by a weight matrix packed as N:M, where N of every M consecutive inputs are stored.

Dimension key: T tokens, O outputs (rows), I inputs (columns), M inputs a group, N of them stored, K = I * N / M values
stored in a row, P = K / 4 (rounded up) bytes of positions in a row. In a tile: G groups.

In a chunk of 8 inputs: V values stored.

One token is bound by memory: 2:4 in bfloat16 moves 9/16 of the dense bytes (half the values, 2 bits of position for
each), so it can be 16/9 as fast as dense and no faster. Up to DENSE_FROM tokens the bytes are the same, but each weight
costs instructions until it is where a tensor core takes it from. More tokens are bound by arithmetic, and this saves
none of it: the weight is unpacked once into a dense scratch, which torch multiplies. That costs the memory of the dense
weight while it lasts, and writing and reading it; it spares only what stays in memory between the calls. Sparse tensor
cores halve the arithmetic; Triton cannot ask for them.
"""

from __future__ import annotations

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import INTERPRETED, jit, programs_to_fill, runs_kernel, tl, triton, tuned
from course_lib.kernels.tiles import join_blocks, join_kernel, product
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from course_lib.sparsity.bitpacking import packed_width
from course_lib.sparsity.formats import NofMPacked
from course_lib.sparsity.patterns import NofM

PATTERNS = ((2, 4), (1, 4), (1, 2))  # the N:M the kernels take: N and M powers of two, positions of at most 2 bits
DENSE_FROM = 65  # tokens
SPAN = 256  # inputs that one program of the product of a few tokens takes, or a multiple of it
PROGRAMS = 4  # where there is no GPU to fill
# For the tests: one token, a few (one part and several), then many, ragged tiles, tiny and whole ones.
CASES = (
    {"shape": (1, 5, 1064)},
    {"shape": (1, 4, 1024), "n": 1, "m": 4},
    {"shape": (1, 1, 2), "n": 1, "m": 2},
    {"shape": (19, 35, 136)},
    {"shape": (16, 32, 128), "n": 1, "m": 2},
    {"shape": (2, 3, 4), "n": 1, "m": 4},
    {"shape": (3, 33, 520)},
    {"shape": (DENSE_FROM, 3, 2060)},
    {"shape": (DENSE_FROM, 5, 20), "n": 1, "m": 4},
    {"shape": (DENSE_FROM, 2, 6), "n": 1, "m": 2},
)


def reference(inputs: Float[Tensor, "*T I"], weight: NofMPacked) -> Float[Tensor, "*T O"]:
    """y = x W^T, summed in float32."""
    return functional.linear(inputs.float(), weight.decode().float()).to(inputs.dtype)


def bytes_moved(inputs: Float[Tensor, "*T I"], weight: NofMPacked) -> int:
    """The packed weight and the inputs read once, the outputs written once."""
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
def halves(x):
    """The even and the odd numbers of each row: neighbours lie in one thread, so splitting them costs nothing."""
    return tl.split(tl.reshape(x, (x.shape[0], x.shape[1] // 2, 2)))


@tuned(
    ["O", "PART", "N", "T_CLASS"],
    {"BLOCK_T": 16, "BLOCK_O": 64, "BLOCK_I": 256, "num_warps": 4, "num_stages": 3},
    {"BLOCK_T": 32, "BLOCK_O": 64, "BLOCK_I": 128, "num_warps": 4, "num_stages": 3},
    {"BLOCK_T": 64, "BLOCK_O": 64, "BLOCK_I": 128, "num_warps": 4, "num_stages": 3},
    float32=(
        {"BLOCK_T": 16, "BLOCK_O": 32, "BLOCK_I": 64, "num_warps": 4, "num_stages": 2},
        {"BLOCK_T": 32, "BLOCK_O": 32, "BLOCK_I": 64, "num_warps": 4, "num_stages": 2},
    ),
)
@jit(lengths=("T", "T_CLASS"))
def gemm_kernel(
    inputs, values, positions, parts, T, T_CLASS, O,
    I: tl.constexpr, PART: tl.constexpr, N: tl.constexpr, M: tl.constexpr, P: tl.constexpr, UPCAST: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """parts[s]^T = W x^T over the inputs from s * PART on.

    The sum over inputs is taken in any order, so nothing is put side by side: plane j of the weight holds, of each
    group, the entry at position j, and meets the inputs j, M + j, 2 M + j ... alone.
    """
    G: tl.constexpr = BLOCK_I // M
    row = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    token = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    offset, inside = row.to(tl.int64)[:, None], (row < O)[:, None]
    total = tl.zeros([BLOCK_O, BLOCK_T], tl.float32)
    begin = tl.program_id(2) * PART
    for start in range(begin, begin + PART, BLOCK_I):
        column = (start + tl.arange(0, BLOCK_I))[None, :]
        x = tl.load(
            inputs + token.to(tl.int64)[:, None] * I + column, mask=(column < I) & (token < T)[:, None], other=0.0
        )
        k = (start // M * N + tl.arange(0, G * N))[None, :]
        value = tl.load(values + offset * (I // M * N) + k, mask=inside & (k < I // M * N), other=0.0)
        p = (start // M * N // 4 + tl.arange(0, G * N // 4))[None, :]
        byte = tl.load(positions + offset * P + p, mask=inside & (p < P), other=0).to(tl.int32)
        place = tl.reshape(byte[:, :, None] >> (2 * N * tl.arange(0, 4 // N))[None, None, :], (BLOCK_O, G))
        x = halves(x)
        if M == 4:
            x = halves(x[0]) + halves(x[1])
        if N == 2:
            low, high = halves(value)
        for j in tl.static_range(M):
            if N == 1:
                plane = tl.where((place & 3) == j, value, 0.0)
            elif j == 0:  # places ascend, so the second of two is not the first of its group ...
                plane = tl.where((place & 3) == 0, low, 0.0)
            elif j == M - 1:  # ... and the first is not the last
                plane = tl.where(((place >> 2) & 3) == j, high, 0.0)
            else:
                plane = tl.where((place & 3) == j, low, tl.where(((place >> 2) & 3) == j, high, 0.0))
            total += product(plane, tl.trans(x[j // 2 + j % 2 * (M // 2)]), UPCAST)
    at = parts + (tl.program_id(2).to(tl.int64) * T + token)[None, :] * O + row[:, None]
    tl.store(at, total, mask=inside & (token < T)[None, :])


@tuned(
    ["O", "I", "N"],
    {"BLOCK_O": 1, "BLOCK_I": 2048, "num_warps": 4},
    {"BLOCK_O": 4, "BLOCK_I": 1024, "num_warps": 4},
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


def launch(inputs: Float[Tensor, "*T I"], weight: NofMPacked) -> Float[Tensor, "*T O"]:
    """y = x W^T, like `torch.nn.functional.linear` without a bias."""
    _check(inputs, weight)
    if not runs_kernel(inputs):
        return reference(inputs, weight)
    n_tokens = inputs.numel() // weight.shape[1]
    with torch.cuda.device_of(inputs):  # triton launches on the current GPU, which may be another one
        if n_tokens >= DENSE_FROM:
            return functional.linear(inputs, _unpacked(weight))
        outputs = torch.empty(*inputs.shape[:-1], weight.shape[0], dtype=inputs.dtype, device=inputs.device)
        if n_tokens == 1:
            gemv_kernel[lambda meta: (triton.cdiv(weight.shape[0], meta["BLOCK_O"]),)](
                inputs, weight.values, weight.positions, outputs, **_sizes(weight)
            )
        elif n_tokens:
            _multiply_few(inputs, weight, outputs, n_tokens)
    return outputs


def _multiply_few(inputs: Tensor, weight: NofMPacked, outputs: Tensor, n_tokens: int) -> None:
    n_rows, n_columns = weight.shape
    span = SPAN * _spans_per_part(triton.cdiv(n_rows, 64), triton.cdiv(n_columns, SPAN), inputs.device)
    n_parts = triton.cdiv(n_columns, span)
    parts = torch.empty(n_parts, n_tokens, n_rows, dtype=torch.float32, device=inputs.device)
    # T_CLASS: tuned again when the number of tokens doubles, not for each length of prompt.
    tokens = {"T": n_tokens, "T_CLASS": triton.next_power_of_2(n_tokens), "UPCAST": INTERPRETED}
    gemm_kernel[lambda meta: (triton.cdiv(n_rows, meta["BLOCK_O"]), triton.cdiv(n_tokens, meta["BLOCK_T"]), n_parts)](
        inputs, weight.values, weight.positions, parts, **tokens, PART=span, **_sizes(weight)
    )
    blocks = join_blocks(n_parts, outputs.numel())
    join_kernel[(triton.cdiv(outputs.numel(), blocks["BLOCK_N"]),)](
        parts, outputs, P=n_parts, N=outputs.numel(), **blocks
    )


def _spans_per_part(n_row_tiles: int, n_spans: int, device: torch.device) -> int:
    """So few that the parts of a row keep a GPU busy."""
    n_programs = programs_to_fill(device, 4, PROGRAMS)
    return triton.cdiv(n_spans, max(1, n_programs // max(1, n_row_tiles)))


def _unpacked(weight: NofMPacked) -> Tensor:
    """The dense weight. What `weight.decode()` makes too, in one pass."""
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
    """Random arguments for `launch`: inputs (T, I) and a pruned, packed weight (O, I)."""
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
