"""Route tokens to experts: softmax, the best k, their weights, and which rows each expert works on.

Dimension key: T tokens, E experts, k experts a token, P = T * k pairs of a token and an expert, numbered t * k + place.

What an expert needs is the list of its pairs, so that its products are over neighbouring rows: a counting sort by
expert. One kernel chooses and counts within its tokens; a second turns all counts into places and writes the pairs
there. Nothing is added atomically, so a pair's place is always the same, and nobody waits for the host. In torch this
is a softmax, a topk, a division, a sort, a count and a running sum, each a pass and a launch of its own.

What bounds it is latency: k choices one after the other, then the counts of all programs in each. So few tokens are
spread over many programs, down to one each, while many tokens are 64 to a program.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from course_lib.kernels.checks import FLOATS, check_device, check_tensor
from course_lib.kernels.runtime import jit, runs_kernel, tl, triton, tuned
from jaxtyping import Float, Int
from torch import Tensor

MOST_EXPERTS = 1024  # a program has all experts of its tokens in registers
TILE = 8192  # logits that it has at a time, at most
MOST_TOKENS = 64  # of a program, so that few programs read each other's counts
PROGRAMS = 128  # where there are few tokens: about as many as a GPU has processors
COUNTS, MOST_BLOCKS = 4096, 64  # that are read at a time: so many, of so many blocks
OF_A_WARP = 256  # logits, where 16 warps suffice: a token in one warp needs no other to find its best experts
# For the tests: with a bias, a prime number of experts; fewer tokens than a tile and k = E; k = 1 with ties; two tiles.
CASES = (
    {"shape": (19, 7), "k": 2, "biased": True},
    {"shape": (5, 3), "k": 3},
    {"shape": (64, 8), "k": 1, "renormalise": False},
    {"shape": (70, 64), "k": 6},
    {"shape": (1, 37), "k": 4, "renormalise": False, "biased": True},
)


class Routed(NamedTuple):
    """Who works on what. Of expert e these are the pairs order[offsets[e] : offsets[e + 1]], by token."""

    weight: Float[Tensor, "T k"]  # float32, the largest score first
    expert: Int[Tensor, "T k"]
    order: Int[Tensor, "P"]
    offsets: Int[Tensor, "E1"]

    def loads(self) -> Int[Tensor, "E"]:
        """Tokens of each expert."""
        return self.offsets.diff()


def reference(
    logits: Float[Tensor, "T E"], k: int, renormalise: bool = True, bias: Float[Tensor, "E"] | None = None
) -> Routed:
    """In float32. Equal scores: the lower expert first. NaN comes last, and makes all weights of its token NaN."""
    logits = logits.float()
    prior = logits.softmax(dim=1)
    score = logits if bias is None else prior + bias
    ranked = score.masked_fill(score.isnan(), float("-inf")).sort(dim=1, descending=True, stable=True).indices
    expert = ranked[:, :k]
    weight = logits.gather(1, expert).softmax(dim=1) if renormalise else prior.gather(1, expert)
    weight = weight.masked_fill(prior.isnan().any(dim=1, keepdim=True), float("nan"))
    order = expert.flatten().sort(stable=True).indices
    loads = expert.flatten().bincount(minlength=logits.shape[1])
    offsets = torch.cat([loads.new_zeros(1), loads.cumsum(0)])
    return Routed(weight, expert.int().contiguous(), order.int(), offsets.int())


def bytes_moved(
    logits: Float[Tensor, "T E"], k: int, renormalise: bool = True, bias: Float[Tensor, "E"] | None = None
) -> int:
    """Logits and bias read once; of each pair a weight, an expert and a place written once; the offsets."""
    read = logits.nbytes + (0 if bias is None else bias.nbytes)
    return read + 12 * len(logits) * k + 4 * (logits.shape[1] + 1)


@jit(lengths=("T",))
def choose_kernel(
    logits, bias, weight, expert, places, counts, T, E: tl.constexpr, K: tl.constexpr, RENORMALISE: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """The experts of BLOCK_T tokens with their weights, how many of these tokens each expert got, and for each token
    and expert the place from 1 in the order of choice, 0 where it is not chosen: what order_kernel loads in one piece.
    """
    LOWEST: tl.constexpr = -(2**62)
    token, column = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_E)
    row, real = token.to(tl.int64)[:, None], (column < E)[None, :]
    inside = (token < T)[:, None] & real
    x = tl.load(logits + row * E + column[None, :], mask=inside, other=0.0).to(tl.float32)
    x = tl.where(real, x, float("-inf"))
    exponential = tl.exp(x - tl.max(x, 1)[:, None])
    total = tl.sum(exponential, 1)[:, None]
    score = x
    if bias is not None:
        score = exponential / total + tl.load(bias + column, mask=column < E, other=0.0)[None, :]
    score = tl.where(score == score, score, float("-inf"))
    # One number says both who is better and, of equals, who comes first: the score's bits, ordered as integers are,
    # above the experts in reverse. So a choice is one maximum instead of a maximum and the first that has it.
    bits = (score + 0.0).to(tl.int32, bitcast=True)  # + 0.0 makes -0.0 equal to 0.0
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    key = tl.where(real, bits * BLOCK_E + (BLOCK_E - 1 - column)[None, :], LOWEST)
    place = tl.zeros([BLOCK_T, BLOCK_E], tl.int32)
    for k in range(K):
        first = key == tl.max(key, 1)[:, None]  # no two keys are equal, but for those of experts that are not free
        place = tl.where(first, k + 1, place)
        key = tl.where(first, LOWEST, key)
    chosen = place > 0
    if RENORMALISE:
        level = tl.max(tl.where(chosen, x, float("-inf")), 1)[:, None]
        exponential = tl.where(chosen, tl.exp(x - level), 0.0)
        share = exponential / tl.sum(exponential, 1)[:, None]
    else:
        share = exponential / total
    share = tl.where(total == total, share, float("nan"))
    pair = row * K + place - 1
    tl.store(weight + pair, share, mask=chosen & inside)
    tl.store(expert + pair, tl.where(chosen, column[None, :], 0), mask=chosen & inside)
    tl.store(places + row * E + column[None, :], place.to(tl.int16), mask=inside)
    tl.store(counts + tl.program_id(0) * E + column, tl.sum((chosen & inside).to(tl.int32), 0), mask=column < E)


@tuned(["E", "K", "BLOCK_T"], {"num_warps": 4}, {"num_warps": 8}, {"num_warps": 16})
@jit(lengths=("T", "N_BLOCKS"))
def order_kernel(
    places, counts, order, offsets, T, N_BLOCKS, E: tl.constexpr, K: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """The places of BLOCK_T tokens' pairs: behind those of lower experts, of earlier blocks, of earlier tokens."""
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


