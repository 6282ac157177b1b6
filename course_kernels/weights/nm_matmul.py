"""Multiply by a weight matrix packed as N:M, where N of every M consecutive inputs are stored.

Dimension key: T tokens, O outputs (rows), I inputs (columns), M inputs a group, N of them stored, K = I * N / M values
stored in a row, P = K / 4 (rounded up) bytes of positions in a row. In a tile: G groups.

One token is bound by memory: 2:4 in bfloat16 moves 9/16 of the dense bytes (half the values, 2 bits of position for
each), so it can be 16/9 as fast as dense and no faster. Many tokens are bound by arithmetic, and this saves none of
it: a tile is unpacked and multiplied as a dense one. Sparse tensor cores halve it; Triton cannot ask for them.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from course_kernels.checks import FLOATS, check_device, check_tensor
from course_kernels.runtime import INTERPRETED, jit, runs_kernel, tl, triton, tuned
from course_lib.sparsity.bitpacking import packed_width
from course_lib.sparsity.formats import NofMPacked
from course_lib.sparsity.patterns import NofM

PATTERNS = ((2, 4), (1, 4), (1, 2))  # the N:M the kernels take: N and M powers of two, positions of at most 2 bits
# For the tests: one token then many, ragged tiles, tiny and whole ones.
CASES = (
    {"shape": (1, 5, 1064)},
    {"shape": (1, 4, 1024), "n": 1, "m": 4},
    {"shape": (1, 1, 2), "n": 1, "m": 2},
    {"shape": (19, 35, 136)},
    {"shape": (16, 32, 128), "n": 1, "m": 2},
    {"shape": (2, 3, 4), "n": 1, "m": 4},
)


def reference(inputs: Float[Tensor, "*T I"], weight: NofMPacked) -> Float[Tensor, "*T O"]:
    """y = x W^T, summed in float32."""
    return functional.linear(inputs.float(), weight.decode().float()).to(inputs.dtype)


def bytes_moved(inputs: Float[Tensor, "*T I"], weight: NofMPacked) -> int:
    """The packed weight and the inputs read once, the outputs written once."""
    n_outputs = inputs.numel() // weight.shape[1] * weight.shape[0]
    return weight.n_bytes + (inputs.numel() + n_outputs) * inputs.element_size()


@jit
def load_packed(values, positions, row, row_inside, start, K: tl.constexpr, P: tl.constexpr, BLOCK_K: tl.constexpr):
    """BLOCK_K stored values of each row from number `start` on, in float32, and the place of each in its group."""
    k = start + tl.arange(0, BLOCK_K)[None, :]
    p = start // 4 + tl.arange(0, BLOCK_K // 4)[None, :]
    value = tl.load(values + row * K + k, mask=row_inside & (k < K), other=0.0).to(tl.float32)
    byte = tl.load(positions + row * P + p, mask=row_inside & (p < P), other=0)
    place = (byte[:, :, None].to(tl.int32) >> (2 * tl.arange(0, 4))[None, None, :]) & 3
    return value, tl.reshape(place, value.shape)


@jit
def load_chunks(
    inputs, values, positions, row, row_inside, first,
    I: tl.constexpr, N: tl.constexpr, M: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """C chunks of 8 inputs from number `first` on, the V values in each row that multiply some of them, their places.

    Shapes (1, C, 8), (rows, C, V), (rows, C, V). A thread has whole chunks, so it needs nothing from other threads.
    """
    V: tl.constexpr = 8 * N // M
    c = (first + tl.arange(0, C))[None, :, None]
    column, k = 8 * c + tl.arange(0, 8)[None, None, :], V * c + tl.arange(0, V)[None, None, :]
    x = tl.load(inputs + column, mask=column < I, other=0.0)
    value = tl.load(values + row * (I // M * N) + k, mask=row_inside & (k < I // M * N), other=0.0)
    p = V * c // 4
    byte = tl.load(positions + row * P + p, mask=row_inside & (p < P), other=0).to(tl.int32)
    return x, value, byte >> (2 * (k % 4))


@tuned(
    ["O", "I", "N"],
    {"BLOCK_O": 2, "BLOCK_I": 512, "num_warps": 1},
    {"BLOCK_O": 2, "BLOCK_I": 1024, "num_warps": 1},
    {"BLOCK_O": 4, "BLOCK_I": 512, "num_warps": 1},
    {"BLOCK_O": 1, "BLOCK_I": 1024, "num_warps": 1},
    {"BLOCK_O": 1, "BLOCK_I": 2048, "num_warps": 2},
    {"BLOCK_O": 2, "BLOCK_I": 2048, "num_warps": 2},
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
    total = tl.zeros([BLOCK_O, C, 8 * N // M], tl.float32)
    x, value, place = load_chunks(inputs, values, positions, offset, inside, 0, I, N, M, P, C)
    for start in range(0, I, BLOCK_I):
        # Comes while this tile is multiplied.
        following = load_chunks(
            inputs, values, positions, offset, inside, (start + BLOCK_I) // 8, I, N, M, P, C
        )
        # Each bit of the place halves the candidates: a gather from memory would serve one row, this serves all.
        place = tl.reshape(place, (BLOCK_O, C, 8 // M, N, 1))
        x = tl.reshape(x.to(tl.float32), (1, C, 8 // M, 1, M))
        for bit in tl.static_range(M // 2):
            even, odd = tl.split(tl.reshape(x, (x.shape[0], C, 8 // M, x.shape[3], x.shape[4] // 2, 2)))
            x = tl.where((place >> bit) & 1 != 0, odd, even)
        total += value.to(tl.float32) * tl.reshape(x, value.shape)
        x, value, place = following
    tl.store(outputs + row, tl.sum(tl.sum(total, 2), 1).to(outputs.dtype.element_ty), mask=row < O)


@tuned(
    ["O", "I", "N", "T_CLASS"],
    {"BLOCK_T": 16, "BLOCK_O": 32, "BLOCK_I": 128, "num_warps": 4, "num_stages": 3},
    {"BLOCK_T": 16, "BLOCK_O": 64, "BLOCK_I": 128, "num_warps": 4, "num_stages": 3},
    {"BLOCK_T": 64, "BLOCK_O": 64, "BLOCK_I": 64, "num_warps": 4, "num_stages": 3},
    {"BLOCK_T": 128, "BLOCK_O": 128, "BLOCK_I": 64, "num_warps": 8, "num_stages": 3},
    float32=(
        {"BLOCK_T": 16, "BLOCK_O": 32, "BLOCK_I": 64, "num_warps": 4, "num_stages": 2},
        {"BLOCK_T": 32, "BLOCK_O": 32, "BLOCK_I": 64, "num_warps": 4, "num_stages": 2},
    ),
)
@jit(lengths=("T", "T_CLASS"))
def gemm_kernel(
    inputs, values, positions, outputs, T, T_CLASS, O,
    I: tl.constexpr, N: tl.constexpr, M: tl.constexpr, P: tl.constexpr, UPCAST: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """y^T = W x^T, a tile of W unpacked in registers at a time."""
    G: tl.constexpr = BLOCK_I // M
    row = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    token = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    offset, inside = row.to(tl.int64)[:, None], (row < O)[:, None]
    total = tl.zeros([BLOCK_O, BLOCK_T], tl.float32)
    for start in range(0, I, BLOCK_I):
        column = (start + tl.arange(0, BLOCK_I))[:, None]
        x = tl.load(
            inputs + token.to(tl.int64)[None, :] * I + column, mask=(column < I) & (token < T)[None, :], other=0.0
        )
        value, place = load_packed(values, positions, offset, inside, start // M * N, I // M * N, P, G * N)
        stored = tl.reshape(place, (BLOCK_O, G, N, 1)) == tl.arange(0, M)[None, None, None, :]
        dense = tl.sum(tl.where(stored, tl.reshape(value, (BLOCK_O, G, N, 1)), 0.0), 2)  # at most one term is not 0
        dense = tl.reshape(dense, (BLOCK_O, BLOCK_I))
        if UPCAST:  # the interpreter has no bfloat16 arithmetic
            total += tl.dot(dense, x.to(tl.float32), input_precision="ieee")
        else:
            total += tl.dot(dense.to(x.dtype), x, input_precision="ieee")
    tl.store(
        outputs + token.to(tl.int64)[None, :] * O + row[:, None],
        total.to(outputs.dtype.element_ty),
        mask=inside & (token < T)[None, :],
    )


def launch(inputs: Float[Tensor, "*T I"], weight: NofMPacked) -> Float[Tensor, "*T O"]:
    """y = x W^T, like `torch.nn.functional.linear` without a bias."""
    _check(inputs, weight)
    if not runs_kernel(inputs):
        return reference(inputs, weight)
    (n_rows, n_columns), n_tokens = weight.shape, inputs.numel() // weight.shape[1]
    outputs = torch.empty(*inputs.shape[:-1], n_rows, dtype=inputs.dtype, device=inputs.device)
    pointers = (inputs, weight.values, weight.positions, outputs)
    sizes = {"O": n_rows, "I": n_columns, "N": weight.n, "M": weight.m, "P": weight.positions.shape[1]}
    with torch.cuda.device_of(inputs):  # triton launches on the current GPU, which may be another one
        if n_tokens == 1:
            gemv_kernel[lambda meta: (triton.cdiv(n_rows, meta["BLOCK_O"]),)](*pointers, **sizes)
        elif n_tokens:
            # T_CLASS: tuned again when the number of tokens doubles, not for each length of prompt.
            tokens = {"T": n_tokens, "T_CLASS": triton.next_power_of_2(n_tokens), "UPCAST": INTERPRETED}
            gemm_kernel[lambda meta: (triton.cdiv(n_rows, meta["BLOCK_O"]), triton.cdiv(n_tokens, meta["BLOCK_T"]))](
                *pointers, **tokens, **sizes
            )
    return outputs


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
