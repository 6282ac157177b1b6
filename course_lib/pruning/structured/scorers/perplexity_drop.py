"""Depth by perplexity. Kim and others, Shortened LLaMA: Depth Pruning for Large Language Models, 2024. https://arxiv.org/abs/2402.02834"""

from dataclasses import dataclass

import torch

from course_lib.hooks import hooking
from course_lib.measure.perplexity import perplexity
from course_lib.models import blocks
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence, Scorer


@dataclass(frozen=True)
class PerplexityDrop(Scorer):
    """Score the log perplexity of the model without each block, which takes as many passes as there are blocks."""

    def score(self, evidence: Evidence) -> Scores:
        losses = []
        for block in blocks(evidence.model):
            with hooking() as handles:
                handles.append(block.register_forward_hook(_pass_by, with_kwargs=True))
                losses.append(perplexity(evidence.model, evidence.windows).value)
        return Scores(blocks=torch.tensor(losses, dtype=torch.float64).log())


def _pass_by(_, args, kwargs, out):
    """Make a block return its input unchanged."""
    before = args[0] if args else kwargs["hidden_states"]
    return (before, *out[1:]) if isinstance(out, tuple) else before
