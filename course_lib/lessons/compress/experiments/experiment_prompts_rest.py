"""The last part of the plan in experiment_prompts.py: a cut model's rivals, the other questions, more models."""

from course_lib.lessons.compress.experiment_prompts import rest
from course_lib.lessons.compress.measuring.sizes import QUICK, Sizes
from course_lib.measure.experiment import Experiment

EXPERIMENT = Experiment("Compress, then prompt: the rest", Sizes(), QUICK, rest)
