"""An MLP for a token that needs only few neurons: gate, up, activation and down of these neurons.

Liu, Wang, Dao and others, 2023, Deja Vu, https://arxiv.org/abs/2310.17157 (section 4.4: its kernels for sparse MLPs).

Dimension key: T tokens that share one choice, D width, F neurons, K of them chosen, P parts that these are split into.
All three matrices are neuron-major: row f of `gate`, `up` and `down` belongs to neuron f, so `down` is the transpose of
the usual one. In a tile: rows are neurons.

One token is bound by memory, so the rows that are read determine the time: 3 K D of 3 F D numbers. A program processes
its part of the neurons one after another, loads the three rows of each at the same time, and keeps the sum in
registers; a last kernel joins the parts, of 4 T D bytes each, which fit into a cache. Deviation: the paper's code runs
two kernels with the hidden values in between. Here only the case of a few tokens does so: tensor cores multiply tiles
of neurons, and the hidden values are rounded to the type of the inputs.
"""

from __future__ import annotations

from typing import Literal

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import INTERPRETED, jit, overlap_of, programs_to_fill, runs_kernel, tl, triton, tuned
from course_lib.kernels.tiles import join_blocks, join_kernel, product
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import relu, silu

MOST_TOKENS = 16  # one tile of a tensor core; more tokens with one choice are a product of matrices
PROGRAMS = 8  # without a GPU
COLUMNS = 128  # of `down` per program of the first setting, which determines the number of parts
FEWEST, MOST = 64, 2048  # neurons of a part: fewer are not worth the sum; more indices do not fit on chip
ROOM = 128  # minimum number of indices per program, as many as the largest BLOCK_K
CURVES = {"silu": silu, "relu": relu}
# For the tests: an odd number of neurons; few tokens, two parts, ragged tiles; one neuron, no gate; all neurons; none.
CASES = (
    {"shape": (1, 200, 61), "n_chosen": 37},
    {"shape": (3, 300, 170), "n_chosen": 150, "gated": False, "activation": "relu"},
    {"shape": (1, 40, 9), "n_chosen": 1, "gated": False, "biased": True, "activation": "relu"},
    {"shape": (16, 64, 32), "n_chosen": 32, "biased": True},
    {"shape": (2, 24, 5), "n_chosen": 0},
)
Activation = Literal["silu", "relu"]


def reference(
    inputs: Float[Tensor, "T D"],
    gate: Float[Tensor, "F D"] | None,
    up: Float[Tensor, "F D"],
    down: Float[Tensor, "F D"],
    chosen: Int[Tensor, "K"],
    activation: Activation = "silu",
    bias: Float[Tensor, "F"] | None = None,
) -> Float[Tensor, "T D"]:
    """Compute y = Σ_{f in chosen} h_f down_f in float32; h_f = a(gate_f x) (up_f x + b_f), ungated a(up_f x + b_f)."""
    x, rows = inputs.float(), chosen.long()
    hidden = x @ up[rows].float().T + (0 if bias is None else bias[rows].float())
    curve = CURVES[activation]
    hidden = curve(hidden) if gate is None else curve(x @ gate[rows].float().T) * hidden
    return (hidden @ down[rows].float()).to(inputs.dtype)


def bytes_moved(
    inputs: Float[Tensor, "T D"],
    gate: Float[Tensor, "F D"] | None,
    up: Float[Tensor, "F D"],
    down: Float[Tensor, "F D"],
    chosen: Int[Tensor, "K"],
    activation: Activation = "silu",
    bias: Float[Tensor, "F"] | None = None,
) -> int:
    """Count the chosen neurons' rows (3 K D numbers, 2 K D without a gate) and biases, indices, inputs and outputs."""
    a_neuron = sum(matrix[0].nbytes for matrix in (gate, up, down, bias) if matrix is not None)
    return len(chosen) * a_neuron + chosen.nbytes + 2 * inputs.nbytes


@jit
def curved(x, RELU: tl.constexpr):
    """The activation; NaN stays NaN."""
    if RELU:
        return tl.where(x < 0, 0.0, x)
    return x / (1 + tl.exp(-x))


