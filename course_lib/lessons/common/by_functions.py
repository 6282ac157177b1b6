"""Prune a model with two functions instead of a method of the library: one scores weights, the other chooses a mask.

Dimension key: O outputs of a layer, I its inputs, N tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.pruning.base import LayerPruner
from course_lib.pruning.layerwise.gram import Gram, Needs
from course_lib.sparsity.patterns import Pattern


@dataclass(frozen=True)
class KeptBy(Pattern):
    """A pattern whose mask comes from a function: keep_function(score, sparsity) -> (O, I), True for kept weights."""

    keep_function: Callable
    sparsity: float = 0.5

    def _keep(self, score: Float[Tensor, "O I"]) -> Bool[Tensor, "O I"]:
        return self.keep_function(score, self.sparsity).bool()


@dataclass
class ScoredBy(LayerPruner):
    """A pruner whose score comes from a function: score_function(weight, inputs (N, I)) -> (O, I), high = keep.

    Only the norms of the inputs are known here. The function receives them as a single token, whose entries are the
    norms, so each input feature has the same norm over this token as over all calibration tokens.
    """

    score_function: Callable | None = None
    needs: ClassVar[Needs] = "diagonal"

    def _score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        return self.score_function(weight.float(), inputs.diagonal.sqrt()[None]).to(torch.float32)
