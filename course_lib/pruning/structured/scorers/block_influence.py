"""Block influence. Men and others, ShortGPT: Layers in Large Language Models are More Redundant Than You Expect, 2024. https://arxiv.org/abs/2403.03853"""

from dataclasses import dataclass

from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence, Scorer


@dataclass(frozen=True)
class BlockInfluence(Scorer):
    """Score 1 − cos(input of a block, its output), averaged over tokens: low if a block hardly turns its input."""

    def score(self, evidence: Evidence) -> Scores:
        return Scores(blocks=evidence.activations.influence)
