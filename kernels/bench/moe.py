"""Latency of a mixture-of-experts layer for several numbers of tokens and experts, compared with a dense MLP.

The dense MLP has k F neurons, so one token needs the same 3 D k F multiply-adds as with k experts: its time is what
conditional computation should cost.

On a GPU, the side "kernels" is the layer as a user calls it, and "grouped product" is the same layer with the kernels
off. The host has queued a call before the timer starts, so these are times of the GPU alone. When a model generates
text, the GPU often waits for the host: the contests "called by an idle host" measure this, and the sides "in a graph"
show the same call recorded in a CUDA graph.

Dimension key: T tokens, E experts, D width, F neurons per expert, k experts per token.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from course_lib.kernels.dispatch import kernels
from course_lib.kernels.timing.contest import Contest, Place, Side
from course_lib.kernels.timing.graphs import captured
from torch import Tensor
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

from course_lib.measure.roofline import Work
from course_lib.moe.dispatch import can_group
from course_lib.moe.experts import Experts
from course_lib.moe.layer import MoE
from course_lib.moe.routers.mixtral import Mixtral

GPU_SECONDS = 28
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}  # relative: sums over E experts and F neurons in another order
K = 2
SIZES = {"width": 576, "neurons": 1536, "tokens": (1, 8, 64, 512), "experts": (4, 8, 32)}
QUICK = {"width": 16, "neurons": 24, "tokens": (1, 8), "experts": (4, 8)}
LARGE = {"width": 4096, "neurons": 14336, "tokens": (1, 8, 64), "experts": (8,)}  # a block of Mixtral-8x7B
USUAL = 8  # experts: measured with all numbers of tokens, other E only with the fewest and the most; GPUs skip E < 8
FEW = 8  # tokens: up to so many, the call by an idle host is timed, too
MOST_COPIED = 3 * 10**9  # weights that batched_mm may copy: it makes one copy of an expert per pair of token and expert
TWIN, LAYER, KERNELS = "dense, of equal active size", "grouped product", "kernels"
PEER, PEER_OF_FEW = "transformers, grouped_mm", "transformers, batched_mm"
IN_A_GRAPH, IDLE = "in a graph", "called by an idle host"


def contests(place: Place) -> Iterator[Contest]:
    """Yield one contest per number of experts and tokens, and on a GPU those of a block of Mixtral-8x7B."""
    sizes, on_a_gpu = QUICK if place.quick else SIZES, place.device.type == "cuda"
    for n_experts in sizes["experts"][1:] if on_a_gpu else sizes["experts"]:
        layer = _layer(place, sizes["width"], sizes["neurons"], n_experts)
        few_and_many = (sizes["tokens"][0], sizes["tokens"][-1])
        for n_tokens in sizes["tokens"] if n_experts == USUAL else few_and_many:
            contest = _contest(place, layer, _decided(place, layer, n_tokens))
            yield contest
            if on_a_gpu and n_tokens <= FEW:
                yield _by_an_idle_host(contest)
    if on_a_gpu:
        layer = _layer(place, LARGE["width"], LARGE["neurons"], *LARGE["experts"])
        for n_tokens in LARGE["tokens"]:
            yield _large(place, layer, _decided(place, layer, n_tokens))


def summary(rows: list[dict[str, Any]]) -> str:
    """Report time and bytes of the layer relative to the dense MLP, and the contest with the largest ratio of times."""
    layer = KERNELS if any(row["side"] == KERNELS for row in rows) else LAYER
    timed = [row for row in rows if row["side"] == layer and row["repetitions"]]
    if not timed:
        return f"'{layer}' was not timed."
    dense_bytes = {row["contest"]: row["bytes"] for row in rows if row["side"] == TWIN}
    times = {row["contest"]: 1 / row["times_anchor"] for row in timed}
    byte_ratios = {row["contest"]: row["bytes"] / dense_bytes[row["contest"]] for row in timed}
    sentences = [
        f"{name}: {times[name]:.2f} x the time of the dense MLP, {byte_ratios[name]:.1f} x its bytes." for name in times
    ]
    batch = min(
        (row for row in timed if row["shape"][0] > 1), key=lambda row: (row["shape"][0], row["shape"][1] != USUAL)
    )
    slowest = max(times, key=times.get)
    return " ".join(
        [
            *sentences,
            f"Few tokens use most experts: {batch['contest']}, {byte_ratios[batch['contest']]:.1f} x the bytes of the "
            "dense MLP for the same products, since all weights of a used expert are read, even for one token.",
            f"The largest ratio of times is at {slowest}.",
        ]
    )


def _tokens(n: int) -> str:
    return "One token" if n == 1 else f"{n} tokens"


def _layer(place: Place, width: int, neurons: int, n_experts: int) -> MoE:
    """Build a Mixtral layer with random weights, scaled by 1/√(inputs) so that activations keep their size."""
    into = place.randn(n_experts, 2 * neurons, width) / width**0.5
    out = place.randn(n_experts, width, neurons) / neurons**0.5
    return MoE(Experts(into, out), Mixtral(k=K), place.randn(n_experts, width) / width**0.5).requires_grad_(False)


@torch.no_grad()
def _decided(place: Place, layer: MoE, n_tokens: int) -> Tensor:
    """Draw tokens (T, D) whose k experts do not depend on rounding: near ties may go either way and are drawn again."""
    tokens = place.randn(n_tokens, layer.experts.out.shape[1])
    while True:
        logits = (tokens.float() @ layer.gate.float().T).sort(dim=-1, descending=True).values
        rounding = torch.finfo(tokens.dtype).eps * logits.abs().amax(dim=-1)
        is_tied = logits[:, K - 1] - logits[:, K] < 4 * rounding
        if not is_tied.any():
            return tokens
        tokens[is_tied] = place.randn(int(is_tied.sum()), tokens.shape[1])


@torch.no_grad()
def _contest(place: Place, layer: MoE, tokens: Tensor) -> Contest:
    """Build a contest of all implementations, checked against the one that computes all experts for all tokens."""
    n_experts, n_tokens = layer.experts.n_experts, len(tokens)
    n_awake, work = _awake(layer, tokens)
    sides = [_twin(place, layer, tokens)]
    everything = _work(layer, n_tokens, n_experts, n_experts * n_tokens)
    sides.append(Side("all experts", _run(layer, tokens, "all_experts"), everything))
    sides.append(Side("sorted loop over experts", _run(layer, tokens, "expert_loop"), work))
    expected = _run(layer, tokens, "all_experts")()
    name = f"{_tokens(n_tokens)}, {n_awake} of {n_experts} experts awake"
    contest = Contest(name, (n_tokens, n_experts), sides, expected)
    if can_group(layer.experts, tokens):
        sides.append(Side(LAYER, _run(layer, tokens, "grouped"), work))
    else:
        contest.absent[LAYER] = f"torch has no grouped product of {tokens.dtype} on {tokens.device.type} here"
    for way in ("eager", "grouped_mm"):
        contest.try_side(f"transformers, {way}", lambda way=way: _peer(layer, tokens, way, work))
    if tokens.is_cuda:
        _try_peer_of_few(contest, layer, tokens, work)
        sides.append(Side(KERNELS, _by_kernels(layer, tokens), work))
        by_name = {side.name: side for side in sides}
        # Transformers' layer comes last, because recording it may fail.
        for name in [name for name in (TWIN, KERNELS, PEER) if name in by_name]:
            contest.try_side(f"{name}, {IN_A_GRAPH}", lambda name=name: _in_a_graph(place, by_name[name]))
    return contest


def _large(place: Place, layer: MoE, tokens: Tensor) -> Contest:
    """Build a contest without the implementations that multiply more: they would take most of the bench's time."""
    n_awake, work = _awake(layer, tokens)
    sides = [_twin(place, layer, tokens), Side(LAYER, _run(layer, tokens, "grouped"), work)]
    sides.append(Side(KERNELS, _by_kernels(layer, tokens), work))
    name = f"{_tokens(len(tokens))} in a block of Mixtral-8x7B, {n_awake} of {layer.experts.n_experts} experts awake"
    contest = Contest(name, (len(tokens), layer.experts.n_experts), sides, _run(layer, tokens, "expert_loop")())
    contest.try_side(PEER, lambda: _peer(layer, tokens, "grouped_mm", work))
    _try_peer_of_few(contest, layer, tokens, work)
    return contest


