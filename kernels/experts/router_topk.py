"""Route tokens to experts: the gate's product, the best k, their weights, and the rows that each expert processes.

Dimension key: T tokens, E experts, D size of a token, k experts per token, P = T * k pairs of a token and an expert,
numbered t * k + place.

Each expert needs the list of its pairs, so that its products use adjacent rows: a counting sort by expert. The first
kernel chooses experts and counts them within its tokens. The second kernel turns all counts into places and writes the
pairs there. Nothing is added atomically, so a pair's place is always the same, and the GPU never waits for the host. In
torch this is a softmax, a topk, a division, a sort, a count and a running sum, each with its own pass and launch. The
first kernel also computes the float32 product with the gate, which takes two conversions and a product in torch.

Latency is the limit: k choices one after the other, then the counts of all programs in each program. So few tokens are
spread over many programs, down to one token per program, while many tokens are processed 64 per program.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import INTERPRETED, cdiv, jit, overlap_of, power_of_two, runs_kernel, tl, tuned
from course_lib.kernels.tiles import product
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

# The weight of a chosen expert: a softmax over the chosen ones (Mixtral) or over all of them (Switch, OLMoE), one
# (MoEfication), or its sigmoid divided by the sum over the chosen ones (DeepSeek-V3).
Weights = Literal["chosen", "all", "one", "sigmoid"]

MOST_EXPERTS = 1024  # a program holds all experts of its tokens in registers
TILE = 8192  # maximum number of logits per program at a time
MOST_TOKENS = 64  # of a program, so that few programs read each other's counts
PROGRAMS = 128  # for few tokens: about as many as a GPU has processors
COUNTS, MOST_BLOCKS = 4096, 64  # that are read at a time: so many, of so many blocks
OF_A_WARP = 256  # logits for which 16 warps suffice: a token in one warp needs no other warp to find its best experts
GATE = 16384  # numbers of the gate that a program with one token loads at a time
# For the tests: with a bias, a prime number of experts; fewer tokens than a tile and k = E; k = 1 with ties; two tiles;
# with a gate, one token a program and a tile of tokens, of more numbers than are multiplied at a time.
CASES = (
    {"shape": (19, 7), "k": 2, "biased": True},
    {"shape": (5, 3), "k": 3},
    {"shape": (64, 8), "k": 1, "weights": "all"},
    {"shape": (70, 64), "k": 6},
    {"shape": (1, 37), "k": 4, "weights": "all", "biased": True},
    {"shape": (6, 5), "k": 2, "weights": "sigmoid", "biased": True, "width": 24},
    {"shape": (131, 7), "k": 2, "weights": "one", "width": 136},
    {"shape": (3, 33), "k": 2, "width": 520},
    {"shape": (3, 6), "k": 2, "ordered": False},
)


class Routed(NamedTuple):
    """The experts of each token and the pairs of each expert e: order[offsets[e] : offsets[e + 1]], by token."""

    weight: Float[Tensor, "T k"]  # float32, the largest score first
    expert: Int[Tensor, "T k"]
    order: Int[Tensor, "P"] | None
    offsets: Int[Tensor, "E1"] | None
    logits: Float[Tensor, "T E"] | None = None  # in float32, where there is a gate

    def loads(self) -> Int[Tensor, "E"]:
        """The number of tokens of each expert."""
        return self.offsets.diff()


def reference(
    inputs: Float[Tensor, "T I"],
    k: int,
    weights: Weights = "chosen",
    bias: Float[Tensor, "E"] | None = None,
    gate: Float[Tensor, "E D"] | None = None,
    scaling: float = 1.0,
    ordered: bool = True,
) -> Routed:
    """Compute the same in float32. In ties the lower expert is first. NaN is last and makes its token's weights NaN."""
    logits = inputs.float() if gate is None else inputs.float() @ gate.float().T
    prior = logits.sigmoid() if weights == "sigmoid" else logits.softmax(dim=1)
    score = logits if bias is None and weights != "sigmoid" else prior + (0 if bias is None else bias)
    ranked = score.masked_fill(score.isnan(), float("-inf")).sort(dim=1, descending=True, stable=True).indices
    expert = ranked[:, :k]
    if weights in ("all", "one"):
        weight = prior.gather(1, expert) if weights == "all" else torch.ones_like(expert, dtype=prior.dtype)
    else:
        weight = (logsigmoid(logits) if weights == "sigmoid" else logits).gather(1, expert).softmax(dim=1)
    bad = (logits.isnan() | (logits == float("inf"))).any(dim=1, keepdim=True)
    bad |= (logits == float("-inf")).all(dim=1, keepdim=True)
    weight = (scaling * weight).masked_fill(bad, float("nan"))
    found = Routed(weight, expert.int().contiguous(), None, None, None if gate is None else logits)
    if not ordered:
        return found
    loads = expert.flatten().bincount(minlength=logits.shape[1])
    order, offsets = expert.flatten().sort(stable=True).indices, torch.cat([loads.new_zeros(1), loads.cumsum(0)])
    return found._replace(order=order.int(), offsets=offsets.int())


