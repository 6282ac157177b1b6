"""Choose the weights to keep, with a kernel where possible, else with the pattern's own code. Both give equal masks.

Dimension key: O outputs of a layer, I its inputs, G comparison groups, S entries in a group.
"""

from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.kernels.dispatch import kernel_for
from course_lib.sparsity import ranking
from course_lib.sparsity.patterns import NofM, Pattern, Unstructured
from course_lib.sparsity.ranking import n_pruned


def keep(pattern: Pattern, score: Float[Tensor, "O I"]) -> Bool[Tensor, "O I"]:
    """Return pattern.keep(score)."""
    chosen = choose(pattern, score.detach(), None, "keep")
    return pattern.keep(score) if chosen is None else chosen


def choose(
    pattern: Pattern,
    weight: Float[Tensor, "O I"],
    norm: Float[Tensor, "I"] | None,
    write: Literal["keep", "weight"],
) -> Tensor | None:
    """Return the mask or the pruned weight for the score |w_ij| · norm_j, which is not stored. None if no kernel runs.

    Without norms, the weight itself is the score. The kernel synchronises with the GPU once, to refuse NaN.
    """
    kernel, counts = None, ()
    if type(pattern) is NofM:
        kernel, counts = kernel_for("weights.wanda_mask", weight, m=pattern.m), (pattern.n, pattern.m)
    elif type(pattern) is Unstructured and pattern.per == "row" and pattern.size == 1:
        counts = (n_pruned(weight.shape[-1], pattern.sparsity),)
        kernel = kernel_for("weights.row_mask", weight, n_leaving=counts[0])
    return getattr(kernel.launch(weight, norm, *counts, write), write) if kernel else None


def keep_highest(score: Float[Tensor, "G S"], n_leaving: int) -> Bool[Tensor, "G S"]:
    """Return the mask of sparsity.ranking.keep_highest for a score without NaN, without synchronising with a GPU."""
    if kernel := kernel_for("weights.row_mask", score, n_leaving=n_leaving):
        return kernel.enqueue(score, None, n_leaving, "keep")[0].keep
    return ranking.keep_highest(score, n_leaving)
