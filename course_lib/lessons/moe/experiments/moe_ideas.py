"""Simple ideas for the open task of lesson 06: the lowest loss of a byte model at a fixed number of FLOP per byte.

One table, ideas. Two seeds per idea, because another seed can change the loss as much as an idea. Six minutes with one
thread, as its result says step by step. Attempts are defined in budget.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from course_lib.lessons.common.ideas import against
from course_lib.lessons.common.table import Table, number, plus_minus
from course_lib.lessons.moe.budget import Attempt, Choices, attempt
from course_lib.measure.experiment import Experiment, Step, Tables

IDEAS: dict[str, Choices] = {
    "the usual model": {},
    "weights that sum to one": {"weights": "sum to one"},
    "no balance loss": {"alpha": 0.0},
    "one expert of twice the size": {"k": 1, "neurons": 192},
    "16 experts": {"experts": 16},
    "two experts, both used": {"experts": 2},
    "three narrow blocks": {"blocks": 3, "width": 72, "neurons": 90},
}


def measured(idea: str, seed_of_run: int, seed: int) -> Tables:
    """Measure one idea: FLOP per byte, weights, and the loss of every held-out window."""
    made = attempt(IDEAS[idea], seed + seed_of_run)
    row = {"idea": idea, "seed": seed + seed_of_run, "flops": made.flops, "weights": made.weights}
    return {"ideas": [row | {"losses": [round(loss, 5) for loss in made.losses.tolist()]}]}


def stored(rows: Sequence[dict]) -> dict[str, list[Attempt]]:
    """Return the measured ideas from the rows of a result, one attempt per seed."""
    found: dict[str, list[Attempt]] = {}
    for row in rows:
        found.setdefault(row["idea"], []).append(Attempt(row["flops"], row["weights"], torch.tensor(row["losses"])))
    return found


def table(ideas: Mapping[str, Sequence[Attempt]]) -> Table:
    """Compare each idea with the first one, seed by seed, on the same bytes."""
    first, *_ = ideas.values()
    seeds = [f"seed {seed}: lower than the first" for seed in range(len(first))]
    frame = []
    for name, made in ideas.items():
        mean = sum(float(each.losses.mean()) for each in made) / len(made)
        row = {"idea": name, "FLOP per byte": made[0].flops, "weights": made[0].weights, "loss (nats per byte)": mean}
        for heading, each, same in zip(seeds, made, first, strict=True):
            lower, error = (None, None) if made is first else against(each.losses, same.losses)
            row |= {heading: lower, f"{heading}, error": error}
        frame.append(row)
    return Table(
        frame,
        caption="Mixtures of experts within one budget",
        formats={"FLOP per byte": number(), "weights": number(), "loss (nats per byte)": number(3)}
        | {(heading, f"{heading}, error"): plus_minus(3, sign=True) for heading in seeds},
        note="± one standard error over the windows.",
    )


@dataclass(frozen=True)
class Sizes:
    """The ideas to measure, and the seeds."""

    ideas: tuple[str, ...] = tuple(IDEAS)
    seeds: tuple[int, ...] = (0, 1)


def steps(sizes: Sizes) -> list[Step]:
    """List all ideas with one seed, then with the next."""
    return [Step(f"{idea}, seed {seed}", partial(measured, idea, seed)) for seed in sizes.seeds for idea in sizes.ideas]


EXPERIMENT = Experiment("Byte models of equal FLOP", Sizes(), Sizes(("16 experts",), (0,)), steps)
