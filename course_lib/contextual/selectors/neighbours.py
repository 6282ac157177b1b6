"""Search for the nearest neurons. Johnson, Douze, Jégou, Billion-scale search, 2017, https://arxiv.org/abs/1702.08734

Dimension key: T tokens, n windows of N tokens, W = D + 1 width and bias, F neurons, C lists.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from course_lib.contextual.fitting.lists import clustered
from course_lib.contextual.neurons import Neurons, neurons_of
from course_lib.contextual.selector import NeuronSelector, Seen
from course_lib.sparsity.ranking import check_positive


@dataclass(frozen=True, eq=False, kw_only=True)
class Neighbours(NeuronSelector):
    """score_i = |act(⟨k_i, x⟩)|, k_i row i of gate (or of up): search by inner product in inverted lists, then act.

    Rows are clustered once. x is compared with all centres and with the rows in the `n_probes` nearest lists. All other
    rows rank below these, by their centres. With all lists probed, the search is exact and costs as much as the gate.
    """

    n_lists: int = 16
    n_probes: int = 8
    lists: tuple[tuple[Tensor, Tensor], ...] | None = field(default=None, repr=False)  # centres (C, W), list of a row

    n_read_whole: ClassVar[int] = 1  # at most: if all lists are probed

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("n_lists", self.n_lists), check_positive("n_probes", self.n_probes)

    @property
    def n_bytes(self) -> int:
        return sum(part.nbytes for lists in self.lists or () for part in lists)

    def _fit(self, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> "NeuronSelector":
        return replace(self, lists=tuple(clustered(_keys(each), self.n_lists) for each in neurons_of(model)))

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        self.fitted(self.lists)
        centres, list_of = self.lists[block]
        x = pad(seen.x.float(), (0, 1), value=1.0)
        near, exact = x @ centres.T, seen.neurons.act(x @ _keys(seen.neurons).T).abs()  # (T, C), (T, F)
        nearest = near.topk(min(self.n_probes, len(centres)), dim=1).indices
        probed = torch.zeros_like(near, dtype=torch.bool).scatter_(1, nearest, True)
        below = near - near.amax(1, keepdim=True) - 1  # less than any absolute value
        return torch.where(probed[:, list_of], exact, below[:, list_of])


def _keys(neurons: Neurons) -> Float[Tensor, "F W"]:
    """Return the rows, each followed by its bias, which is multiplied by the 1 at the end of x."""
    weight, bias = neurons.into[0].float(), neurons.into_biases[0]
    return torch.cat([weight, (weight.new_zeros(len(weight)) if bias is None else bias.float())[:, None]], dim=1)
