"""Training without a teacher, from pruned and from random weights, for as many FLOP as the run with the teacher.

minitron.py measures the run with the KL loss, with the same shape, text and evaluation windows. Without a teacher a
step costs 1 / 1.396 of a KL step, so there are more of them.

Table: curves, the perplexity after some steps with the loss of every window, and the FLOP so far; training, the losses
of the steps. Minutes on two idle cores: next token 30, from scratch 15. A step takes minutes.
"""

from course_lib.lessons.minitron.experiments.ground import QUICK, Sizes
from course_lib.lessons.minitron.experiments.training import NEXT, SCRATCH, in_pieces
from course_lib.measure.experiment import Experiment, Step


def steps(sizes: Sizes) -> list[Step]:
    pieces = in_pieces(sizes, NEXT, sizes.next_token) + in_pieces(sizes, SCRATCH, sizes.scratch)
    return [Step(name, run) for name, run in pieces]


EXPERIMENT = Experiment("Learning without a teacher, at equal compute", Sizes(), QUICK, steps)
