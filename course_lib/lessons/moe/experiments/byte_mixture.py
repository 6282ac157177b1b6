"""Train the small byte model with experts that the course keeps from scratch, and measure its loads and the result.

Two of eight experts per byte, a balance loss with α = 0.01. The run writes the weights into moe/small_models/weights;
four minutes of one processor.

Tables: held_out, loads and models, as in `course reproduce moe`, with loads at more steps.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from course_lib.attention.small_models.byte_model import byte_windows, load_half, save_half
from course_lib.attention.small_models.training import Schedule
from course_lib.lessons.moe.experiments.runs import KINDS, Sizes, model_row, trained
from course_lib.measure.experiment import QUICK_RESULTS, Experiment, Step, Tables
from course_lib.moe.small_models.byte_mixture import NAME, WEIGHTS
from course_lib.moe.small_models.training import read, routing

KEPT = "top-2, balanced"
EVERY = tuple(range(20, 801, 20))
SIZES = Sizes((KEPT,), (0,), looks=EVERY[4::5], loads=(1, 5, 10, *EVERY))
QUICK = replace(
    SIZES, width=16, n_blocks=2, n_heads=2, active=24, schedule=Schedule(4, 2, 32, 1e-2, 2, 0.1), texts=3,
    looks=(2, 4), loads=(1, 4), fewer=2, evaluation=3,
)  # fmt: skip


def steps(sizes: Sizes) -> list[Step]:
    return [Step("train", partial(train, sizes))]


def folder(sizes: Sizes) -> Path:
    """Return the folder of the weights: a quick run never overwrites the committed ones."""
    return WEIGHTS if sizes == SIZES else QUICK_RESULTS / NAME


def train(sizes: Sizes, seed: int) -> Tables:
    """Train, write the weights, and measure the model as it was written, in half precision."""
    tables: Tables = {}
    (name,) = sizes.kinds
    with trained(sizes, name, seed, tables) as (model, _):
        pass
    path = save_half(model, folder(sizes), NAME)
    kept, windows = load_half(folder(sizes), NAME), byte_windows(sizes.evaluation)
    with routing(kept, KINDS[name].router) as seen:
        row = model_row(kept, read(kept, seen, windows), windows)
    label = {"model": name, "seed": seed, "bytes": path.stat().st_size}
    label |= {"read": sizes.schedule.n_steps * sizes.schedule.batch * sizes.schedule.length}
    return tables | {"models": [label | row]}


EXPERIMENT = Experiment("A small model of bytes with experts", SIZES, QUICK, steps)