def _try_peer_of_few(contest: Contest, layer: MoE, tokens: Tensor, work: Work) -> None:
    if K * len(tokens) * 3 * layer.experts.out[0].numel() <= MOST_COPIED:
        contest.try_side(PEER_OF_FEW, lambda: _peer(layer, tokens, "batched_mm", work))


def _by_an_idle_host(contest: Contest) -> Contest:
    """Repeat a contest with calls that the host makes only after the timer has started: this adds the host's time."""

    def late(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        def wait_and_run() -> Tensor:
            torch.cuda.synchronize()
            return run()

        return wait_and_run

    graphs = [f"{name}, {IN_A_GRAPH}" for name in (TWIN, KERNELS, PEER)]
    compared = (TWIN, LAYER, KERNELS, PEER, PEER_OF_FEW, *graphs)
    sides = [side for side in contest.sides if side.name in compared]
    sides = [replace(side, name=f"{side.name}, {IDLE}", run=late(side.run)) for side in sides]
    return replace(contest, name=f"{contest.name}, {IDLE}", sides=sides, absent={})


def _in_a_graph(place: Place, side: Side) -> Side:
    """Record the side as a CUDA graph; `run` replays it. Recording comes before a check replaces torch.empty."""
    return replace(side, name=f"{side.name}, {IN_A_GRAPH}", run=captured(side.run, place.device))


def _twin(place: Place, layer: MoE, tokens: Tensor) -> Side:
    """Build the side of the dense MLP with k F neurons, as a single expert."""
    _, width, neurons = layer.experts.out.shape
    dense = Experts(
        place.randn(1, 2 * K * neurons, width) / width**0.5, place.randn(1, width, K * neurons) / neurons**0.5
    ).requires_grad_(False)
    run = _without_gradients(lambda: dense.one(0, tokens))
    return Side(TWIN, run, _dense_work(dense, len(tokens)), run())


def _awake(layer: MoE, tokens: Tensor) -> tuple[int, Work]:
    """Return the number of experts that receive tokens, and the work of a layer that computes only these."""
    with kernels(False):
        n_awake = int(layer.route(tokens).keep.any(0).sum())
    return n_awake, _work(layer, len(tokens), n_awake, K * len(tokens))


def _run(layer: MoE, tokens: Tensor, way: str) -> Callable[[], Tensor]:
    """Build a call of the whole layer in PyTorch, including gate and routing; the copy shares the layer's weights."""
    copied = MoE(layer.experts, layer.router, layer.gate.data, way=way).requires_grad_(False)

    def run() -> Tensor:
        with kernels(False):
            return copied(tokens)[0]

    return _without_gradients(run)


def _by_kernels(layer: MoE, tokens: Tensor) -> Callable[[], Tensor]:
    return _without_gradients(lambda: layer(tokens)[0])


def _peer(layer: MoE, tokens: Tensor, way: str, work: Work) -> Side:
    """Build the side of transformers' Mixtral block on the same weights; `way` names its implementation."""
    n_experts, width, neurons = layer.experts.out.shape
    config = MixtralConfig(
        hidden_size=width, intermediate_size=neurons, num_local_experts=n_experts, num_experts_per_tok=K
    )
    config._experts_implementation = way
    with torch.device("meta"):
        block = MixtralSparseMoeBlock(config)
    block.gate.weight = layer.gate
    block.experts.gate_up_proj, block.experts.down_proj = layer.experts.into, layer.experts.out
    block.eval()
    return Side(f"transformers, {way}", _without_gradients(lambda: block(tokens[None])[0]), work)


def _without_gradients(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    return torch.no_grad()(run)


def _work(layer: MoE, n_tokens: int, n_awake: int, n_pairs: int) -> Work:
    """Count the work of a layer: it reads each used expert (3 D F) and the gate (E D) once, and moves 2 T D numbers."""
    n_experts, width, neurons = layer.experts.out.shape
    numbers = n_awake * 3 * width * neurons + n_experts * width + 2 * n_tokens * width
    flops = 2 * n_pairs * 3 * width * neurons + 2 * n_tokens * n_experts * width
    return Work(flops, numbers * layer.gate.element_size())


def _dense_work(twin: Experts, n_tokens: int) -> Work:
    numbers = twin.into.numel() + twin.out.numel()
    size = twin.out.element_size()
    return Work(2 * n_tokens * numbers, (numbers + 2 * n_tokens * twin.width) * size)
