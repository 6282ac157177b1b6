"""LLM-Pruner. Ma, Fang, Wang, On the Structural Pruning of Large Language Models, 2023. https://arxiv.org/abs/2305.11627"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.models import Layer, weight_of
from course_lib.pruning.methods.fisher import ELEMENTS, element_score
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence, Scorer, by_group, group_sums
from course_lib.settings import check_option

REDUCE = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "prod": torch.prod}


@dataclass(frozen=True)
class LLMPruner(Scorer):
    """Estimate by Taylor expansion how the loss L changes if a group's weights w become zero; g = ∂L/∂w (section 3.2).

    Each matrix of the group contributes Σ |w g| ("param_first"), Σ w F w ("param_second"), Σ |w g − w F w / 2|
    ("param_mix") or |Σ w g| ("vectorize"), with F the mean squared gradient of a window. The score is the sum, mean,
    max or product of these numbers.
    """

    element: Literal["param_first", "param_second", "param_mix", "vectorize"] = "param_first"
    reduction: Literal["sum", "mean", "max", "prod"] = "sum"

    def __post_init__(self) -> None:
        check_option("element", self.element, (*ELEMENTS, "vectorize"))
        check_option("reduction", self.reduction, REDUCE)

    def score(self, evidence: Evidence) -> Scores:
        def importance(layer: Layer) -> Float[Tensor, "O I"]:
            weight, gradients = weight_of(layer.module), evidence.gradients[layer.name]
            return (
                weight * gradients.mean
                if self.element == "vectorize"
                else element_score(weight, gradients, self.element)
            )

        of_matrices = by_group(evidence, importance)
        reduced = {kind: REDUCE[self.reduction](sums.abs(), dim=1) for kind, sums in of_matrices.items()}
        if "heads" in reduced:  # a group is pruned together with its query heads
            reduced["groups"] = reduced["groups"] + group_sums(reduced["heads"], evidence.shape.groups)
        return Scores(**reduced)