def launch(
    logits: Float[Tensor, "T E"], k: int, renormalise: bool = True, bias: Float[Tensor, "E"] | None = None
) -> Routed:
    """The k best experts of each token, and the pairs of each expert.

    Args:
        renormalise: weights are the softmax over the k logits (Mixtral), not their share of all E (Switch, OLMoE).
        bias: added to the probabilities for the choice alone, as where it balances the loads (DeepSeek-V3).
    """
    _check(logits, k, bias)
    if not runs_kernel(logits) or not len(logits):
        return reference(logits, k, renormalise, bias)
    (n_tokens, n_experts), device = logits.shape, logits.device
    block = triton.next_power_of_2(n_experts)
    n_a_block = min(MOST_TOKENS, TILE // block, triton.next_power_of_2(triton.cdiv(n_tokens, PROGRAMS)))
    n_blocks = triton.cdiv(n_tokens, n_a_block)
    weight = torch.empty((n_tokens, k), dtype=torch.float32, device=device)
    expert, order, offsets, counts = (
        torch.empty(shape, dtype=torch.int32, device=device)
        for shape in ((n_tokens, k), (n_tokens * k,), (n_experts + 1,), (n_blocks, n_experts))
    )
    places = torch.empty((n_tokens, n_experts), dtype=torch.int16, device=device)
    sizes = {"T": n_tokens, "E": n_experts, "K": k, "BLOCK_T": n_a_block, "BLOCK_E": block}
    with torch.cuda.device_of(logits):  # triton launches on the current GPU, which may be another one
        choose_kernel[n_blocks,](
            logits, bias, weight, expert, places, counts, RENORMALISE=renormalise,
            num_warps=min(16, max(1, n_a_block * block // OF_A_WARP)), **sizes,
        )  # fmt: skip
        order_kernel[n_blocks,](
            places, counts, order, offsets, N_BLOCKS=n_blocks, BLOCKS=min(MOST_BLOCKS, COUNTS // block), **sizes
        )
    return Routed(weight, expert, order, offsets)


def example(
    generator: torch.Generator,
    dtype: torch.dtype,
    device: str,
    shape: tuple[int, int],
    k: int,
    renormalise: bool = True,
    biased: bool = False,
) -> tuple[Tensor, int, bool, Tensor | None]:
    """Random arguments for `launch`: logits (T, E), with ties where no bias decides, k, and a bias (E,)."""
    where = {"generator": generator, "device": generator.device}
    logits = torch.randn(shape, **where).to(device, dtype)
    if not biased:
        logits[:, 2::3] = logits[:, 0:-2:3]
        return logits, k, renormalise, None
    return logits, k, renormalise, (0.3 * torch.randn(shape[1], **where)).to(device)


def _check(logits: Tensor, k: int, bias: Tensor | None) -> None:
    if logits.ndim != 2 or not 2 <= logits.shape[1] <= MOST_EXPERTS:
        raise ValueError(
            f"logits have shape {tuple(logits.shape)}: expected (tokens, experts), 2 to {MOST_EXPERTS} experts; "
            "flatten the axes before the last, or call reference()"
        )
    if not 1 <= k <= logits.shape[1]:
        raise ValueError(f"k={k}: expected 1 to {logits.shape[1]}, the number of experts; choose fewer")
    check_tensor("logits", logits, tuple(logits.shape), FLOATS)
    if bias is not None:
        check_tensor("bias", bias, (logits.shape[1],), (torch.float32,))
        check_device(logits=logits, bias=bias)
