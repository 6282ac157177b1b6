"""FlexPrefill once more: the code as released, γ without the floor under a head's budget, and other lengths.

What `course reproduce sparse_attention` left out; the plan, the tables and what they mean are in experiment_sparse_attention.py.
"""

from course_lib.lessons.sparse_attention.experiments.experiment_sparse_attention import QUICK, Sizes, further
from course_lib.measure.experiment import Experiment

EXPERIMENT = Experiment("FlexPrefill, other lengths and the code as released", Sizes(), QUICK, further)
