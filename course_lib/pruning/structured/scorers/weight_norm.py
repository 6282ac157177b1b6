"""Norms of weights. Li, Kadav, Durdanovic, Samet, Graf, Pruning Filters for Efficient ConvNets, 2016. https://arxiv.org/abs/1608.08710"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from course_lib.models import Layer, weight_of
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence, Scorer, by_group, group_sums
from course_lib.settings import check_option


@dataclass(frozen=True)
class WeightNorm(Scorer):
    """Score ‖w‖_p of all weights of a group; no calibration text is needed."""

    p: Literal[1, 2] = 2

    def __post_init__(self) -> None:
        check_option("p", self.p, (1, 2))

    def score(self, evidence: Evidence) -> Scores:
        def power(layer: Layer) -> Float[Tensor, "O I"]:
            return weight_of(layer.module).float().abs().pow(self.p)

        sums = {kind: matrices.sum(1) for kind, matrices in by_group(evidence, power).items()}
        if "heads" in sums:
            sums["groups"] = sums["groups"] + group_sums(sums["heads"], evidence.shape.groups)
        return Scores(**{kind: total.pow(1 / self.p) for kind, total in sums.items()})
