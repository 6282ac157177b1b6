"""Train a model of bytes with experts, with whatever keeps their loads in balance.

Dimension key: N windows, L bytes in a window.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.attention.small_models.byte_model import byte_losses
from course_lib.attention.small_models.training import Schedule, train
from course_lib.moe.checks import check_number
from course_lib.moe.losses import balance_of_layers, z_loss
from course_lib.moe.routed import Routing, joined
from course_lib.moe.routing import Router
from course_lib.moe.upcycling.swapping import layers_inside, routed_by
from course_lib.repetition import in_evaluation_mode

Penalty = Callable[[Sequence[Routing]], Tensor]
Seen = list[list[Routing]]


@dataclass(frozen=True)
class Balancing:
    """What is added to the loss: α N Σ f P, and the z-loss, both the mean over layers; nothing where both are 0."""

    alpha: float = 0.0
    z: float = 0.0

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha)
        check_number("z", self.z)

    def __call__(self, routings: Sequence[Routing]) -> Float[Tensor, ""]:
        of_z = torch.stack([z_loss(each.logits, each.real, self.z) for each in routings]).mean()
        return balance_of_layers(routings, self.alpha) + of_z


@contextmanager
def routing(mixture: PreTrainedModel, router: Router, seed: int = 0) -> Iterator[Seen]:
    """The model with a router that draws, where it does, from a generator of its own; see `routed_by`."""
    with routed_by(mixture, router, torch.Generator().manual_seed(seed + 1_000_003)) as seen:
        yield seen


def train_mixture(
    mixture: PreTrainedModel,
    seen: Seen,
    tokens: Int[Tensor, "T"],
    schedule: Schedule,
    seed: int,
    penalty: Penalty | None = None,
    speed: float = 0.0,
    look: Callable[[int, float, list[Routing]], None] = lambda step, nats, routings: None,
) -> None:
    """In place, inside `routing`, which gives `seen`. The same tokens in the same order as for a dense model.

    Args:
        tokens: bytes of a text, in a line.
        penalty: of the routings of a step, one a block; added to the loss.
        speed: by which the biases of DeepSeek's routers move after each step, against the loads.
        look: called after each step with the nats a byte before it, without the penalty, and the routings.
    """
    last: dict[str, float] = {}

    def objective(model: nn.Module, ids: Tensor) -> Tensor:
        forget(seen)
        losses = byte_losses(model, ids)
        last["nats"] = losses.mean().item()
        return losses if penalty is None else losses + penalty([of_block[-1] for of_block in seen])

    def after(step: int, loss: float) -> None:
        newest = [of_block[-1] for of_block in seen]
        for layer, its in zip(layers_inside(mixture), newest, strict=True) if speed else ():
            layer.router = layer.router.updated(its.load, speed)
        look(step, last["nats"], newest)

    train(mixture.train(), tokens, schedule, seed, after, objective)


class Reading(NamedTuple):
    """What a mixture made of windows: the loss of each in nats a byte, and the routing of each block."""

    losses: Float[Tensor, "N"]
    routings: list[Routing]


@torch.no_grad()
def read(mixture: PreTrainedModel, seen: Seen, ids: Int[Tensor, "N L"], batch: int = 48) -> Reading:
    """Inside `routing`: windows that are read without drawing anything. The last byte of each is only predicted."""
    forget(seen)
    with in_evaluation_mode(mixture):
        losses = torch.cat([byte_losses(mixture, part).double().mean(dim=1) for part in ids.split(batch)])
    found = Reading(losses, [joined(of_block) for of_block in seen])
    forget(seen)
    return found


def forget(seen: Seen) -> None:
    """The routings of earlier passes, which hold their graphs."""
    for of_block in seen:
        of_block.clear()
