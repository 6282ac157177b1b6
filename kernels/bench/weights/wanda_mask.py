"""Wanda's N:M pruning in one pass against PyTorch code, which writes the score and ranks it.

Dimension key: O outputs (rows), I inputs (columns).
"""

from collections.abc import Iterator

import torch
from course_lib.kernels.timing.contest import Contest, Place, Side
from course_lib.kernels.weights import wanda_mask
from torch import Tensor

from course_lib.measure.roofline import Work

SHAPE = {"cpu": (2048, 4096), "cuda": (4096, 14336)}


def contests(place: Place) -> Iterator[Contest]:
    rows, columns = (64, 256) if place.quick else SHAPE[place.device.type]
    weight, norm = place.randn(rows, columns), place.rand(columns) + 0.5
    for n, m in ((2, 4), (4, 8)):
        yield _contest(f"{n}:{m}", weight, norm, n, m)


def _contest(name: str, weight: Tensor, norm: Tensor, n: int, m: int) -> Contest:
    arguments = (weight, norm, n, m, "weight")
    # Scored: one product and n of m by comparing each pair. Nowhere near arithmetic's bound.
    work = Work(weight.numel() * (1 + m), wanda_mask.bytes_moved(*arguments))
    reference = Side("torch, stable sort", lambda: wanda_mask.reference(*arguments).weight, work)
    contest = Contest(name, tuple(weight.shape), [reference], wanda_mask.reference(*arguments).weight)
    contest.sides.append(Side("torch, topk", lambda: _topk(weight, norm, n, m), work))
    if weight.is_cuda:
        contest.sides.append(Side("one pass", lambda: _one_pass(*arguments), work))
    return contest


def _topk(weight: Tensor, norm: Tensor, n: int, m: int) -> Tensor:
    """Choose by topk, which is faster than sorting, but breaks ties in any order."""
    groups = (weight.abs().float() * norm).view(-1, m)
    keep = torch.zeros_like(groups, dtype=torch.bool).scatter_(1, groups.topk(n, dim=1).indices, True)
    return weight.masked_fill(~keep.view(weight.shape), 0)


def _one_pass(weight: Tensor, norm: Tensor, n: int, m: int, write: str) -> Tensor:
    """Run without the launcher's wait for the NaN flag, which would add the host's reaction time to the kernel's."""
    return wanda_mask.enqueue(weight, norm, n, m, write)[0].weight
