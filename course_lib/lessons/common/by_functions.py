"""Prune a model with two functions instead of a method of the library: a score, and what stays of it.

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
    """The mask that a function gives: keep_function(score, sparsity) -> (O, I), True where a weight stays."""

    keep_function: Callable
    sparsity: float = 0.5

    def _keep(self, score: Float[Tensor, "O I"]) -> Bool[Tensor, "O I"]:
        return self.keep_function(score, self.sparsity).bool()


@dataclass
class ScoredBy(LayerPruner):
    """The score that a function gives: score_function(weight, inputs (N, I)) -> (O, I), high = keep.

    Of the inputs only their norms are known here, and they are handed on as a single token whose entries are the
    norms: the norm of each input feature over that one token is what it was over all of them.
    """

    score_function: Callable | None = None
    needs: ClassVar[Needs] = "diagonal"

    def _score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        return self.score_function(weight.float(), inputs.diagonal.sqrt()[None]).to(torch.float32)
