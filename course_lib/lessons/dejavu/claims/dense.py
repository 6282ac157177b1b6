"""The two models as they are: what everything is compared with."""

from course_lib.lessons.dejavu.claims.ground import loss_row, subject
from course_lib.lessons.dejavu.claims.sizes import Sizes
from course_lib.measure.experiment import Tables


def dense(sizes: Sizes, name: str, seed: int) -> Tables:
    """Perplexity with all neurons and all heads."""
    return {"dense": [loss_row(subject(sizes, name, seed))]}
