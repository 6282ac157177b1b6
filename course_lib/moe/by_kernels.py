"""The layer on a GPU: three kernel launches for a few tokens, five for many, and the host never waits for the GPU.

Dimension key: T tokens, E experts, D width.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.kernels.dispatch import kernel_for
from course_lib.moe.choice import sigmoid_shares
from course_lib.moe.experts import Experts
from course_lib.moe.routed import DecidedRouting, Routing
from course_lib.moe.routers.deepseek import DeepSeek
from course_lib.moe.routers.gshard import GShard
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.moefied import MoEfied
from course_lib.moe.routers.noisy_top_k import NoisyTopK
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routers.switch import Switch
from course_lib.moe.routing import Router

# The routers that choose the k best logits if nothing is sampled, and how router_topk has to compute their weights.
WEIGHTS = {
    Mixtral: "chosen",
    NoisyTopK: "chosen",
    GShard: "chosen",
    OLMoE: "all",
    Switch: "all",
    MoEfied: "one",
    DeepSeek: "sigmoid",
}


def by_kernels(
    experts: Experts,
    router: Router,
    gate: Float[Tensor, "E D"],
    tokens: Float[Tensor, "T D"],
    real: Bool[Tensor, "T"] | None,
) -> tuple[Float[Tensor, "T D"], Routing] | None:
    """Return the routed experts' output and the routing, or None if there is no kernel for them.

    Unlike PyTorch code, which waits for the logits to check them, this gives NaN where a real token's logits are NaN or
    infinite, and zeros where all tokens are padding.
    """
    if not experts.is_plain_swiglu or not _chooses_the_best(router) or not tokens.shape[0]:
        return None
    if torch.is_autocast_enabled(tokens.device.type):
        return None
    weights, bias, scaling = WEIGHTS[type(router)], getattr(router, "bias", None), getattr(router, "scaling", 1.0)
    matrices, k = (tokens, experts.into, experts.out), router.k
    route = kernel_for("experts.router_topk", tokens, gate, k=k, bias=bias)
    few = route and kernel_for("experts.pair_matmul", *matrices, k=k)
    many = route and not few and kernel_for("experts.grouped_matmul", *matrices)
    if not (few or many):
        return None
    routed = route.run(tokens, k, weights, bias, gate, scaling, not few)
    if few:
        output = few.run(*matrices, routed.weight, routed.expert)
    else:
        output = many.run(*matrices, routed.weight, routed.order, routed.offsets)
    probs = _all_shares if weights == "sigmoid" else _softmax
    routing = DecidedRouting.of(routed.logits, routed.weight, routed.expert, probs, real)
    return output if real is None else output.where(real[:, None], 0), routing


def _chooses_the_best(router: Router) -> bool:
    """Return whether the router chooses by a token's logits alone; for an unknown subclass, return False."""
    return type(router) in WEIGHTS and router.capacity_factor is None and getattr(router, "n_groups", 1) == 1


def _softmax(logits: Float[Tensor, "T E"]) -> Float[Tensor, "T E"]:
    return logits.softmax(dim=1)


def _all_shares(logits: Float[Tensor, "T E"]) -> Float[Tensor, "T E"]:
    return sigmoid_shares(logits, torch.ones_like(logits, dtype=torch.bool))
