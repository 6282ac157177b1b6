"""The last part of the plan in prompts.py: rivals on a structurally pruned model, questions, more models."""

from course_lib.lessons.compress.experiments.prompts import rest
from course_lib.lessons.compress.experiments.runs import QUICK, Sizes
from course_lib.measure.experiment import Experiment

EXPERIMENT = Experiment("Compress, then prompt: the rest", Sizes(), QUICK, rest)
