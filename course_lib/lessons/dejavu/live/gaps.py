"""Ways to choose beside each other, window by window.

Dimension key: N windows.
"""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.verdicts import Effect, of_samples

Curves = Mapping[str, Mapping[float, Float[Tensor, "N"]]]  # by way of choosing, by the share that stays: window losses


def gap(better: Float[Tensor, "N"], worse: Float[Tensor, "N"]) -> Effect:
    """By how many nats a token one is above the other, window by window."""
    return of_samples((worse - better).tolist())