def bytes_moved(
    inputs: Float[Tensor, "T I"],
    k: int,
    weights: Weights = "chosen",
    bias: Float[Tensor, "E"] | None = None,
    gate: Float[Tensor, "E D"] | None = None,
    scaling: float = 1.0,
    ordered: bool = True,
) -> int:
    """Count the bytes to move at least: inputs, gate and bias are read once; all outputs are written once."""
    n_tokens, n_experts = len(inputs), inputs.shape[1] if gate is None else len(gate)
    read = sum(tensor.nbytes for tensor in (inputs, bias, gate) if tensor is not None)
    written = 8 * n_tokens * k + (4 * n_tokens * k + 4 * (n_experts + 1) if ordered else 0)
    return read + written + (0 if gate is None else 4 * n_tokens * n_experts)


@jit
def product_of_one(inputs, gate, token, D: tl.constexpr, E: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr):
    """The logits of one token, (1, BLOCK_E). Everything is asked for at once, since nothing else is under way."""
    column = tl.arange(0, BLOCK_E)
    total = tl.zeros([BLOCK_E, BLOCK_D], tl.float32)
    for first in range(0, D, BLOCK_D):
        d = first + tl.arange(0, BLOCK_D)
        inside = (column < E)[:, None] & (d < D)[None, :]
        x = tl.load(inputs + token.to(tl.int64) * D + d, mask=d < D, other=0.0).to(tl.float32)
        total += x[None, :] * tl.load(gate + column[:, None] * D + d[None, :], mask=inside, other=0.0).to(tl.float32)
    return tl.sum(total, 1)[None, :]


