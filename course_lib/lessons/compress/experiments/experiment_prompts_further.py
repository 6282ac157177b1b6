"""The second part of the plan in experiment_prompts.py, into a file of its own: settings, texts, first questions."""

from course_lib.lessons.compress.experiment_prompts import further
from course_lib.lessons.compress.measuring.sizes import QUICK, Sizes
from course_lib.measure.experiment import Experiment

EXPERIMENT = Experiment("Compress, then prompt: further", Sizes(), QUICK, further)
