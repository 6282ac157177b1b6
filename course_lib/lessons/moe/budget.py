"""The open task of lesson 06: the lowest loss of a byte model with experts at a fixed number of FLOP per byte.

A weight that a byte is multiplied by costs two FLOP. The weights of experts that a byte does not use cost nothing, and
we leave out the scores of the attention, which are the same for all models with as many blocks and the same width.

Dimension key: N windows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from course_lib.attention.small_models.byte_model import byte_windows, untrained
from course_lib.attention.small_models.training import Schedule, running, training_texts
from course_lib.lessons.common.ideas import against
from course_lib.lessons.common.table import Table, number
from course_lib.moe.checks import check_count
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routing import Router
from course_lib.moe.small_models.byte_mixture import mixture_configuration, n_weights
from course_lib.moe.small_models.training import Balancing, read, routing, train_mixture

ROUTERS: dict[str, Callable[[int], Router]] = {"probabilities": OLMoE, "sum to one": Mixtral}
USUAL = {"experts": 8, "k": 2, "neurons": 96, "width": 96, "blocks": 2, "alpha": 0.01, "weights": "probabilities"}
BUDGET = 425_000  # FLOP per byte
MOST_WEIGHTS = 1_500_000  # in total, so that an attempt takes seconds
SIZES = {"width": 96, "n_blocks": 2, "n_heads": 3, "active": 192}  # of the usual model
N_HELD_OUT = 48


@dataclass(frozen=True)
class ConstantRate(Schedule):
    """After the warm-up the rate stays as it is: a few steps are the beginning of a training, not a short one."""

    def rate_at(self, step: int) -> float:
        return self.rate * min(1.0, (step + 1) / self.warm_up)


SCHEDULE = ConstantRate(n_steps=140, batch=16, length=128, rate=2e-3, warm_up=10, decay=0.1)

Choices = Mapping[str, object]


@dataclass(frozen=True)
class Attempt:
    """The result: FLOP per byte, all weights, and the loss of every held-out window in nats per byte."""

    flops: int
    weights: int
    losses: Float[Tensor, "N"]


def attempt(choices: object, seed: int = 0) -> Attempt:
    """Train a model with these choices for as many steps and on the same bytes as the notebook's own model.

    Raises:
        ValueError: unknown names, sizes that make no model, or a model above the budget.
    """
    wanted = checked(choices)
    used, weights = priced(wanted)
    model = untrained(mixture_configuration(wanted["experts"], wanted["k"], **sizes_of(wanted)), seed)
    with routing(model, ROUTERS[wanted["weights"]](wanted["k"]), seed) as seen:
        train_mixture(model, seen, running(training_texts()), SCHEDULE, seed, Balancing(wanted["alpha"]))
        losses = read(model, seen, byte_windows(N_HELD_OUT)).losses
    return Attempt(2 * used, weights, losses)


def sizes_of(wanted: Choices) -> dict[str, int]:
    """The sizes of the model; a head has as many channels as in the notebook's model, or more where that is uneven."""
    width, most = wanted["width"], max(1, wanted["width"] * SIZES["n_heads"] // SIZES["width"])
    return {
        "width": width,
        "n_blocks": wanted["blocks"],
        "n_heads": next(heads for heads in range(most, 0, -1) if width % (2 * heads) == 0),
        "active": wanted["k"] * wanted["neurons"],
    }


def priced(wanted: Choices) -> tuple[int, int]:
    """Count the weights that a byte is multiplied by, and all weights.

    Raises:
        ValueError: more than the budget allows.
    """
    model = untrained(mixture_configuration(wanted["experts"], wanted["k"], **sizes_of(wanted)), 0)
    weights, used = n_weights(model)
    for name, got, most in (("FLOP per byte", 2 * used, BUDGET), ("weights", weights, MOST_WEIGHTS)):
        if got > most:
            raise ValueError(f"got {got:,} {name}; expected at most {most:,}. Choose something smaller.")
    return used, weights


def checked(choices: object) -> dict:
    """Fill in the usual values of all choices that were not made.

    Raises:
        ValueError: an unknown choice, or a value that makes no model.
    """
    if not isinstance(choices, Mapping) or set(choices) - set(USUAL):
        raise ValueError(f"got {choices!r}; expected a dictionary with some of {', '.join(USUAL)}.")
    wanted = USUAL | dict(choices)
    if wanted["weights"] not in ROUTERS:
        raise ValueError(f"got weights {wanted['weights']!r}; expected one of {', '.join(ROUTERS)}.")
    for name in ("experts", "k", "neurons", "width", "blocks"):
        check_count(name, wanted[name])
    if wanted["width"] % 2:
        raise ValueError(
            f"got width {wanted['width']}; expected an even number, because heads rotate their channels in pairs."
        )
    return wanted


def table(mine: Attempt, usual: Attempt) -> Table:
    """Your model compared with the usual one, window by window."""
    lower, error = against(mine.losses, usual.losses)
    return Table(
        [
            {"model": name, "FLOP per byte": made.flops, "weights": made.weights}
            | {"loss (nats per byte)": made.losses.mean().item()}
            for name, made in (("usual", usual), ("yours", mine))
        ],
        caption="Your mixture and the usual one",
        formats={"FLOP per byte": number(), "weights": number(), "loss (nats per byte)": number(3)},
        note=f"Yours is {lower:+.3f} ± {error:.3f} nats per byte lower, {len(mine.losses)} windows.",
    )
