"""Models of one seed compared: how the claims of lesson 06 are measured, from stored results.

Models of one seed read the same bytes in the same order. A claim is about a method, so the sample is the seeds
(trainings), not the windows that one training was evaluated on.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from course_lib.lessons.common.results import Measured, rows
from course_lib.lessons.common.verdicts import Effect, of_samples

Row = dict[str, Any]
Estimates = dict[str, Effect]
HALF = 0.5  # of all choices of a block


def joined(measured: Measured, routers: Measured) -> Measured:
    """The rows of both.

    Raises:
        ValueError: for results of other bytes, steps or windows.
    """
    sizes = [{key: value for key, value in each["sizes"].items() if key != "kinds"} for each in (measured, routers)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"got results of sizes {sizes[0]} and {sizes[1]}; expected the same. Measure both again.")
    tables = (measured["tables"], routers["tables"])
    names = dict.fromkeys(name for each in tables for name in each)
    return {"tables": {name: [row for each in tables for row in each.get(name, ())] for name in names}}


def lower(measured: Measured, better: str, worse: str, table: str = "models", **wanted: Any) -> Estimates:
    """By seed: the loss of one kind of model minus that of another in nats per byte, window by window."""
    return gains(rows(measured, table, model=better, **wanted), rows(measured, table, model=worse, **wanted))


def gains(better: Sequence[Row], worse: Sequence[Row]) -> Estimates:
    """By seed: by how much the losses of the second rows are above those of the first."""
    return {f"seed {seed}": of_samples(samples) for seed, samples in _differences(better, worse).items()}


def over_seeds(by_seed: Estimates) -> Effect:
    """The mean of the seeds' values, each of which is a sample, whatever its own error over windows."""
    return of_samples([effect.value for effect in by_seed.values()])


def _differences(better: Sequence[Row], worse: Sequence[Row]) -> dict[int, list[float]]:
    other = {row["seed"]: row["losses"] for row in worse}
    return {
        row["seed"]: [high - low for low, high in zip(row["losses"], other[row["seed"]], strict=True)] for row in better
    }


def costs_more(found: Measured, expensive: tuple[str, str], cheap: tuple[str, str]) -> Estimates:
    """By seed: the loss of the second model minus the first, in the expensive pair minus that in the cheap one."""
    costs = [_differences(*(rows(found, "models", model=name) for name in pair)) for pair in (expensive, cheap)]
    return {
        f"seed {seed}": of_samples([a - b for a, b in zip(costs[0][seed], costs[1][seed], strict=True)])
        for seed in costs[0]
    }


def busiest(block: Row) -> float:
    """The fraction of a block's choices that the expert with most of them has."""
    return max(block["load"])


def of_seeds(found: Measured, name: str, key: str | Callable[[Row], float]) -> dict[int, float]:
    """By seed: a number of each block, the mean over blocks."""
    of_block = key if callable(key) else lambda block: block[key]
    return {row["seed"]: fmean(map(of_block, row["blocks"])) for row in rows(found, "models", model=name)}


def falls(found: Measured, name: str, control: str, key: str | Callable[[Row], float]) -> Effect:
    """By how much that number is lower than the matched control's; a seed is a sample."""
    mine, theirs = (of_seeds(found, each, key) for each in (name, control))
    return of_samples([theirs[seed] - mine[seed] for seed in mine])


def with_and_without(found: Measured, name: str, control: str, key: str) -> str:
    """Both numbers: "5.88 with it, 6.39 without", means over blocks and seeds."""
    with_it, without = (fmean(of_seeds(found, each, key).values()) for each in (name, control))
    return f"{with_it:.2f} with it, {without:.2f} without"


def collapsed(measured: Measured, name: str, k: int) -> Effect:
    """The fraction of the blocks in which the k busiest experts have more than half of all choices; n seeds."""
    return of_samples([fmean(blocks) for blocks in _is_collapsed(measured, name, k)])


def collapsed_blocks(measured: Measured, name: str, k: int) -> str:
    """The same as counts: "in 1, 1, 1 of 4 blocks (3 seeds)"."""
    by_seed = _is_collapsed(measured, name, k)
    return f"in {', '.join(str(sum(blocks)) for blocks in by_seed)} of {len(by_seed[0])} blocks ({len(by_seed)} seeds)"


def _is_collapsed(measured: Measured, name: str, k: int) -> list[list[bool]]:
    """By seed, for each block."""
    return [
        [sum(sorted(block["load"])[-k:]) > HALF for block in row["blocks"]]
        for row in rows(measured, "models", model=name)
    ]


def from_start(measured: Measured, key: str, name: str, other: str) -> Effect:
    """By how much a learner of vowels is above another, start by start."""
    mine, theirs = (
        {row["seed"]: row[key] for row in rows(measured, "vowels", learner=which)} for which in (name, other)
    )
    return of_samples([float(mine[seed] - theirs[seed]) for seed in mine])


def rising(measured: Measured) -> tuple[int, int]:
    """In how many runs of EM no step lowers the likelihood, and how many runs there are."""
    climbing = [row["log_likelihood"] for row in rows(measured, "arm") if row["log_likelihood"]]
    return sum(map(_rises, climbing)), len(climbing)


def _rises(climb: list[float]) -> bool:
    slack = 1e-9 * max(map(abs, climb))  # of rounding
    return all(after >= before - slack for before, after in pairwise(climb))


def less_biased(gradients: Measured, name: str, than: str) -> Estimates:
    """By kind of loss: the relative bias of one estimator's gradient minus that of another, problem by problem."""
    effects = {}
    for loss in dict.fromkeys(row["loss"] for row in rows(gradients, "estimators")):
        other, mine = (rows(gradients, "estimators", loss=loss, estimator=which)[0]["biases"] for which in (than, name))
        effects[loss] = of_samples([a - b for a, b in zip(other, mine, strict=True)])
    return effects
