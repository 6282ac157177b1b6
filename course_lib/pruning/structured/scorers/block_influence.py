"""Block influence. Men and others, ShortGPT: Layers in Large Language Models are More Redundant Than You Expect, 2024. https://arxiv.org/abs/2403.03853"""

from dataclasses import dataclass

from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence, Scorer


@dataclass(frozen=True)
class BlockInfluence(Scorer):
    """1 − cos(what a block reads, what it gives), the mean over tokens: a block that turns nothing may leave."""

    def score(self, evidence: Evidence) -> Scores:
        return Scores(blocks=evidence.activations.influence)
