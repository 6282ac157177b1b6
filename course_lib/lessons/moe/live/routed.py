"""Experts on the activations of a real model: its own MLP as all of them, and what reaches a gate.

Dimension key: N windows, T tokens, D width, E experts, L blocks.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.models import architecture, blocks
from course_lib.moe.experts import Experts
from course_lib.moe.layer import MoE
from course_lib.moe.routing import Router
from course_lib.moe.upcycling.copies import Difference, copies
from course_lib.moe.upcycling.mixtral import GATE_STD

TopOne = Callable[[Float[Tensor, "T E"], Float[Tensor, "T"]], tuple[Tensor, Tensor]]


def mlp_of(block: nn.Module) -> str:
    """The name of the module that holds the three matrices."""
    return architecture(block).mlp[0].rpartition(".")[0]


@torch.no_grad()
def mlp_inputs(model: PreTrainedModel, number: int, windows: Int[Tensor, "N T"]) -> Float[Tensor, "N T D"]:
    """What the MLP of a block reads."""
    seen: list[Tensor] = []
    block = blocks(model)[number]
    handle = block.get_submodule(mlp_of(block)).register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    try:
        model(windows, use_cache=False, logits_to_keep=1)
    finally:
        handle.remove()
    return seen[0]


def first_gate(n_experts: int, width: int, seed: int = 0) -> Float[Tensor, "E D"]:
    """A gate that has learnt nothing: small normal weights."""
    return GATE_STD * torch.randn(n_experts, width, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def experts_from(model: PreTrainedModel, number: int, n_experts: int, noise: float = 0.0, seed: int = 0) -> Experts:
    """The MLP of a block, copied; with noise, as a share of each matrix's deviation."""
    made = copies(blocks(model)[number], n_experts, Difference(noise=noise), torch.Generator().manual_seed(seed))
    return Experts(*made).requires_grad_(False)


class _OutputAlone(nn.Module):
    def __init__(self, layer: MoE) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Float[Tensor, "*b D"]) -> Float[Tensor, "*b D"]:
        return self.layer(x)[0]


@contextmanager
def copied(model: PreTrainedModel, n_experts: int, router: Router) -> Iterator[None]:
    """Inside, every MLP is a layer of experts that are all this MLP: views of the same weights, no memory."""
    whole = list(blocks(model))
    names = [mlp_of(block) for block in whole]  # before the swap, after which no block looks like one of a family
    own = [block.get_submodule(name) for block, name in zip(whole, names, strict=True)]
    layers = []
    for number in range(len(whole)):
        one = experts_from(model, number, 1)
        same = Experts(*(part.data.expand(n_experts, -1, -1) for part in (one.into, one.out)))
        gate = first_gate(n_experts, one.width, seed=number)
        layers.append(_OutputAlone(MoE(same, router, gate, way="expert_loop")).requires_grad_(False))
    try:
        for block, name, layer in zip(whole, names, layers, strict=True):
            block.set_submodule(name, layer)
        yield
    finally:
        for block, name, mlp in zip(whole, names, own, strict=True):
            block.set_submodule(name, mlp)


class _TopOne(torch.autograd.Function):
    """The weight of a function that gives its gradient too."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, logits: Tensor, function: TopOne) -> Float[Tensor, "T"]:
        ctx.save_for_backward(logits)
        ctx.function = function
        return function(logits.detach(), torch.zeros(len(logits)))[0]

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, slope: Tensor) -> tuple[Tensor, None]:
        return ctx.function(ctx.saved_tensors[0].detach(), slope)[1], None


def top_one_gradient(
    tokens: Float[Tensor, "T D"], gate: Float[Tensor, "E D"], experts: Experts, function: TopOne
) -> Float[Tensor, "E D"]:
    """What reaches the gate through the weights that a function gives for one expert a token."""
    gate = gate.clone().requires_grad_()
    logits = tokens @ gate.T
    chosen = logits.argmax(dim=1)
    outputs = torch.zeros_like(tokens)
    for expert in range(experts.n_experts):
        outputs[chosen == expert] = experts.one(expert, tokens[chosen == expert])
    _loss(_TopOne.apply(logits, function)[:, None] * outputs).backward()
    return gate.grad


def gate_gradient(
    tokens: Float[Tensor, "T D"], gate: Float[Tensor, "E D"], experts: Experts, router: Router
) -> Float[Tensor, "E D"]:
    """What reaches the gate of a layer with one of the library's routers."""
    layer = MoE(experts, router, gate.clone())
    _loss(layer(tokens)[0]).backward()
    return layer.gate.grad


def _loss(output: Float[Tensor, "T D"]) -> Float[Tensor, ""]:
    """Any loss of the output will do: here each number is wanted to be a number that was drawn."""
    wanted = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    return (output - wanted).square().sum(dim=1).mean() / 2


@torch.no_grad()
def moved_by_the_last(logits: Float[Tensor, "T E"], routers: Mapping[str, Router]) -> dict[str, int]:
    """For each router: how many tokens but the last get other weights, once the last is one that an expert likes most.

    Every expert has its turn; tokens that move in any of them count.
    """
    moved = {}
    for name, router in routers.items():
        before, changed = router.route(logits).weights[:-1], torch.zeros(len(logits) - 1, dtype=torch.bool)
        for expert in range(logits.shape[1]):
            other = logits.clone()
            other[-1] = 0
            other[-1, expert] = logits.abs().max() + 5
            changed |= (before != router.route(other).weights[:-1]).any(dim=1)
        moved[name] = int(changed.sum())
    return moved
