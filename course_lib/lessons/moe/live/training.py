"""Byte models with experts that learn while one watches, with a gate and a balance loss of the student's.

Dimension key: L layers, T tokens, E experts, k of them for each token, N windows, S looks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.small_models.byte_model import byte_windows, untrained
from course_lib.attention.small_models.training import Schedule, running, training_texts
from course_lib.moe.routed import Routing
from course_lib.moe.routing import Given, Router
from course_lib.moe.small_models.byte_mixture import mixture_configuration
from course_lib.moe.small_models.training import Reading, read, routing, train_mixture

Gate = Callable[[Float[Tensor, "T E"], int], Float[Tensor, "T E"]]
Balance = Callable[[Float[Tensor, "L T E"], Int[Tensor, "L T k"], float], tuple[Tensor, Tensor]]

SIZES = {"width": 96, "n_blocks": 2, "n_heads": 3, "active": 192}
LOOK_EVERY = 10
N_HELD_OUT = 48


@dataclass(frozen=True)
class Steady(Schedule):
    """The rate does not fall: a few steps are the beginning of a training, not a short one."""

    def rate_at(self, step: int) -> float:
        return self.rate * min(1.0, (step + 1) / self.warm_up)


SCHEDULE = Steady(n_steps=140, batch=16, length=128, rate=2e-3, warm_up=10, decay=0.1)


@dataclass(frozen=True)
class GateOfYours(Router):
    """Weights are what a function says; the gradient is the one of the formula, p_i of those with a weight."""

    gate: Gate = field(compare=False, kw_only=True)
    k: int = 2

    @property
    def weight_sum(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        weights, probs = self.gate(logits.detach(), self.k), logits.softmax(dim=1)
        keep = weights > 0
        smooth = probs.where(keep, 0)
        return Routing(weights + smooth - smooth.detach(), probs, keep, keep)


class _WithGradient(torch.autograd.Function):
    """A loss whose gradient was handed over with it."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, logits: Tensor, loss: Tensor, gradient: Tensor
    ) -> Float[Tensor, ""]:
        ctx.save_for_backward(gradient)
        return loss.clone()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, slope: Tensor) -> tuple[Tensor, None, None]:
        return slope * ctx.saved_tensors[0], None, None


def penalty(balance: Balance, alpha: float) -> Callable[[Sequence[Routing]], Float[Tensor, ""]]:
    """A function that gives loss and gradient, as what `train_mixture` adds to its own."""

    def of(routings: Sequence[Routing]) -> Float[Tensor, ""]:
        logits = torch.stack([each.logits for each in routings])
        n_layers, n_tokens, _ = logits.shape
        chosen = torch.stack([each.chosen for each in routings]).nonzero()[:, 2].view(n_layers, n_tokens, -1)
        return _WithGradient.apply(logits, *balance(logits.detach(), chosen, alpha))

    return of


@dataclass(frozen=True)
class Run:
    """A model that has learnt: the loads on the way, of each step looked at, and what it made of held-out windows."""

    model: PreTrainedModel
    steps: tuple[int, ...]
    loads: Float[Tensor, "S L E"]
    reading: Reading


def learn(
    router: Router,
    n_experts: int = 8,
    added: Callable[[Sequence[Routing]], Tensor] | None = None,
    sizes: dict[str, int] | None = None,
    schedule: Schedule = SCHEDULE,
    seed: int = 0,
) -> Run:
    """Train a byte model with experts from nothing; the same bytes in the same order for all of one seed."""
    model = untrained(mixture_configuration(n_experts, router.k, **(sizes or SIZES)), seed)
    steps, loads = [], []

    def look(step: int, nats: float, routings: list[Routing]) -> None:
        if (step + 1) % LOOK_EVERY == 0 or step == 0:
            steps.append(step + 1)
            loads.append(torch.stack([each.load for each in routings]))

    with routing(model, router, seed) as seen:
        train_mixture(model, seen, running(training_texts()), schedule, seed, added, look=look)
        reading = read(model, seen, byte_windows(N_HELD_OUT))
    return Run(model.eval(), tuple(steps), torch.stack(loads), reading)
