"""The experts' MLPs for a few tokens: each pair of a token and an expert separately, without sorting pairs by expert.

Dimension key: T tokens, D size of a token, E experts, F hidden units of an expert, k experts per token, P = T * k pairs
of a token and an expert, numbered t * k + place.

One token means products of matrices and a vector: its k experts are read once, and the bytes determine the time. Tiles
per expert, as in grouped_matmul, need sorted pairs at the start and a sum over experts at the end. Here two launches
are enough: one computes the hidden values of each pair, the other reads them for each token, so that a token's experts
are summed where they are multiplied. Pairs that share an expert read it again, from a cache if it is there. So this is
for few pairs.
"""

from __future__ import annotations

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.experts import router_topk
from course_lib.kernels.runtime import cdiv, jit, overlap_of, power_of_two, runs_kernel, tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import silu

MOST_PAIRS = 8  # up to this number, separate pairs are faster than tiles of pairs sorted by expert
AT_A_TIME = 2048  # numbers of a matrix that a program loads before it waits; twice as many if rows take several steps
LONGEST = 2048  # numbers of a row among them
STAGES = 1  # of the loop over longer rows: with so many programs per processor, their loads overlap already
WARPS = 4
# For the tests: a prime number of experts, lengths that are no multiple of a block; k = 1; k = E; rows in two steps.
CASES = (
    {"shape": (3, 7, 40, 24), "k": 2},
    {"shape": (5, 3, 16, 37), "k": 1},
    {"shape": (1, 3, 72, 40), "k": 3},
    {"shape": (1, 2, 2056, 20), "k": 2},
)


def reference(
    inputs: Float[Tensor, "T D"],
    gate_up: Float[Tensor, "E F2 D"],
    down: Float[Tensor, "E D F"],
    weight: Float[Tensor, "T k"],
    expert: Int[Tensor, "T k"],
) -> Float[Tensor, "T D"]:
    """Compute y_t = Σ over its experts of w (silu(G x) ⊙ U x) Dᵀ, in float32."""
    rows = expert.long()
    gate, up = torch.einsum("td,tkfd->tkf", inputs.float(), gate_up[rows].float()).chunk(2, dim=2)
    shares = weight[:, :, None] * (silu(gate) * up)
    return torch.einsum("tkf,tkdf->td", shares, down[rows].float()).to(inputs.dtype)


def bytes_moved(
    inputs: Float[Tensor, "T D"],
    gate_up: Float[Tensor, "E F2 D"],
    down: Float[Tensor, "E D F"],
    weight: Float[Tensor, "T k"],
    expert: Int[Tensor, "T k"],
) -> int:
    """Count the bytes to move at least: used experts, tokens and routing are read once, outputs are written once."""
    an_expert = (gate_up.nbytes + down.nbytes) // len(gate_up)
    return len(expert.unique()) * an_expert + 2 * inputs.nbytes + weight.nbytes + expert.nbytes


