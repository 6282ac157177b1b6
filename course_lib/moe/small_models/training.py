"""Train a byte-level mixture of experts, with balance losses or with router biases that follow the loads.

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
    """Penalty on the loss: α E Σ_e f_e P_e plus the z-loss, both averaged over layers.

    f_e is the fraction of choices that expert e receives, P_e its mean gate probability (Fedus and others, Switch
    Transformers, 2021, equations 4 to 6). With both coefficients at 0 the penalty is 0.

    Args:
        alpha: coefficient of the balance loss.
        z: coefficient of the z-loss.
    """

    alpha: float = 0.0
    z: float = 0.0

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha)
        check_number("z", self.z)

    def __call__(self, routings: Sequence[Routing]) -> Float[Tensor, ""]:
        of_z = torch.stack([z_loss(layer.logits, layer.real, self.z) for layer in routings]).mean()
        return balance_of_layers(routings, self.alpha) + of_z


@contextmanager
def routing(mixture: PreTrainedModel, router: Router, seed: int = 0) -> Iterator[Seen]:
    """Use this router in the model inside the `with` block, with its own random generator; see `routed_by`."""
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
    """Train in place, inside `with routing(...) as seen`. The batches are those of a dense model with the same seed.

    Args:
        seen: for each block, the routings of the forward passes so far.
        tokens: the bytes of one text.
        penalty: maps the routings of a step, one per block, to a term that is added to the loss.
        speed: step by which the biases of DeepSeek's routers move against the loads after each step; 0 leaves them.
        look: called after each step with the step, the loss before it in nats per byte (without the penalty), and the
            routings.
    """
    last: dict[str, float] = {}

    def objective(model: nn.Module, ids: Tensor) -> Tensor:
        forget(seen)  # frees the graph of the previous step
        losses = byte_losses(model, ids)
        last["nats"] = losses.mean().item()
        return losses if penalty is None else losses + penalty([block_routings[-1] for block_routings in seen])

    def finish_step(step: int, loss: float) -> None:
        newest = [block_routings[-1] for block_routings in seen]
        for layer, layer_routing in zip(layers_inside(mixture), newest, strict=True) if speed else ():
            layer.router = layer.router.updated(layer_routing.load, speed)
        look(step, last["nats"], newest)

    train(mixture.train(), tokens, schedule, seed, finish_step, objective)


class Reading(NamedTuple):
    """The mean loss of each window in nats per byte, and for each block the routing of all windows."""

    losses: Float[Tensor, "N"]
    routings: list[Routing]


@torch.no_grad()
def read(mixture: PreTrainedModel, seen: Seen, ids: Int[Tensor, "N L"], batch: int = 48) -> Reading:
    """Evaluate windows inside `with routing(...) as seen`, in evaluation mode, so that routers draw no random numbers.

    The model predicts L − 1 bytes of each window. The last byte is a target only, so the routings have L − 1 rows per
    window.
    """
    forget(seen)
    with in_evaluation_mode(mixture):
        losses = torch.cat([byte_losses(mixture, part).double().mean(dim=1) for part in ids.split(batch)])
    reading = Reading(losses, [joined(block_routings) for block_routings in seen])
    forget(seen)
    return reading


def forget(seen: Seen) -> None:
    """Remove the routings of earlier passes, which keep their autograd graphs in memory."""
    for block_routings in seen:
        block_routings.clear()
