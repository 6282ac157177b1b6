"""Wanda: pruning by weights and activations. Sun, Liu, Bair, Kolter, 2023. https://arxiv.org/abs/2306.11695"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.pruning.base import LayerPruner
from course_lib.pruning.layerwise.gram import Gram, Needs
from course_lib.pruning.layerwise.selection import choose
from course_lib.sparsity.patterns import Pattern
from course_lib.sparsity.ranking import check_sparsity, n_pruned


class Wanda(LayerPruner):
    """Score |W_ij|·‖X_j‖₂ (eq. 1): the importance of a weight is its size times the norm of its input.

    The paper compares within each output row, the default pattern Unstructured(0.5, per="row"). Its `per` and `size`
    give the comparison groups of the paper's ablation; NofM(2, 4) gives 2:4.
    """

    needs: ClassVar[Needs] = "diagonal"

    def _score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        return weight.abs().float() * inputs.diagonal.sqrt()

    def _keep(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Bool[Tensor, "O I"]:
        keep = self._in_one_pass(weight.detach(), inputs, "keep")
        return super()._keep(weight, inputs) if keep is None else keep

    def _prune(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        pruned = self._in_one_pass(weight, inputs, "weight")
        return super()._prune(weight, inputs) if pruned is None else pruned

    def _in_one_pass(self, weight: Tensor, inputs: Gram, write: Literal["keep", "weight"]) -> Tensor | None:
        """Compute the mask or weight with a kernel, without storing the score; None if no kernel runs."""
        if type(self)._score is not Wanda._score:
            return None
        return choose(self.pattern, weight, inputs.diagonal.sqrt(), write)


@dataclass(frozen=True)
class CumulativeRows(Pattern):
    """The alpha search of the public code: each row drops its lowest scores up to a fraction alpha of the row's sum.

    So rows differ in sparsity. Bisection finds the one alpha with which the whole layer meets the target. Use it as
    Wanda(CumulativeRows(0.5)).

    Deviation: the public code stops within 0.001 of the target; here the search continues until no alpha fits better,
    and raises no error if ties leave a gap.
    """

    sparsity: float = 0.5

    def __post_init__(self) -> None:
        check_sparsity(self.sparsity)

    def _keep(self, score: Float[Tensor, "O I"]) -> Bool[Tensor, "O I"]:
        ordered, order = score.double().sort(dim=1, stable=True)
        share = ordered.cumsum(dim=1) / ordered.sum(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
        drop = share <= self._alpha(share)
        return ~torch.zeros_like(drop).scatter(1, order, drop)

    def _alpha(self, share: Float[Tensor, "O I"]) -> float:
        # The largest alpha that drops at most the target: bisection on a count that grows with alpha.
        target, low, high = n_pruned(share.numel(), self.sparsity), -1.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if int((share <= middle).sum()) <= target else (low, middle)
        return low
