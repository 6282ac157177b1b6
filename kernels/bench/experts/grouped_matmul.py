"""The experts' MLPs by group against torch's grouped products, which gather and scatter in passes of their own.

Dimension key: T tokens, D size of a token, E experts, F hidden units of an expert, k experts per token, P pairs.
"""

from collections.abc import Iterator

import torch
from course_lib.kernels.experts import grouped_matmul
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor
from torch.nn.functional import grouped_mm, silu

from course_lib.measure.roofline import Work

SHAPE = {"cpu": (8, 576, 1536, 2), "cuda": (128, 2048, 768, 8)}  # E, D, F, k: the default model's MLP; one of 30B
TOKENS = {"cpu": (1, 8, 64), "cuda": (1, 8, 64, 1024, 8192)}


def contests(place: Place) -> Iterator[Contest]:
    n_experts, size, n_hidden, k = (4, 64, 32, 2) if place.quick else SHAPE[place.device.type]
    for n_tokens in (1, 19) if place.quick else TOKENS[place.device.type]:
        shape = (n_tokens, n_experts, size, n_hidden)
        arguments = grouped_matmul.example(place.generator, place.dtype, str(place.device), shape, k)
        n_awake = int((arguments[5].diff() > 0).sum())
        yield _contest(f"tokens: {n_tokens}, awake: {n_awake} of {n_experts}", arguments)


def _contest(name: str, arguments: tuple[Tensor, ...]) -> Contest:
    inputs, _, down, _, order, _ = arguments
    work = Work(6 * len(order) * down[0].numel(), grouped_matmul.bytes_moved(*arguments))
    contest = Contest(name, tuple(down.shape), [], grouped_matmul.reference(*arguments))
    contest.try_side("grouped_mm", lambda: Side("grouped_mm", lambda: by_grouped_mm(*arguments), work))
    contest.sides.append(Side("a loop over experts", lambda: grouped_matmul.reference(*arguments), work))
    if inputs.is_cuda:
        contest.sides.append(Side("by group", lambda: grouped_matmul.launch(*arguments), work))
    return contest


def by_grouped_mm(
    inputs: Tensor, gate_up: Tensor, down: Tensor, weight: Tensor, order: Tensor, offsets: Tensor
) -> Tensor:
    """Copy every pair's token, compute two grouped products, and sum by token."""
    pair, ends = order.long(), offsets[1:]
    token = pair // weight.shape[1]
    gate, up = grouped_mm(inputs[token], gate_up.mT, offs=ends).chunk(2, dim=1)
    output = grouped_mm(silu(gate) * up, down.mT, offs=ends)
    total = torch.zeros(inputs.shape, dtype=torch.float32, device=inputs.device)
    return total.index_add_(0, token, output.float() * weight.flatten()[pair][:, None]).to(inputs.dtype)
