"""A layer of experts, by the number of tokens and of experts, against the dense MLP of equal active size.

Dimension key: T tokens, E experts, D width, F neurons of an expert, k experts a token.
The twin multiplies what one token's k experts multiply, 3 D k F weights: it is what conditional compute should cost.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

from course_lib.measure.roofline import Work
from course_lib.moe.dispatch import can_group
from course_lib.moe.experts import Experts
from course_lib.moe.layer import MoE
from course_lib.moe.routers.mixtral import Mixtral

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}  # relative; sums over E experts and F neurons, in another order
K = 2
SIZES = {"width": 576, "neurons": 1536, "tokens": (1, 8, 64, 512), "experts": (4, 8, 32)}
QUICK = {"width": 16, "neurons": 24, "tokens": (1, 8), "experts": (4, 8)}
USUAL = 8  # experts, at every number of tokens; the other numbers at the fewest and at the most
TWIN, LAYER = "dense, of equal active size", "grouped product"


def contests(place: Place) -> Iterator[Contest]:
    sizes = QUICK if place.quick else SIZES
    for n_experts in sizes["experts"]:
        layer = _layer(place, sizes["width"], sizes["neurons"], n_experts)
        few_and_many = (sizes["tokens"][0], sizes["tokens"][-1])
        for n_tokens in sizes["tokens"] if n_experts == USUAL else few_and_many:
            yield _contest(place, layer, _decided(place, layer, n_tokens))


def summary(rows: list[dict[str, Any]]) -> str:
    """What the layer costs over its twin, and which number of tokens pays the most for the experts that it wakes."""
    timed = [row for row in rows if row["side"] == LAYER and row["repetitions"]]
    if not timed:
        return f"'{LAYER}' was not timed."
    twin_bytes = {row["contest"]: row["bytes"] for row in rows if row["side"] == TWIN}
    over = {row["contest"]: 1 / row["times_anchor"] for row in timed}
    read = {row["contest"]: row["bytes"] / twin_bytes[row["contest"]] for row in timed}
    sentences = [
        f"{name}: {over[name]:.2f} x the time of the dense twin, {read[name]:.1f} x its bytes." for name in over
    ]
    few = min(
        (row for row in timed if row["shape"][0] > 1), key=lambda row: (row["shape"][0], row["shape"][1] != USUAL)
    )
    dearest = max(over, key=over.get)
    return " ".join(
        [
            *sentences,
            f"Few tokens wake most experts: {few['contest']}, {read[few['contest']]:.1f} x the twin's bytes for the "
            "same products, since an expert that is awake is read whole, however few tokens it has.",
            f"Dearest over its twin at {dearest}.",
        ]
    )


def _tokens(n: int) -> str:
    return "One token" if n == 1 else f"{n} tokens"


def _layer(place: Place, width: int, neurons: int, n_experts: int) -> MoE:
    into = place.randn(n_experts, 2 * neurons, width) / width**0.5
    out = place.randn(n_experts, width, neurons) / neurons**0.5
    return MoE(Experts(into, out), Mixtral(k=K), place.randn(n_experts, width) / width**0.5).requires_grad_(False)


@torch.no_grad()
def _decided(place: Place, layer: MoE, n_tokens: int) -> Tensor:
    """Tokens whose experts no rounding changes: of two right ways, each may break a near tie in its own direction."""
    tokens = place.randn(n_tokens, layer.experts.out.shape[1])
    while True:
        products = (tokens.float() @ layer.gate.float().T).sort(dim=-1, descending=True).values
        rounding = torch.finfo(tokens.dtype).eps * products.abs().amax(dim=-1)
        near = products[:, K - 1] - products[:, K] < 4 * rounding
        if not near.any():
            return tokens
        tokens[near] = place.randn(int(near.sum()), tokens.shape[1])


@torch.no_grad()
def _contest(place: Place, layer: MoE, tokens: Tensor) -> Contest:
    (n_experts, width, neurons), n_tokens = layer.experts.out.shape, len(tokens)
    n_awake = int(layer.route(tokens).keep.any(0).sum())
    twin = Experts(
        place.randn(1, 2 * K * neurons, width) / width**0.5, place.randn(1, width, K * neurons) / neurons**0.5
    ).requires_grad_(False)
    work = _work(layer, n_tokens, n_awake, K * n_tokens)
    sides = [
        Side(TWIN, _without_gradients(lambda: twin.one(0, tokens)), _dense_work(twin, n_tokens), twin.one(0, tokens))
    ]
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
    return contest


def _run(layer: MoE, tokens: Tensor, way: str) -> Callable[[], Tensor]:
    """The whole layer, gate and routing included; a layer of its own for each way, on the same weights."""
    twin = MoE(layer.experts, layer.router, layer.gate.data, way=way).requires_grad_(False)
    return _without_gradients(lambda: twin(tokens)[0])


def _peer(layer: MoE, tokens: Tensor, way: str, work: Work) -> Side:
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
    """The weights of the experts that are awake, once; the gate's; tokens and outputs."""
    n_experts, width, neurons = layer.experts.out.shape
    numbers = n_awake * 3 * width * neurons + n_experts * width + 2 * n_tokens * width
    flops = 2 * n_pairs * 3 * width * neurons + 2 * n_tokens * n_experts * width
    return Work(flops, numbers * layer.gate.element_size())


def _dense_work(twin: Experts, n_tokens: int) -> Work:
    numbers = twin.into.numel() + twin.out.numel()
    size = twin.out.element_size()
    return Work(2 * n_tokens * numbers, (numbers + 2 * n_tokens * twin.width) * size)