@jit
def product_of_many(
    inputs, gate, token, T, D: tl.constexpr, E: tl.constexpr, UPCAST: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The logits of BLOCK_T tokens, by tensor cores where the types are 16 bits wide: their sums are in float32."""
    column = tl.arange(0, BLOCK_E)
    total = tl.zeros([BLOCK_T, BLOCK_E], tl.float32)
    for first in range(0, D, BLOCK_D):
        d = first + tl.arange(0, BLOCK_D)
        at = token.to(tl.int64)[:, None] * D + d[None, :]
        x = tl.load(inputs + at, mask=(token < T)[:, None] & (d < D)[None, :], other=0.0)
        inside = (column < E)[None, :] & (d < D)[:, None]
        total += product(x, tl.load(gate + column[None, :] * D + d[:, None], mask=inside, other=0.0), UPCAST)
    return total


@jit(lengths=("T",))
def choose_kernel(
    inputs, gate, bias, logits, weight, expert, places, counts, T, scaling, D: tl.constexpr, E: tl.constexpr,
    K: tl.constexpr, WEIGHTS: tl.constexpr, UPCAST: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The experts of BLOCK_T tokens with their weights, how many of these tokens each expert got, and for each token
    and expert the place from 1 in the order of choice, 0 where it is not chosen: what order_kernel loads in one piece.
    """
    if OVERLAP:  # the next kernel is started while this one still runs, and waits for it
        tl.extra.cuda.gdc_launch_dependents()
    LOWEST: tl.constexpr = -(2**62)
    token, column = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_E)
    row, real = token.to(tl.int64)[:, None], (column < E)[None, :]
    inside = (token < T)[:, None] & real
    if gate is None:
        x = tl.load(inputs + row * E + column[None, :], mask=inside, other=0.0).to(tl.float32)
    else:
        if BLOCK_T == 1:
            x = product_of_one(inputs, gate, tl.program_id(0), D, E, BLOCK_E, BLOCK_D)
        else:
            x = product_of_many(inputs, gate, token, T, D, E, UPCAST, BLOCK_T, BLOCK_E, BLOCK_D)
        tl.store(logits + row * E + column[None, :], x, mask=inside)
    x = tl.where(real, x, float("-inf"))
    exponential = tl.exp(x - tl.max(x, 1)[:, None])
    total = tl.sum(exponential, 1)[:, None]
    score = x
    if WEIGHTS == "sigmoid":
        score = 1 / (1 + tl.exp(-x))
    elif bias is not None:
        score = exponential / total
    if bias is not None:
        score += tl.load(bias + column, mask=column < E, other=0.0)[None, :]
    score = tl.where(score == score, score, float("-inf"))
    # One number says both who is better and, of equals, who comes first: the score's bits, ordered as integers are,
    # above the experts in reverse. So a choice is one maximum instead of a maximum and the first that has it.
    bits = (score + 0.0).to(tl.int32, bitcast=True)  # + 0.0 makes -0.0 equal to 0.0
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    key = tl.where(real, bits * BLOCK_E + (BLOCK_E - 1 - column)[None, :], LOWEST)
    place = tl.zeros([BLOCK_T, BLOCK_E], tl.int32)
    for k in range(K):
        first = key == tl.max(key, 1)[:, None]  # no two keys are equal, except those of experts that are not free
        place = tl.where(first, k + 1, place)
        key = tl.where(first, LOWEST, key)
    chosen = place > 0
    if WEIGHTS == "all":
        share = exponential / total
    elif WEIGHTS == "one":
        share = tl.full([BLOCK_T, BLOCK_E], 1.0, tl.float32)
    else:
        if WEIGHTS == "sigmoid":  # the softmax of its logarithm: sigmoid / sum of sigmoids, even if all are 0
            x = tl.minimum(x, 0.0) - tl.log(1 + tl.exp(-tl.abs(x)))
        level = tl.max(tl.where(chosen, x, float("-inf")), 1)[:, None]
        exponential = tl.where(chosen, tl.exp(x - level), 0.0)
        share = exponential / tl.sum(exponential, 1)[:, None]
    share = tl.where(total == total, scaling * share, float("nan"))
    pair = row * K + place - 1
    tl.store(weight + pair, share, mask=chosen & inside)
    tl.store(expert + pair, tl.where(chosen, column[None, :], 0), mask=chosen & inside)
    if places is not None:
        tl.store(places + row * E + column[None, :], place.to(tl.int16), mask=inside)
        tl.store(counts + tl.program_id(0) * E + column, tl.sum((chosen & inside).to(tl.int32), 0), mask=column < E)