@tuned(
    ["D", "K_CLASS"],
    {"BLOCK_K": 1, "STAGES": 3, "num_warps": 8},
    {"BLOCK_K": 1, "STAGES": 4, "num_warps": 4},
    {"BLOCK_K": 4, "STAGES": 1, "num_warps": 8},
)
@jit(lengths=("K", "PART"))
def one_kernel(
    inputs, gate, up, down, bias, chosen, parts, K, PART, K_CLASS: tl.constexpr, D: tl.constexpr,
    RELU: tl.constexpr, OVERLAP: tl.constexpr, ROOM: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """What PART neurons add to one token's output, which stays in registers."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    start = tl.program_id(0) * PART
    end = tl.minimum(start + PART, K)
    every, d = tl.arange(0, ROOM), tl.arange(0, BLOCK_D)
    # Once, for a row that waits in the loop for its index to come from memory would be asked for too late.
    mine = tl.load(chosen + start + every, mask=start + every < end, other=0)
    x = tl.load(inputs + d, mask=d < D, other=0.0).to(tl.float32)[None, :]
    total = tl.zeros([BLOCK_D], tl.float32)
    for first in tl.range(start, end, BLOCK_K, num_stages=STAGES):
        k = first + tl.arange(0, BLOCK_K)
        # Loads run ahead of the end, and their indices with them: those must not leave the tile.
        neuron = tl.gather(mine, tl.minimum(k - start, ROOM - 1), 0).to(tl.int64)
        at, inside = neuron[:, None] * D + d[None, :], (k < end)[:, None] & (d < D)[None, :]
        # All rows are asked for before the first is waited for: that of `down` does not depend on its factor.
        by_up = tl.load(up + at, mask=inside, other=0.0)
        by_gate = by_up if gate is None else tl.load(gate + at, mask=inside, other=0.0)
        back = tl.load(down + at, mask=inside, other=0.0)
        both = tl.join(by_up.to(tl.float32) * x, by_gate.to(tl.float32) * x)
        hidden, before = tl.split(tl.sum(both, 1))  # one sum across threads, which wait for each other, instead of two
        if bias is not None:
            hidden += tl.load(bias + neuron, mask=k < end, other=0.0).to(tl.float32)
        hidden = curved(hidden, RELU) if gate is None else curved(before, RELU) * hidden
        hidden = tl.where(k < end, hidden, 0.0)[:, None]  # infinite inputs made NaN of the rows that are not there
        total += tl.sum(hidden * back.to(tl.float32), 0)
    tl.store(parts + tl.program_id(0).to(tl.int64) * D + d, total, mask=d < D)


@tuned(
    ["D", "K_CLASS"],
    {"BLOCK_K": 64, "BLOCK_D": 64, "num_warps": 4, "num_stages": 5},
    {"BLOCK_K": 32, "BLOCK_D": 256, "num_warps": 4, "num_stages": 3},
    {"BLOCK_K": 16, "BLOCK_D": 512, "num_warps": 4, "num_stages": 3},
    {"BLOCK_K": 16, "BLOCK_D": 256, "num_warps": 2, "num_stages": 4},
    float32=({"BLOCK_K": 16, "BLOCK_D": 32, "num_warps": 4, "num_stages": 2},),
)
@jit(lengths=("K",))
def hidden_kernel(
    inputs, gate, up, bias, chosen, hidden, K, K_CLASS: tl.constexpr, T: tl.constexpr, D: tl.constexpr,
    RELU: tl.constexpr, UPCAST: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Values of BLOCK_K neurons for a few tokens, by tensor cores. What stands for tokens up to BLOCK_T is not used."""
    k, t = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_T)
    neuron = tl.load(chosen + k, mask=k < K, other=0).to(tl.int64)
    by_up, by_gate = tl.zeros([BLOCK_K, BLOCK_T], tl.float32), tl.zeros([BLOCK_K, BLOCK_T], tl.float32)
    for first in range(0, D, BLOCK_D):
        d = first + tl.arange(0, BLOCK_D)
        at, inside = neuron[:, None] * D + d[None, :], (k < K)[:, None] & (d < D)[None, :]
        x = tl.load(inputs + t[None, :] * D + d[:, None], mask=(t < T)[None, :] & (d < D)[:, None], other=0.0)
        by_up += product(tl.load(up + at, mask=inside, other=0.0), x, UPCAST)
        if gate is not None:
            by_gate += product(tl.load(gate + at, mask=inside, other=0.0), x, UPCAST)
    if bias is not None:
        by_up += tl.load(bias + neuron, mask=k < K, other=0.0).to(tl.float32)[:, None]
    value = curved(by_up, RELU) if gate is None else curved(by_gate, RELU) * by_up
    at = hidden + k.to(tl.int64)[:, None] * BLOCK_T + t[None, :]
    tl.store(at, value.to(hidden.dtype.element_ty), mask=(k < K)[:, None])


