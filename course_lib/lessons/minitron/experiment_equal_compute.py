"""What a student learns from the text alone, and one with random weights, for as many FLOP as learning by KL costs.

The curve by KL is measured by experiment.py, with the same shape, text and evaluation windows. Without a teacher a step
costs 1 / 1.396 of one by KL, so that there are more of them.

Table: curves, the perplexity after some steps with the loss of every window, and the FLOP so far; training, the losses
of the steps. Minutes on two idle cores: next token 30, from scratch 15. A step takes minutes.
"""

from course_lib.lessons.minitron.experiments.sizes import QUICK, Sizes
from course_lib.lessons.minitron.experiments.training import NEXT, SCRATCH, in_pieces
from course_lib.measure.experiment import Experiment, Step


def steps(sizes: Sizes) -> list[Step]:
    pieces = in_pieces(sizes, NEXT, sizes.next_token) + in_pieces(sizes, SCRATCH, sizes.scratch)
    return [Step(name, run) for name, run in pieces]


EXPERIMENT = Experiment("Learning without a teacher, at equal compute", Sizes(), QUICK, steps)
