"""How much one window decides of a grade of the challenge, at half as many windows as the grader takes.

Tables as those of `course reproduce challenge_class`; the points that leaving out a window moves are worked out from
the losses when they are read. Minutes planned on one idle core: 25.
"""

from dataclasses import replace

from synthetic.experiment_challenge_class import QUICK, SEED, Sizes, steps

from course_lib.measure.experiment import Experiment

SIZES = Sizes((0.75, 0.72, 0.69, 0.66, 0.63), (0.2,), windows=16)
EXPERIMENT = Experiment("How much one window decides of a grade", SIZES, replace(QUICK, budgets=(0.2,)), steps, SEED)