@jit
def pair_hidden_kernel(
    inputs, gate_up, expert, hidden, D: tl.constexpr, F: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr,
    OVERLAP: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """hidden = silu(x Gᵀ) ⊙ x Uᵀ of one pair, BLOCK_F units of it."""
    if OVERLAP:  # with the kernels before and after: each is started while the one before it still runs
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    pair, f = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    row = tl.load(expert + pair).to(tl.int64) * 2 * F + f  # of the gate; that of up lies F further
    gate, up = tl.zeros([BLOCK_F, BLOCK_D], tl.float32), tl.zeros([BLOCK_F, BLOCK_D], tl.float32)
    for first in tl.range(0, D, BLOCK_D, num_stages=STAGES):
        d = first + tl.arange(0, BLOCK_D)
        inside = (f < F)[:, None] & (d < D)[None, :]
        at = gate_up + row[:, None] * D + d[None, :]
        of_gate, of_up = tl.load(at, mask=inside, other=0.0), tl.load(at + F * D, mask=inside, other=0.0)
        x = tl.load(inputs + pair // K * D + d, mask=d < D, other=0.0).to(tl.float32)[None, :]
        gate += x * of_gate.to(tl.float32)
        up += x * of_up.to(tl.float32)
    before, times = tl.sum(gate, 1), tl.sum(up, 1)
    value = before / (1 + tl.exp(-before)) * times
    tl.store(hidden + pair * F + f, value.to(hidden.dtype.element_ty), mask=f < F)


@jit
def pair_down_kernel(
    hidden, down, weight, expert, outputs, D: tl.constexpr, F: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr,
    OVERLAP: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """outputs = Σ over a token's experts of w hidden Dᵀ, BLOCK_O numbers of it."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    token, o = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    total = tl.zeros([BLOCK_O, BLOCK_F], tl.float32)
    for k in tl.static_range(K):
        pair = token * K + k
        row = tl.load(expert + pair).to(tl.int64) * D + o
        share = tl.load(weight + pair)
        for first in tl.range(0, F, BLOCK_F, num_stages=STAGES):
            f = first + tl.arange(0, BLOCK_F)
            inside = (o < D)[:, None] & (f < F)[None, :]
            matrix = tl.load(down + row[:, None] * F + f[None, :], mask=inside, other=0.0).to(tl.float32)
            units = tl.load(hidden + pair * F + f, mask=f < F, other=0.0).to(tl.float32)
            total += (share * units)[None, :] * matrix
    tl.store(outputs + token * D + o, tl.sum(total, 1).to(outputs.dtype.element_ty), mask=o < D)


def takes(inputs: Tensor, gate_up: Tensor, down: Tensor, k: int) -> bool:
    """Return whether there are few enough tokens, and the experts' matrices have the layout that the kernel needs."""
    return inputs.shape[0] * k <= MOST_PAIRS and experts_fit(inputs, gate_up, down)


def experts_fit(inputs: Tensor, gate_up: Tensor, down: Tensor) -> bool:
    """Return whether tokens (T, D) and the experts' matrices have one type and matching shapes, and are contiguous."""
    tensors = (inputs, gate_up, down)
    fit = inputs.ndim == 2 and gate_up.ndim == down.ndim == 3 and inputs.shape[1] == down.shape[1]
    fit = fit and gate_up.shape == (down.shape[0], 2 * down.shape[2], down.shape[1])
    fit = fit and inputs.dtype == gate_up.dtype == down.dtype and inputs.device == gate_up.device == down.device
    return fit and all(tensor.is_contiguous() for tensor in tensors)


def launch(
    inputs: Float[Tensor, "T D"],
    gate_up: Float[Tensor, "E F2 D"],
    down: Float[Tensor, "E D F"],
    weight: Float[Tensor, "T k"],
    expert: Int[Tensor, "T k"],
) -> Float[Tensor, "T D"]:
    """Compute the experts' outputs, weighted and summed per token.

    Args:
        gate_up: the gate's F rows, then those of up, of every expert.
        weight, expert: as `router_topk` returns them. Their values are not checked: that would wait for the GPU.
    """
    _check(inputs, gate_up, down, weight, expert)
    if not runs_kernel(inputs) or not len(inputs):
        return reference(inputs, gate_up, down, weight, expert)
    return run(inputs, gate_up, down, weight, expert)


def run(inputs: Tensor, gate_up: Tensor, down: Tensor, weight: Tensor, expert: Tensor) -> Tensor:
    """Run `launch` without its checks, which take as long as a launch: for callers that have called `takes`."""
    (n_tokens, size), (_, _, n_hidden), k = inputs.shape, down.shape, weight.shape[1]
    # In the matrices' type, so that threads load matching parts of both and need not exchange them.
    hidden = torch.empty((n_tokens * k, n_hidden), dtype=inputs.dtype, device=inputs.device)
    outputs = torch.empty((n_tokens, size), dtype=inputs.dtype, device=inputs.device)
    by_size, by_hidden, overlap = _block(size), _block(n_hidden), overlap_of(inputs.device)
    more = overlap | {"num_warps": WARPS}
    with torch.cuda.device_of(inputs):  # triton launches on the current GPU, which may be another one
        # Pairs are adjacent in launch order, so that pairs of one expert read it at the same time.
        pair_hidden_kernel[n_tokens * k, cdiv(n_hidden, by_size[0])](
            inputs, gate_up, expert, hidden, size, n_hidden, k, STAGES, bool(overlap), *by_size, **more
        )
        pair_down_kernel[n_tokens, cdiv(size, by_hidden[0])](
            hidden, down, weight, expert, outputs, size, n_hidden, k, STAGES, bool(overlap), *by_hidden, **more
        )
    return outputs


def _block(length: int) -> tuple[int, int]:
    """Return the rows of a matrix, and the numbers of each row, that a program handles at a time."""
    longest = min(LONGEST, power_of_two(length))
    return (AT_A_TIME if length <= LONGEST else 2 * AT_A_TIME) // longest, longest


def example(
    generator: torch.Generator, dtype: torch.dtype, device: str, shape: tuple[int, int, int, int], k: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Draw random arguments for `launch`, of a shape (T, E, D, F)."""
    where = {"generator": generator, "device": generator.device}
    n_tokens, n_experts, size, n_hidden = shape
    inputs = torch.randn(n_tokens, size, **where).to(device, dtype)
    gate_up = (torch.randn(n_experts, 2 * n_hidden, size, **where) / size**0.5).to(device, dtype)
    down = (torch.randn(n_experts, size, n_hidden, **where) / n_hidden**0.5).to(device, dtype)
    routed = router_topk.reference(torch.randn(n_tokens, n_experts, **where).to(device), k)
    return inputs, gate_up, down, routed.weight, routed.expert


def _check(inputs: Tensor, gate_up: Tensor, down: Tensor, weight: Tensor, expert: Tensor) -> None:
    if inputs.ndim != 2 or down.ndim != 3 or weight.ndim != 2:
        raise ValueError(
            f"inputs have shape {tuple(inputs.shape)}, down {tuple(down.shape)} and weight {tuple(weight.shape)}: "
            "expected (tokens, size), (experts, size, hidden) and (tokens, k); flatten the axes before the last"
        )
    (n_tokens, size), (n_experts, _, n_hidden), k = inputs.shape, down.shape, weight.shape[1]
    check_tensor("inputs", inputs, (n_tokens, size), FLOATS)
    check_tensor("gate_up", gate_up, (n_experts, 2 * n_hidden, size), (inputs.dtype,))
    check_tensor("down", down, (n_experts, size, n_hidden), (inputs.dtype,))
    check_tensor("weight", weight, (n_tokens, k), (torch.float32,))
    check_tensor("expert", expert, (n_tokens, k), (torch.int32,))
    check_device(inputs=inputs, gate_up=gate_up, down=down, weight=weight, expert=expert)
