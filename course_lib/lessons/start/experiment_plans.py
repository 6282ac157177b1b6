"""Simple ideas for the open task of lesson 00: what to leave out so that a step of decoding is twice as fast."""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.start.plans import IDEAS, attempt, one_thread
from course_lib.lessons.start.plans import row as as_row
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.measure.machine import measure_device
from course_lib.models import load_model


@dataclass(frozen=True)
class Sizes:
    """Which ideas, in how many pairs of steps."""

    ideas: tuple[str, ...] = tuple(IDEAS)
    pairs: int = 30


def steps(sizes: Sizes) -> list[Step]:
    return [Step("machine", machine), *(Step(idea, partial(row, idea, sizes.pairs)) for idea in sizes.ideas)]


def machine(seed: int) -> Tables:
    """The two rates of one thread of this machine."""
    with one_thread():
        found = measure_device("cpu")
    rates = {"flops_per_second": found.flops_per_second, "bytes_per_second": found.bytes_per_second}
    return {"machine": [{"name": found.name} | rates]}


def row(idea: str, n_pairs: int, seed: int) -> Tables:
    """Steps of the whole model and of the reduced one, in turns."""
    model, _ = load_model(device="cpu")
    return {"ideas": [as_row(idea, attempt(model, IDEAS[idea], n_pairs, seconds=60.0))]}


EXPERIMENT = Experiment("Twice as fast", Sizes(), Sizes(("one answer, half of the neurons",), 5), steps)
