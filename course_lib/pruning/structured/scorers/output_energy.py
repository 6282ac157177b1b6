"""Wanda's score of whole columns. Sun, Liu, Bair, Kolter, A Simple and Effective Pruning Approach, 2023. https://arxiv.org/abs/2306.11695"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.models import Layer, weight_of
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence, Scorer, by_group, group_sums


@dataclass(frozen=True)
class OutputEnergy(Scorer):
    """Score ‖x_j‖₂ ‖w_j‖₂: the norm, over all tokens, of the contribution of neuron j to the residual stream.

    It is the norm of Wanda's scores |w_ij| ‖x_j‖₂ over a column of the last linear. For a head, both norms are over all
    of its columns.
    """

    def score(self, evidence: Evidence) -> Scores:
        def squares(layer: Layer) -> Float[Tensor, "O I"]:
            return weight_of(layer.module).float().square()

        written = by_group(evidence, squares)  # the last matrix of a group writes into the residual stream
        seen = evidence.activations
        scores = {
            "neurons": torch.stack([norms.of("l2", "l2") for norms in seen.neurons]) * written["neurons"][:, -1].sqrt()
        }
        if "heads" in written:
            heads = torch.stack([norms.of("l2", "l2") for norms in seen.heads]) * written["heads"][:, -1].sqrt()
            scores |= {"heads": heads, "groups": group_sums(heads.square(), evidence.shape.groups).sqrt()}
        return Scores(**scores)
