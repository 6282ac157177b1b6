"""The open task of lesson 06: the lowest loss of a byte model with experts at a fixed number of FLOP a byte.

A weight that a byte meets costs two FLOP. What lies in experts that it does not go to is free; so are the scores of the
attention, which are the same for all that have equally many blocks and width.

Dimension key: N windows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from course_lib.attention.small_models.byte_model import untrained
from course_lib.lessons.common.ideas import against
from course_lib.lessons.common.table import Table, number
from course_lib.lessons.moe.live.training import SCHEDULE, SIZES, Run, learn
from course_lib.moe.checks import check_count
from course_lib.moe.routers.mixtral import Mixtral
from course_lib.moe.routers.olmoe import OLMoE
from course_lib.moe.routing import Router
from course_lib.moe.small_models.byte_mixture import mixture_configuration, n_weights
from course_lib.moe.small_models.training import Balancing

ROUTERS: dict[str, Callable[[int], Router]] = {"probabilities": OLMoE, "sum to one": Mixtral}
USUAL = {"experts": 8, "k": 2, "neurons": 96, "width": 96, "blocks": 2, "alpha": 0.01, "weights": "probabilities"}
BUDGET = 425_000  # FLOP a byte
MOST_WEIGHTS = 1_500_000  # all of them, so that an attempt takes seconds

Choices = Mapping[str, object]


@dataclass(frozen=True)
class Attempt:
    """What came of it: FLOP a byte, all weights, and the loss of every held-out window in nats a byte."""

    flops: int
    weights: int
    losses: Float[Tensor, "N"]


def attempt(choices: object, seed: int = 0) -> Attempt:
    """Train a model of these choices on the steps of the notebook's own run.

    Raises:
        ValueError: for unknown names, sizes that make no model, or one above the budget.
    """
    wanted = checked(choices)
    sizes = sizes_of(wanted)
    router = ROUTERS[wanted["weights"]](wanted["k"])
    met, weights = priced(wanted)
    run = learn(router, wanted["experts"], Balancing(wanted["alpha"]), sizes, SCHEDULE, seed)
    return Attempt(2 * met, weights, run.reading.losses)


def usual(run: Run) -> Attempt:
    """The notebook's own run as an attempt, so that it is not trained again."""
    weights, met = n_weights(run.model)
    return Attempt(2 * met, weights, run.reading.losses)


def sizes_of(wanted: Choices) -> dict[str, int]:
    """As `learn` takes them; a head has as many channels as in the notebook's own run, or more where that is uneven."""
    width, most = wanted["width"], max(1, wanted["width"] * SIZES["n_heads"] // SIZES["width"])
    return {
        "width": width,
        "n_blocks": wanted["blocks"],
        "n_heads": next(heads for heads in range(most, 0, -1) if width % (2 * heads) == 0),
        "active": wanted["k"] * wanted["neurons"],
    }


def priced(wanted: Choices) -> tuple[int, int]:
    """How many weights a byte meets, and how many there are.

    Raises:
        ValueError: for more than the budget allows.
    """
    model = untrained(mixture_configuration(wanted["experts"], wanted["k"], **sizes_of(wanted)), 0)
    weights, met = n_weights(model)
    for name, got, most in (("FLOP a byte", 2 * met, BUDGET), ("weights", weights, MOST_WEIGHTS)):
        if got > most:
            raise ValueError(f"got {got:,} {name}; expected at most {most:,}. Make something smaller, or choose fewer.")
    return met, weights


def checked(choices: object) -> dict:
    """All choices, those that were not made as usual.

    Raises:
        ValueError: for what is no choice.
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
            f"got width {wanted['width']}; expected an even number, for the channels of heads turn in pairs."
        )
    return wanted


def table(mine: Attempt, usual: Attempt) -> Table:
    """Yours compared with the usual one, window by window."""
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
