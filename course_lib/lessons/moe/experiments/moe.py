"""Byte models with experts, with and without a balance loss: what experts gain, and how loads develop.

Claims of Shazeer and others (https://arxiv.org/abs/1701.06538) and of Switch (https://arxiv.org/abs/2101.03961) at the
scale of a laptop: a dense model, a model with one of 8 experts per byte, and one with two of 8 experts of half the
size. All need about as many multiplications per byte. The models with experts are trained with α = 0 and α = 0.01, all
of them with three seeds; no token is dropped.

Tables:

    held_out    loss on fewer windows during training, with the processor's seconds up to there
    loads       by step and block, of the bytes of that step: fractions of the choices, size of the router's logits
    models      at the end: weights, FLOP per byte, loss of every evaluation window, and for each block its loads, the
                size of its logits, and how much of the choice of expert the byte determines

`course reproduce moe_routers` adds other routers on the same bytes. A run is a step of about five minutes with
one thread, 75 minutes for all 15 (next to other work).
"""

from functools import partial

from course_lib.lessons.moe.experiments.runs import QUICK, SIZES, Sizes, run
from course_lib.measure.experiment import Experiment, Step


def steps(sizes: Sizes) -> list[Step]:
    """List all models of one seed, then those of the next."""
    return [
        Step(f"{name}, seed {seed}", partial(run, sizes, name, seed)) for seed in sizes.seeds for name in sizes.kinds
    ]


EXPERIMENT = Experiment("Experts with and without balance", SIZES, QUICK, steps)
