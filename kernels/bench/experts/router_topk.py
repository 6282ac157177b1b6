"""Routing in two launches against the chain through torch: softmax, topk, division, sort, count, running sum.

Dimension key: T tokens, E experts, k experts per token.
"""

from collections.abc import Iterator

import torch
from course_lib.kernels.experts import router_topk
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor

from course_lib.measure.roofline import Work

SHAPES = {"cpu": ((8, 2), (64, 8)), "cuda": ((8, 2), (128, 8))}  # experts, and how many of them a token takes
TOKENS = {"cpu": (1, 512), "cuda": (1, 64, 1024, 8192)}


def contests(place: Place) -> Iterator[Contest]:
    for n_experts, k in ((7, 2),) if place.quick else SHAPES[place.device.type]:
        for n_tokens in (19,) if place.quick else TOKENS[place.device.type]:
            logits = place.randn(n_tokens, n_experts)
            yield _contest(f"{k} of {n_experts} experts, tokens: {n_tokens}", logits, k)


def _contest(name: str, logits: Tensor, k: int) -> Contest:
    # A maximum, a difference, an exponential and a sum, then k searches: nowhere near arithmetic's bound.
    work = Work(logits.numel() * (4 + k), router_topk.bytes_moved(logits, k))
    sides = [Side("torch, topk and sort", lambda: _torch(logits, k), work)]
    if logits.is_cuda:
        sides.append(Side("two launches", lambda: router_topk.launch(logits, k).weight, work))
    else:
        sides.append(Side("reference", lambda: router_topk.reference(logits, k).weight, work))
    return Contest(name, tuple(logits.shape), sides, router_topk.reference(logits, k).weight)


def _torch(logits: Tensor, k: int) -> Tensor:
    """Route as transformers does. We compare the weights; the next products need the order."""
    weight, expert = logits.float().softmax(dim=1).topk(k, dim=1)
    weight = weight / weight.sum(dim=1, keepdim=True)
    expert.flatten().sort(stable=True)
    torch.bincount(expert.flatten(), minlength=logits.shape[1]).cumsum(0)
    return weight
