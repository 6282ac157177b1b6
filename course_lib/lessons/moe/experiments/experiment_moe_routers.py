"""Other routers over the same experts: jitter, a z-loss, a bias in place of the balance loss, experts that choose.

Seeds, bytes and tables are those of `course reproduce moe`, so that a model here has its twin there: "top-1, balanced"
for jitter, "top-2, balanced" for the z-loss. "top-2, sigmoid" is the twin of the bias. One table more:

    future    of the model whose experts choose: its loss read by expert choice, which sees later bytes, and with each
              byte choosing; and the share of earlier bytes that change experts when the last one is exchanged

A run is a step of about seven minutes with one thread, 100 for all 15 (beside other work).
"""

from dataclasses import replace
from functools import partial

from course_lib.lessons.moe.experiments.steps.future import future
from course_lib.lessons.moe.experiments.steps.kinds import KINDS
from course_lib.lessons.moe.experiments.steps.runs import QUICK, SIZES, Sizes, run
from course_lib.measure.experiment import Experiment, Step, Tables

NAMES = (
    "top-1, balanced, jitter", "top-2, balanced, z-loss", "top-2, sigmoid", "top-2, sigmoid, bias", "expert choice",
)  # fmt: skip


def steps(sizes: Sizes) -> list[Step]:
    """All models of a seed before those of the next."""
    return [
        Step(f"{name}, seed {seed}", partial(measured, sizes, name, seed))
        for seed in sizes.seeds
        for name in sizes.kinds
    ]


def measured(sizes: Sizes, name: str, seed_of_run: int, seed: int) -> Tables:
    """One run; where experts choose, also what they see."""
    look = future if KINDS[name].router.chooses == "tokens" else None
    return run(sizes, name, seed_of_run, seed, look)


EXPERIMENT = Experiment(
    "Other routers over the same experts",
    replace(SIZES, kinds=NAMES),
    replace(QUICK, kinds=NAMES, seeds=(0,)),
    steps,
)
