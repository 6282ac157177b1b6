"""The parts of the plan that the experiments `sparse_attention` and `steering` left out.

FlexPrefill as released, without the floor under a head's budget, and on other lengths of text; and AutoPASTA on SciQ,
with the heads that were chosen on the residents, which are searched again first. Tables and what they mean are those of
the two. Minutes planned on one idle core: 15.
"""

from dataclasses import dataclass, field

from course_lib.lessons.sparse_attention.experiments import sparse_attention, steering, steering_sets
from course_lib.measure.experiment import Experiment, Step


@dataclass(frozen=True)
class Sizes:
    """The sizes of both experiments."""

    prefill: sparse_attention.Sizes = field(default_factory=sparse_attention.Sizes)
    steering: steering_sets.Sizes = field(default_factory=steering_sets.Sizes)


def steps(sizes: Sizes) -> list[Step]:
    return sparse_attention.further(sizes.prefill) + steering.further(sizes.steering)


QUICK = Sizes(sparse_attention.QUICK, steering_sets.QUICK)
EXPERIMENT = Experiment("FlexPrefill and AutoPASTA, the rest of the plan", Sizes(), QUICK, steps)
