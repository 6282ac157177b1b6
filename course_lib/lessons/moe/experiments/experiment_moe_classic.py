"""Mixtures before transformers: vowels (1991), trees by EM (1994), experts between LSTMs (2017).

Tables:

    vowels       ten starts of each learner: test accuracy, that by the one most likely expert, epochs to two shares
    arm          trees of three depths, five draws of samples: log-likelihood and error after every EM step
    recurrent    bytes: loss by step and on held-out windows, loads in the end, three seeds

Six minutes with one thread.
"""

from dataclasses import dataclass, field
from functools import partial

from course_lib.attention.small_models.training import Schedule
from course_lib.lessons.moe.experiments.steps.recurrent import MIDDLES, recurrent
from course_lib.lessons.moe.experiments.steps.trees import arm
from course_lib.lessons.moe.experiments.steps.vowels import LEARNERS, vowels
from course_lib.measure.experiment import Experiment, Step


@dataclass(frozen=True)
class Sizes:
    """Starts, steps and samples."""

    starts: int = 10
    epochs: int = 2500
    rate: float = 0.5
    depths: tuple[int, ...] = (0, 2, 4)
    arm_training: int = 2000
    arm_test: int = 1000
    em_steps: int = 35
    draws: int = 5
    width: int = 128
    active: int = 512
    schedule: Schedule = field(default_factory=lambda: Schedule(400, 16, 128, 1e-2, 40, 0.01))
    every: int = 20
    windows: int = 96
    seeds: int = 3


QUICK = Sizes(
    2, 5, arm_training=60, arm_test=20, em_steps=2, draws=1, width=12, active=16,
    schedule=Schedule(4, 2, 16, 1e-2, 2, 0.01), every=2, windows=2, seeds=1,
)  # fmt: skip


def steps(sizes: Sizes) -> list[Step]:
    plan = [Step(name, partial(vowels, name, sizes.starts, sizes.epochs, sizes.rate)) for name in LEARNERS]
    of_arm = (sizes.arm_training, sizes.arm_test, sizes.em_steps)
    for depth in sizes.depths:
        plan += [Step(f"arm: depth {depth}, draw {n}", partial(arm, depth, *of_arm, n)) for n in range(sizes.draws)]
    of_bytes = (sizes.width, sizes.active, sizes.schedule, sizes.windows, sizes.every)
    for seed in range(sizes.seeds):
        plan += [Step(f"LSTM, {name}, seed {seed}", partial(recurrent, name, *of_bytes, seed)) for name in MIDDLES]
    return plan


EXPERIMENT = Experiment("Mixtures before transformers", Sizes(), QUICK, steps)
