"""Models of bytes with experts, with a balance loss and without: what experts bring, and what becomes of their loads.

Claims of Shazeer and others (https://arxiv.org/abs/1701.06538) and of Switch (https://arxiv.org/abs/2101.03961) at the
scale of a laptop. A dense model, one of 8 experts a byte, two of 8 of half the size: as many products a byte in all.
Each with α = 0 and α = 0.01, from three seeds; nothing is dropped.

Tables:

    held_out    loss on fewer windows on the way, with the processor's seconds up to there
    loads       by step and block, of the bytes of that step: shares of choices, size of the gate's logits
    models      in the end: weights, FLOP a byte, loss of every evaluation window, and for each block its loads, the
                size of its logits, and how much of the expert the byte decides

`course reproduce moe_routers` adds other routers on the same bytes. A run is a step of about five minutes with
one thread, 75 for all 15 (beside other work). The steps are in experiments/steps/.
"""

from functools import partial

from course_lib.lessons.moe.experiments.steps.runs import QUICK, SIZES, Sizes, run
from course_lib.measure.experiment import Experiment, Step


def steps(sizes: Sizes) -> list[Step]:
    """All models of a seed before those of the next."""
    return [
        Step(f"{name}, seed {seed}", partial(run, sizes, name, seed)) for seed in sizes.seeds for name in sizes.kinds
    ]


EXPERIMENT = Experiment("Experts with and without balance", SIZES, QUICK, steps)
