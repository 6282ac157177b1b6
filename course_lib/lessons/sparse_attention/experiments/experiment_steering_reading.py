"""AutoPASTA on SciQ with its supporting text, with the heads that were chosen on the residents.

What `course reproduce steering` left out; the plan, the tables and what they mean are in experiment_steering.py.
"""

from course_lib.lessons.sparse_attention.experiments.experiment_steering import QUICK, Sizes, further
from course_lib.measure.experiment import Experiment

EXPERIMENT = Experiment("Steered attention on SciQ", Sizes(), QUICK, further)