@tuned(
    ["D", "K_CLASS"],
    {"BLOCK_K": 64, "BLOCK_D": 128, "num_warps": 4, "num_stages": 4},
    {"BLOCK_K": 128, "BLOCK_D": 64, "num_warps": 4, "num_stages": 4},
    {"BLOCK_K": 32, "BLOCK_D": 256, "num_warps": 8, "num_stages": 4},
    float32=({"BLOCK_K": 16, "BLOCK_D": 32, "num_warps": 4, "num_stages": 2},),
)
@jit(lengths=("K", "PART"))
def down_kernel(
    hidden, down, chosen, parts, K, PART, K_CLASS: tl.constexpr, T: tl.constexpr, D: tl.constexpr,
    UPCAST: tl.constexpr, ROOM: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """What PART neurons add to a few columns of the tokens' outputs."""
    d, t = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_T)
    start = tl.program_id(1) * PART
    end = tl.minimum(start + PART, K)
    every = tl.arange(0, ROOM)
    mine = tl.load(chosen + start + every, mask=start + every < end, other=0)
    total = tl.zeros([BLOCK_T, BLOCK_D], tl.float32)
    for first in range(start, end, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        neuron = tl.gather(mine, tl.minimum(k - start, ROOM - 1), 0).to(tl.int64)
        value = tl.load(hidden + k.to(tl.int64)[:, None] * BLOCK_T + t[None, :], mask=(k < end)[:, None], other=0.0)
        at, inside = neuron[:, None] * D + d[None, :], (k < end)[:, None] & (d < D)[None, :]
        total += product(tl.trans(value), tl.load(down + at, mask=inside, other=0.0), UPCAST)
    row = (tl.program_id(1).to(tl.int64) * T + t)[:, None]
    tl.store(parts + row * D + d[None, :], total, mask=(t < T)[:, None] & (d < D)[None, :])


def takes(inputs: Tensor, gate: Tensor, up: Tensor, down: Tensor, activation: str) -> bool:
    """Return whether the kernel computes an MLP with these matrices; without a gate, `gate` may be `up`."""
    one_type = inputs.dtype == gate.dtype == up.dtype == down.dtype
    contiguous = all(matrix.is_contiguous() for matrix in (inputs, gate, up, down))
    return activation in CURVES and one_type and contiguous and gate.shape == up.shape == down.shape


def launch(
    inputs: Float[Tensor, "T D"],
    gate: Float[Tensor, "F D"] | None,
    up: Float[Tensor, "F D"],
    down: Float[Tensor, "F D"],
    chosen: Int[Tensor, "K"],
    activation: Activation = "silu",
    bias: Float[Tensor, "F"] | None = None,
) -> Float[Tensor, "T D"]:
    """Compute the output of the chosen neurons for a few tokens; zeros if none is chosen.

    Args:
        gate: None if the activation applies to `up` (OPT), as in any MLP of two matrices.
        chosen: in any order. On a GPU the values are not checked, because that would wait for the GPU.
        bias: of `up`. The bias of `down` belongs to no neuron, so the caller adds it.
    """
    _check(inputs, gate, up, down, chosen, activation, bias)
    (n_tokens, size), n_chosen = inputs.shape, len(chosen)
    if not runs_kernel(inputs) or not inputs.numel() or not n_chosen:
        return reference(inputs, gate, up, down, chosen, activation, bias)
    per_part = _neurons_of_a_part(n_chosen, n_tokens, size, inputs.device)
    n_parts = triton.cdiv(n_chosen, per_part)
    parts = torch.empty((n_parts, n_tokens, size), dtype=torch.float32, device=inputs.device)
    outputs = torch.empty((n_tokens, size), dtype=inputs.dtype, device=inputs.device)
    sizes = {"K": n_chosen, "K_CLASS": triton.next_power_of_2(n_chosen), "D": size}
    share = {"PART": per_part, "ROOM": max(ROOM, triton.next_power_of_2(per_part))}
    curve, overlap = {"RELU": activation == "relu"}, overlap_of(inputs.device) if n_tokens == 1 else {}
    with torch.cuda.device_of(inputs):  # triton launches on the current GPU, which may be another one
        if n_tokens == 1:
            block = triton.next_power_of_2(size)
            one_kernel[n_parts,](
                inputs, gate, up, down, bias, chosen, parts, **sizes, **share, **curve, **overlap,
                OVERLAP=bool(overlap), BLOCK_D=block,
            )  # fmt: skip
        else:
            hidden = torch.empty((n_chosen, MOST_TOKENS), dtype=inputs.dtype, device=inputs.device)
            sizes |= {"T": n_tokens, "BLOCK_T": MOST_TOKENS, "UPCAST": INTERPRETED}
            hidden_kernel[lambda meta: (triton.cdiv(n_chosen, meta["BLOCK_K"]),)](
                inputs, gate, up, bias, chosen, hidden, **sizes, **curve
            )
            down_kernel[lambda meta: (triton.cdiv(size, meta["BLOCK_D"]), n_parts)](
                hidden, down, chosen, parts, **sizes, **share
            )
        n_numbers = n_tokens * size
        blocks = join_blocks(n_parts, n_numbers)
        join_kernel[triton.cdiv(n_numbers, blocks["BLOCK_N"]),](
            parts, outputs, P=n_parts, N=n_numbers, OVERLAP=bool(overlap), **blocks, **overlap
        )
    return outputs


def _neurons_of_a_part(n_chosen: int, n_tokens: int, size: int, device: torch.device) -> int:
    """Return so few neurons that the programs keep a GPU busy: two for each of its multiprocessors."""
    n_programs = programs_to_fill(device, 2, PROGRAMS)
    if n_tokens == 1:
        return min(MOST, triton.cdiv(n_chosen, n_programs))
    most_parts = max(1, n_programs // triton.cdiv(size, COLUMNS))
    return max(FEWEST, min(MOST, triton.cdiv(n_chosen, most_parts)))


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int, int],
    n_chosen: int,
    gated: bool = True,
    biased: bool = False,
    activation: Activation = "silu",
) -> tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor, Activation, Tensor | None]:
    """Draw random arguments for `launch`, of a shape (T, D, F), with `n_chosen` neurons in any order."""
    where = {"generator": generator, "device": generator.device}
    n_tokens, size, n_neurons = shape
    inputs = torch.randn(n_tokens, size, **where).to(device, dtype)
    gate, up = ((torch.randn(n_neurons, size, **where) / size**0.5).to(device, dtype) for _ in range(2))
    down = (torch.randn(n_neurons, size, **where) / n_neurons**0.5).to(device, dtype)
    chosen = torch.randperm(n_neurons, **where)[:n_chosen].to(device, torch.int32)
    bias = (0.3 * torch.randn(n_neurons, **where)).to(device, dtype) if biased else None
    return inputs, gate if gated else None, up, down, chosen, activation, bias


