"""Minitron. Muralidharan and others, Compact Language Models via Pruning and Knowledge Distillation, 2024. https://arxiv.org/abs/2407.14679"""

from dataclasses import dataclass
from typing import get_args

import torch

from course_lib.pruning.structured.activations import Mean
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence, Scorer, group_sums
from course_lib.settings import check_option


@dataclass(frozen=True)
class Minitron(Scorer):
    """Magnitudes of activations (section 2.2): of neurons, of the outputs of heads, and of channels after the norms.

    They are aggregated over the tokens of a window, then over windows; the paper found the mean over the sequence and
    L2 over the batch to be best. Neurons are measured after the activation function, as in the authors' code; the text
    measures them before it. A width channel's score is the sum over all norms.

    Deviation: a head is scored as in the text, by the norm of its output at each token. The authors' code
    (Model-Optimizer) takes the mean of |x| of each channel over the sequence, L2 over the batch, and then the norm over
    the head's channels. It also omits the last norm from the score of the width.
    """

    batch: Mean = "l2"
    sequence: Mean = "mean"

    def __post_init__(self) -> None:
        check_option("batch", self.batch, get_args(Mean))
        check_option("sequence", self.sequence, get_args(Mean))

    def score(self, evidence: Evidence) -> Scores:
        seen, way = evidence.activations, (self.batch, self.sequence)
        heads = torch.stack([norms.of(*way) for norms in seen.heads])
        return Scores(
            neurons=torch.stack([norms.of(*way) for norms in seen.neurons]),
            heads=heads,
            groups=group_sums(heads, evidence.shape.groups),
            width=torch.stack([norms.of(*way) for norms in seen.width]).sum(0),
        )
