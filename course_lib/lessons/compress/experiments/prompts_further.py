"""The second part of the plan in prompts.py: settings, another text, the first questions."""

from course_lib.lessons.compress.experiments.prompts import further
from course_lib.lessons.compress.experiments.runs import QUICK, Sizes
from course_lib.measure.experiment import Experiment

EXPERIMENT = Experiment("Compress, then prompt: further", Sizes(), QUICK, further)
