"""The experts' MLPs, each on its own tokens: gather and SwiGLU, then down, weighted and summed per token.

Dimension key: T tokens, D size of a token, E experts, F hidden units of an expert, k experts per token, P = T * k pairs
of a token and an expert, sorted by expert. In a tile: rows are pairs.

Few tokens are bound by memory: the weights of each expert with a token are read once, so 8 tokens may need as many
bytes as 8000. Many tokens are bound by arithmetic; here this takes P products of a token and an expert, while a dense
layer of all experts takes T * E. A tile belongs to one expert; if an expert's rows end inside a tile, the rest of the
tile is idle.

Only the GPU knows how many tiles each expert needs. So we start as many programs as there can be tiles. Each program
finds its tile from the offsets, and surplus programs end at once: the host never waits.

Few tokens take 10 us of memory traffic and several launches, each of which begins with a chain of loads: offsets,
places, numbers. So each kernel starts while the previous one still runs, and waits when it needs its results.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.experts import router_topk
from course_lib.kernels.experts.pair_matmul import experts_fit
from course_lib.kernels.runtime import INTERPRETED, cdiv, jit, overlap_of, power_of_two, runs_kernel, tl, tuned
from course_lib.kernels.tiles import product
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import silu

JOINED = 256  # numbers of a token that one program sums
# For the tests: a prime number of experts of which two have two tiles, the others none; k = E, whole tiles, and rows
# longer than any setting multiplies at a time.
CASES = ({"shape": (21, 7, 40, 20), "k": 2, "used": 2}, {"shape": (16, 2, 136, 136), "k": 2})


def reference(
    inputs: Float[Tensor, "T D"],
    gate_up: Float[Tensor, "E F2 D"],
    down: Float[Tensor, "E D F"],
    weight: Float[Tensor, "T k"],
    order: Int[Tensor, "P"],
    offsets: Int[Tensor, "E1"],
) -> Float[Tensor, "T D"]:
    """Compute y_t = Σ over its experts of w (silu(G x) ⊙ U x) Dᵀ, expert by expert, in float32."""
    total = torch.zeros(inputs.shape, dtype=torch.float32, device=inputs.device)
    bounds = offsets.tolist()
    for expert, (begin, end) in enumerate(pairwise(bounds)):
        pair = order[begin:end].long()
        token = pair // weight.shape[1]
        gate, up = (inputs[token].float() @ gate_up[expert].float().T).chunk(2, dim=1)
        output = (silu(gate) * up) @ down[expert].float().T
        total.index_add_(0, token, weight.flatten()[pair][:, None] * output)
    return total.to(inputs.dtype)


def bytes_moved(
    inputs: Float[Tensor, "T D"],
    gate_up: Float[Tensor, "E F2 D"],
    down: Float[Tensor, "E D F"],
    weight: Float[Tensor, "T k"],
    order: Int[Tensor, "P"],
    offsets: Int[Tensor, "E1"],
) -> int:
    """Count the bytes to move at least: used experts, tokens and routing are read once, outputs are written once."""
    n_awake = int((offsets.diff() > 0).sum())
    an_expert = (gate_up.nbytes + down.nbytes) // len(gate_up)
    return n_awake * an_expert + 2 * inputs.nbytes + weight.nbytes + order.nbytes + offsets.nbytes


@jit
def rows_of_tile(offsets, tile, E: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_T: tl.constexpr):
    """The expert of a tile (E or more: there is no such tile), its first row, and the end of the expert's rows."""
    column = tl.arange(0, BLOCK_E)
    begin = tl.load(offsets + column, mask=column < E, other=0)
    end = tl.load(offsets + 1 + column, mask=column < E, other=0)
    n_tiles = (end - begin + BLOCK_T - 1) // BLOCK_T
    last = tl.cumsum(n_tiles, 0)
    expert = tl.sum((last <= tile).to(tl.int32), 0)
    mine = column == expert
    start = tl.sum(tl.where(mine, begin + (tile - last + n_tiles) * BLOCK_T, 0), 0)
    return expert, start, tl.sum(tl.where(mine, end, 0), 0)


def promising(setting: dict[str, int], E: int, P_CLASS: int, **others: object) -> bool:
    """Accept tiles from half of an expert's mean number of rows to twice as many."""
    rows = min(128, max(8, P_CLASS / E))
    return rows / 2 <= setting["BLOCK_T"] <= 2 * rows


