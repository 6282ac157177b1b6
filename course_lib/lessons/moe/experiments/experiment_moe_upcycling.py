"""Experts from a dense model: what copies compute, and whether they learn more than the model they were copied from.

Tables:

    copies       the default model's MLPs as four equal experts: perplexity by router, distance of the logits
    gradients    the model of bytes at the start: norms of the task's gradient on gates and on experts
    models       before and after 200 steps, as those of `course reproduce moe`, with the column steps
    held_out, loads    on the way, as there

The dense model of bytes is the one of `course reproduce byte_model`; its bytes are read again by all, in the same order
for a seed. Two copies a byte make twice the products of its MLPs: FLOP stand beside. 23 minutes with
one thread.
"""

from dataclasses import dataclass, field, replace
from functools import partial

from course_lib.attention.small_models.training import Schedule
from course_lib.lessons.moe.experiments.steps import runs
from course_lib.lessons.moe.experiments.steps.copies import copied
from course_lib.lessons.moe.experiments.steps.trained_on import NAMES, learnt
from course_lib.measure.experiment import Experiment, Step
from course_lib.models import DEFAULT_MODEL

BYTES = runs.Sizes(
    NAMES, n_experts=4, schedule=Schedule(200, 16, 128, 1e-3, 20, 0.1), looks=(25, 50, 100, 200),
    loads=(1, 10, 25, 50, 100, 200),
)  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Windows of the default model, and what the models of bytes learn."""

    model: str = DEFAULT_MODEL
    n_experts: int = 4
    windows: int = 20
    length: int = 256
    bytes: runs.Sizes = field(default_factory=lambda: BYTES)


QUICK = Sizes(
    windows=2, length=16,
    bytes=replace(
        BYTES, seeds=(0,), schedule=Schedule(2, 2, 16, 1e-3, 1, 0.1), texts=3, looks=(1, 2), loads=(1, 2), fewer=2,
        evaluation=3,
    ),
)  # fmt: skip


def steps(sizes: Sizes) -> list[Step]:
    of_text = (sizes.n_experts, sizes.windows, sizes.length)
    plan = [Step("copies", partial(copied, sizes.model, *of_text))]
    for seed in sizes.bytes.seeds:
        plan += [Step(f"{name}, seed {seed}", partial(learnt, sizes.bytes, name, seed)) for name in sizes.bytes.kinds]
    return plan


EXPERIMENT = Experiment("Experts from a dense model", Sizes(), QUICK, steps)
