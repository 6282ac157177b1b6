"""How much worse a model is than the dense one, from windows that both have read.

Dimension key: D domains, N windows.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.compose.front import ERRORS
from course_lib.measure.paired import mean_and_error


def ratio_of_perplexities(
    losses: Float[Tensor, "D N"], dense: Float[Tensor, "D N"]
) -> tuple[Float[Tensor, "D"], Float[Tensor, "D"], Float[Tensor, "D"]]:
    """exp of the mean difference of the losses, and the ends of an interval of two standard errors to either side."""
    found = [mean_and_error(differences) for differences in losses.double() - dense.double()]
    middle, error = (torch.tensor(each, dtype=torch.float64) for each in zip(*found, strict=True))
    return middle.exp(), (middle - ERRORS * error).exp(), (middle + ERRORS * error).exp()