@tuned(
    ["E", "D", "F", "P_CLASS"],
    {"BLOCK_T": 16, "BLOCK_F": 32, "BLOCK_I": 128, "num_warps": 4, "num_stages": 4},
    {"BLOCK_T": 32, "BLOCK_F": 64, "BLOCK_I": 128, "num_warps": 4, "num_stages": 3},
    {"BLOCK_T": 64, "BLOCK_F": 64, "BLOCK_I": 64, "num_warps": 4, "num_stages": 3},
    {"BLOCK_T": 128, "BLOCK_F": 128, "BLOCK_I": 64, "num_warps": 8, "num_stages": 4},
    float32=({"BLOCK_T": 16, "BLOCK_F": 32, "BLOCK_I": 32, "num_warps": 4, "num_stages": 2},),
    promising=promising,
)
@jit(lengths=("P_CLASS",))
def swiglu_kernel(
    inputs, gate_up, order, offsets, hidden, P_CLASS, E: tl.constexpr, D: tl.constexpr, F: tl.constexpr,
    K: tl.constexpr, UPCAST: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_F: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """hidden = silu(x Gᵀ) ⊙ x Uᵀ of the tokens of one expert's rows, which are gathered while they are loaded."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    expert, start, end = rows_of_tile(offsets, tl.program_id(0), E, BLOCK_E, BLOCK_T)
    if expert < E:
        row, f = start + tl.arange(0, BLOCK_T), tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
        token = tl.load(order + row, mask=row < end, other=0).to(tl.int64) // K
        unit = (expert.to(tl.int64) * 2 * F + f)[None, :]  # a row of the gate; that of up lies F further
        gate, up = tl.zeros([BLOCK_T, BLOCK_F], tl.float32), tl.zeros([BLOCK_T, BLOCK_F], tl.float32)
        for first in range(0, D, BLOCK_I):
            d = first + tl.arange(0, BLOCK_I)
            x = tl.load(
                inputs + token[:, None] * D + d[None, :], mask=(row < end)[:, None] & (d < D)[None, :], other=0.0
            )
            inside = (d < D)[:, None] & (f < F)[None, :]
            gate += product(x, tl.load(gate_up + unit * D + d[:, None], mask=inside, other=0.0), UPCAST)
            up += product(x, tl.load(gate_up + (unit + F) * D + d[:, None], mask=inside, other=0.0), UPCAST)
        value = gate / (1 + tl.exp(-gate)) * up
        tl.store(
            hidden + row.to(tl.int64)[:, None] * F + f[None, :],
            value.to(hidden.dtype.element_ty),
            mask=(row < end)[:, None] & (f < F)[None, :],
        )


@tuned(
    ["E", "D", "F", "P_CLASS"],
    {"BLOCK_T": 16, "BLOCK_O": 32, "BLOCK_F": 128, "num_warps": 4, "num_stages": 4},
    {"BLOCK_T": 32, "BLOCK_O": 64, "BLOCK_F": 128, "num_warps": 4, "num_stages": 3},
    {"BLOCK_T": 64, "BLOCK_O": 128, "BLOCK_F": 64, "num_warps": 4, "num_stages": 4},
    {"BLOCK_T": 128, "BLOCK_O": 256, "BLOCK_F": 64, "num_warps": 8, "num_stages": 4},
    float32=({"BLOCK_T": 16, "BLOCK_O": 32, "BLOCK_F": 32, "num_warps": 4, "num_stages": 2},),
    promising=promising,
)
@jit(lengths=("P_CLASS",))
def down_kernel(
    hidden, down, weight, order, offsets, parts, P_CLASS, E: tl.constexpr, D: tl.constexpr, F: tl.constexpr,
    UPCAST: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_O: tl.constexpr,
    BLOCK_F: tl.constexpr,
):  # fmt: skip
    """parts = w hidden Dᵀ, written where the pair belongs, not where it was sorted to."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    expert, start, end = rows_of_tile(offsets, tl.program_id(0), E, BLOCK_E, BLOCK_T)
    if expert < E:
        row, o = start + tl.arange(0, BLOCK_T), tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
        pair = tl.load(order + row, mask=row < end, other=0).to(tl.int64)
        line = (expert.to(tl.int64) * D + o)[None, :]
        total = tl.zeros([BLOCK_T, BLOCK_O], tl.float32)
        for first in range(0, F, BLOCK_F):
            f = first + tl.arange(0, BLOCK_F)
            units = tl.load(
                hidden + row.to(tl.int64)[:, None] * F + f[None, :],
                mask=(row < end)[:, None] & (f < F)[None, :],
                other=0.0,
            )
            inside = (f < F)[:, None] & (o < D)[None, :]
            total += product(units, tl.load(down + line * F + f[:, None], mask=inside, other=0.0), UPCAST)
        share = tl.load(weight + pair, mask=row < end, other=0.0)
        tl.store(
            parts + pair[:, None] * D + o[None, :],
            (total * share[:, None]).to(parts.dtype.element_ty),
            mask=(row < end)[:, None] & (o < D)[None, :],
        )


@jit
def join_kernel(parts, outputs, D: tl.constexpr, K: tl.constexpr, OVERLAP: tl.constexpr, BLOCK: tl.constexpr):
    """A token's output: the sum over its experts, in the order in which they were chosen."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    token, d = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for k in range(K):
        total += tl.load(parts + (token * K + k) * D + d, mask=d < D, other=0.0).to(tl.float32)
    tl.store(outputs + token * D + d, total.to(outputs.dtype.element_ty), mask=d < D)


def takes(inputs: Tensor, gate_up: Tensor, down: Tensor) -> bool:
    """Return whether the experts' matrices have the layout that the kernel needs."""
    return experts_fit(inputs, gate_up, down)


def launch(
    inputs: Float[Tensor, "T D"],
    gate_up: Float[Tensor, "E F2 D"],
    down: Float[Tensor, "E D F"],
    weight: Float[Tensor, "T k"],
    order: Int[Tensor, "P"],
    offsets: Int[Tensor, "E1"],
) -> Float[Tensor, "T D"]:
    """Compute the experts' outputs, weighted and summed per token; all tokens are routed, none is dropped.

    Args:
        gate_up: the gate's F rows, then those of up, of every expert.
        weight, order, offsets: as `router_topk` returns them. The values are not checked: that would wait for the GPU.
    """
    _check(inputs, gate_up, down, weight, order, offsets)
    if not runs_kernel(inputs) or not len(inputs):
        return reference(inputs, gate_up, down, weight, order, offsets)
    return run(inputs, gate_up, down, weight, order, offsets)


def run(inputs: Tensor, gate_up: Tensor, down: Tensor, weight: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    """Run `launch` without its checks, which take as long as a launch: for callers that have called `takes`."""
    (n_tokens, size), (n_experts, _, n_hidden), n_pairs = inputs.shape, down.shape, order.shape[0]
    hidden = torch.empty((n_pairs, n_hidden), dtype=inputs.dtype, device=inputs.device)
    parts = torch.empty((n_pairs, size), dtype=inputs.dtype, device=inputs.device)  # twice as many bytes in float32
    outputs = torch.empty((n_tokens, size), dtype=inputs.dtype, device=inputs.device)
    sizes = {"E": n_experts, "D": size, "F": n_hidden, "BLOCK_E": power_of_two(n_experts)}
    overlap = overlap_of(inputs.device)
    sizes |= {"P_CLASS": power_of_two(n_pairs), "UPCAST": INTERPRETED, "OVERLAP": bool(overlap)}

    def tiles(meta: dict[str, int]) -> int:
        return min(n_pairs, cdiv(n_pairs, meta["BLOCK_T"]) + n_experts)  # each expert ends in one more, at most

    with torch.cuda.device_of(inputs):  # triton launches on the current GPU, which may be another one
        swiglu_kernel[lambda meta: (tiles(meta), cdiv(n_hidden, meta["BLOCK_F"]))](
            inputs, gate_up, order, offsets, hidden, K=weight.shape[1], **sizes, **overlap
        )
        down_kernel[lambda meta: (tiles(meta), cdiv(size, meta["BLOCK_O"]))](
            hidden, down, weight, order, offsets, parts, **sizes, **overlap
        )
        join_kernel[n_tokens, cdiv(size, JOINED)](
            parts, outputs, D=size, K=weight.shape[1], OVERLAP=bool(overlap), BLOCK=JOINED, **overlap
        )
    return outputs


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int, int, int],
    k: int,
    used: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Draw random arguments for `launch`, of a shape (T, E, D, F); only the first `used` experts get tokens."""
    where = {"generator": generator, "device": generator.device}
    n_tokens, n_experts, size, n_hidden = shape
    inputs = torch.randn(n_tokens, size, **where).to(device, dtype)
    gate_up = (torch.randn(n_experts, 2 * n_hidden, size, **where) / size**0.5).to(device, dtype)
    down = (torch.randn(n_experts, size, n_hidden, **where) / n_hidden**0.5).to(device, dtype)
    logits = torch.randn(n_tokens, n_experts, **where)
    logits[:, used or n_experts :] = float("-inf")
    routed = router_topk.reference(logits.to(device), k)
    return inputs, gate_up, down, routed.weight, routed.order, routed.offsets


def _check(inputs: Tensor, gate_up: Tensor, down: Tensor, weight: Tensor, order: Tensor, offsets: Tensor) -> None:
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
    check_tensor("order", order, (n_tokens * k,), (torch.int32,))
    check_tensor("offsets", offsets, (n_experts + 1,), (torch.int32,))
    check_device(inputs=inputs, gate_up=gate_up, down=down, weight=weight, order=order, offsets=offsets)