@tuned(["E", "K", "BLOCK_T"], {"num_warps": 4}, {"num_warps": 16})
@jit(lengths=("T", "N_BLOCKS"))
def order_kernel(
    places, counts, order, offsets, T, N_BLOCKS, E: tl.constexpr, K: tl.constexpr, OVERLAP: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """The places of BLOCK_T tokens' pairs: after those of lower experts, of earlier blocks, of earlier tokens."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    block, column = tl.program_id(0), tl.arange(0, BLOCK_E)
    token = block * BLOCK_T + tl.arange(0, BLOCK_T)
    row, real = token.to(tl.int64)[:, None], (column < E)[None, :]
    place = tl.load(places + row * E + column[None, :], mask=(token < T)[:, None] & real, other=0).to(tl.int32)
    # Added up over blocks after the loop: in it, warps would wait for each other.
    all_blocks, before = tl.zeros([BLOCKS, BLOCK_E], tl.int32), tl.zeros([BLOCKS, BLOCK_E], tl.int32)
    for start in tl.range(0, N_BLOCKS, BLOCKS, num_stages=3):
        other = start + tl.arange(0, BLOCKS)
        inside = (other < N_BLOCKS)[:, None] & real
        n = tl.load(counts + other.to(tl.int64)[:, None] * E + column[None, :], mask=inside, other=0)
        all_blocks += n
        before += tl.where((other < block)[:, None], n, 0)
    total, earlier = tl.sum(all_blocks, 0), tl.sum(before, 0)
    end = tl.cumsum(total, 0)
    if block == 0:
        tl.store(offsets + column, end - total, mask=column < E)
        tl.store(offsets + E, tl.sum(total, 0))
    chosen = (place > 0).to(tl.int32)
    target = (end - total + earlier)[None, :] + tl.cumsum(chosen, 0) - chosen
    tl.store(order + target, (row * K + place - 1).to(tl.int32), mask=place > 0)


def takes(inputs: Tensor, gate: Tensor, k: int, bias: Tensor | None = None) -> bool:
    """Return whether the kernel can choose k experts of tokens (T, D) with this gate."""
    fits = inputs.ndim == gate.ndim == 2 and inputs.shape[1] == gate.shape[1] and gate.dtype == inputs.dtype
    fits = fits and 1 <= k <= gate.shape[0] <= MOST_EXPERTS and gate.shape[0] > 1
    if bias is not None:
        fits = fits and bias.dtype == torch.float32 and bias.device == inputs.device and bias.is_contiguous()
        fits = fits and bias.shape == gate.shape[:1]
    return fits and inputs.is_contiguous() and gate.is_contiguous() and gate.device == inputs.device


def launch(
    inputs: Float[Tensor, "T I"],
    k: int,
    weights: Weights = "chosen",
    bias: Float[Tensor, "E"] | None = None,
    gate: Float[Tensor, "E D"] | None = None,
    scaling: float = 1.0,
    ordered: bool = True,
) -> Routed:
    """Return the k best experts of each token, and the pairs of each expert.

    Args:
        inputs: the logits (T, E), or with a gate the tokens (T, D); their logits are then returned, too.
        weights: how the output of a chosen expert is weighted, before the factor `scaling`: see `Weights`.
        bias: added to the scores only for the choice, for example to balance the loads (DeepSeek-V3).
        ordered: False to omit `order` and `offsets`, and the launch that computes them.
    """
    _check(inputs, k, weights, bias, gate)
    if not runs_kernel(inputs) or not len(inputs):
        return reference(inputs, k, weights, bias, gate, scaling, ordered)
    return run(inputs, k, weights, bias, gate, scaling, ordered)


def run(
    inputs: Tensor, k: int, weights: str, bias: Tensor | None, gate: Tensor | None, scaling: float, ordered: bool
) -> Routed:
    """Run `launch` without its checks, which take as long as a launch: for callers that have called `takes`."""
    (n_tokens, width), device = inputs.shape, inputs.device
    n_experts = width if gate is None else gate.shape[0]
    sizes, n_warps = _sizes(n_tokens, n_experts, width, gate is not None, inputs.dtype == torch.float32)
    n_blocks = cdiv(n_tokens, sizes["BLOCK_T"])
    logits = order = offsets = counts = places = None
    weight = torch.empty((n_tokens, k), dtype=torch.float32, device=device)
    expert = torch.empty((n_tokens, k), dtype=torch.int32, device=device)
    if gate is not None:
        logits = torch.empty((n_tokens, n_experts), dtype=torch.float32, device=device)
    if ordered:
        order, offsets, counts = (
            torch.empty(shape, dtype=torch.int32, device=device)
            for shape in ((n_tokens * k,), (n_experts + 1,), (n_blocks, n_experts))
        )
        places = torch.empty((n_tokens, n_experts), dtype=torch.int16, device=device)
    overlap = overlap_of(device)
    with torch.cuda.device_of(inputs):  # triton launches on the current GPU, which may be another one
        choose_kernel[n_blocks,](
            inputs, gate, bias, logits, weight, expert, places, counts, n_tokens, float(scaling), D=width,
            E=n_experts, K=k, WEIGHTS=weights, UPCAST=INTERPRETED, OVERLAP=bool(overlap),
            num_warps=n_warps, **sizes,
        )  # fmt: skip
        if ordered:
            order_kernel[n_blocks,](
                places, counts, order, offsets, n_tokens, n_blocks, E=n_experts, K=k, OVERLAP=bool(overlap),
                BLOCK_T=sizes["BLOCK_T"], BLOCK_E=sizes["BLOCK_E"],
                BLOCKS=min(MOST_BLOCKS, COUNTS // sizes["BLOCK_E"]), **overlap,
            )  # fmt: skip
    return Routed(weight, expert, order, offsets, logits)


def _sizes(n_tokens: int, n_experts: int, width: int, gated: bool, exact: bool) -> tuple[dict[str, int], int]:
    """Return the tokens, experts and numbers of a token per program of choose_kernel at a time, and its warps."""
    block = power_of_two(n_experts)
    n_a_block = min(MOST_TOKENS, TILE // block, power_of_two(cdiv(n_tokens, PROGRAMS)))
    n_warps, at_a_time = min(16, max(1, n_a_block * block // OF_A_WARP)), 1
    if gated and n_a_block == 1:
        at_a_time, n_warps = min(power_of_two(width), max(16, GATE // block)), 8
    elif gated:  # tiles of which tensor cores make products
        n_a_block, block, n_warps = max(16, n_a_block), max(16, block), max(4, n_warps)
        at_a_time = 32 if exact else 128
    return {"BLOCK_T": n_a_block, "BLOCK_E": block, "BLOCK_D": at_a_time}, n_warps


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int],
    k: int,
    weights: str = "chosen",
    biased: bool = False,
    width: int | None = None,
    ordered: bool = True,
) -> tuple[Tensor, int, str, Tensor | None, Tensor | None, float, bool]:
    """Draw random arguments for `launch`: logits (T, E), with ties unless biased; with `width`, tokens and a gate."""
    where = {"generator": generator, "device": generator.device}
    bias = (0.3 * torch.randn(shape[1], **where)).to(device) if biased else None
    if width is not None:
        # Whole numbers, whose sums are exact: rounding then decides no choice, and ties stay ties.
        tokens, gate = (torch.randint(-2, 3, (n, width), **where).to(device, dtype) for n in shape)
        return tokens / 4, k, weights, bias, gate / 4, 2.5, ordered
    logits = torch.randn(shape, **where).to(device, dtype)
    if not biased:
        logits[:, 2::3] = logits[:, 0:-2:3]
    return logits, k, weights, bias, None, 1.0, ordered


def _check(inputs: Tensor, k: int, weights: str, bias: Tensor | None, gate: Tensor | None) -> None:
    if gate is not None and (gate.ndim != 2 or inputs.ndim != 2):
        raise ValueError(
            f"inputs have shape {tuple(inputs.shape)} and gate {tuple(gate.shape)}: expected (tokens, size) and "
            "(experts, size); flatten the axes before the last"
        )
    n_experts = inputs.shape[-1] if gate is None else len(gate)
    if inputs.ndim != 2 or not 2 <= n_experts <= MOST_EXPERTS:
        raise ValueError(
            f"logits have shape {(*inputs.shape[:-1], n_experts)}: expected (tokens, experts), 2 to {MOST_EXPERTS} "
            "experts; flatten the axes before the last, or call reference()"
        )
    if not 1 <= k <= n_experts:
        raise ValueError(f"k={k}: expected 1 to {n_experts}, the number of experts; choose fewer")
    if weights not in get_args(Weights):
        raise ValueError(f"weights={weights!r}: expected one of {', '.join(get_args(Weights))}; choose another")
    check_tensor("inputs", inputs, tuple(inputs.shape), FLOATS)
    if gate is not None:
        check_tensor("gate", gate, (n_experts, inputs.shape[1]), (inputs.dtype,))
    if bias is not None:
        check_tensor("bias", bias, (n_experts,), (torch.float32,))
    check_device(inputs=inputs, **{n: t for n, t in (("bias", bias), ("gate", gate)) if t is not None})
