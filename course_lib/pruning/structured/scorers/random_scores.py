"""Random scores. Mittal, Bhardwaj, Khapra, Ravindran, Recovering from Random Pruning, 2018. https://arxiv.org/abs/1801.10447"""

from dataclasses import dataclass

import torch

from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence, Scorer
from course_lib.settings import check_seed


@dataclass(frozen=True)
class Random(Scorer):
    """Uniform random numbers, fixed by the seed: the baseline for all other scores; use several seeds."""

    seed: int = 0

    def __post_init__(self) -> None:
        check_seed("seed", self.seed)

    def score(self, evidence: Evidence) -> Scores:
        generator, shape = torch.Generator().manual_seed(self.seed), evidence.shape
        within = {
            kind: torch.rand(shape.blocks, getattr(shape, kind), generator=generator)
            for kind in ("neurons", "heads", "groups")
        }
        return Scores(
            **within,
            width=torch.rand(shape.width, generator=generator),
            blocks=torch.rand(shape.blocks, generator=generator),
        )