def _check(
    inputs: Tensor,
    gate: Tensor | None,
    up: Tensor,
    down: Tensor,
    chosen: Tensor,
    activation: str,
    bias: Tensor | None,
) -> None:
    if activation not in CURVES:
        raise ValueError(f"activation={activation!r}: expected one of {', '.join(CURVES)}; call the matrices yourself")
    if inputs.ndim != 2 or up.ndim != 2 or chosen.ndim != 1:
        raise ValueError(
            f"inputs have shape {tuple(inputs.shape)}, up {tuple(up.shape)} and chosen {tuple(chosen.shape)}: expected "
            "(tokens, width), (neurons, width) and (chosen,); one choice is for all tokens of a call"
        )
    (n_tokens, size), n_neurons = inputs.shape, len(up)
    if n_tokens > MOST_TOKENS:
        raise ValueError(f"got {n_tokens} tokens: expected at most {MOST_TOKENS}; call reference() for more")
    check_tensor("inputs", inputs, (n_tokens, size), FLOATS)
    tensors = {"gate": gate, "up": up, "down": down, "bias": bias}
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    for name, tensor in tensors.items():
        check_tensor(name, tensor, (n_neurons,) if name == "bias" else (n_neurons, size), (inputs.dtype,))
    check_tensor("chosen", chosen, (len(chosen),), (torch.int32,))
    check_device(inputs=inputs, chosen=chosen, **tensors)
    if chosen.device.type == "cpu" and len(chosen) and not 0 <= int(chosen.min()) <= int(chosen.max()) < n_neurons:
        raise ValueError(
            f"chosen goes from {int(chosen.min())} to {int(chosen.max())}: expected 0 to {n_neurons - 1}, indices of "
            "neurons; check which layer they were chosen for"
        )
