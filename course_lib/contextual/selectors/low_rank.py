"""A low-rank copy of gate and up. Wang and others, SVD-LLM, 2024, https://arxiv.org/abs/2403.07378

Dimension key: T tokens, n windows of N tokens, F neurons.
"""

from dataclasses import dataclass, field, replace

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import linear
from transformers import PreTrainedModel

from course_lib.contextual.fitting.linear_maps import Factors, cut
from course_lib.contextual.neurons import neurons_of
from course_lib.contextual.seen import look_through
from course_lib.contextual.selector import NeuronSelector, Seen
from course_lib.pruning.layerwise.gram import Gram
from course_lib.sparsity.ranking import check_positive


@dataclass(frozen=True, eq=False, kw_only=True)
class LowRank(NeuronSelector):
    """score_i = |ĥ_i| ‖w_i‖, with ĥ computed from low-rank approximations of gate and up whose outputs change least.

    Whitening by the covariance of the inputs makes the approximation optimal for them (section 3.2). Nothing is
    trained.
    Deviation: in the paper the copy replaces the matrix; here it only chooses neurons.
    """

    rank: int = 64
    factors: tuple[tuple[Factors, ...], ...] | None = field(default=None, repr=False)  # (gate,) up of each block

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("rank", self.rank)

    @property
    def n_bytes(self) -> int:
        return sum(weight.nbytes for block in self.factors or () for factors in block for weight in factors)

    def _fit(self, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> "NeuronSelector":
        inputs = [Gram(neurons.width, device=model.device) for neurons in neurons_of(model)]
        look_through(model, calibration, lambda block, seen: inputs[block].add(seen.x))
        pairs = zip(neurons_of(model), inputs, strict=True)
        return replace(self, factors=tuple(cut(list(neurons.into), gram, self.rank) for neurons, gram in pairs))

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        self.fitted(self.factors)
        made = [linear(linear(seen.x.float(), inner), outer) for outer, inner in self.factors[block]]
        return seen.neurons.importance(seen.neurons.joined(*made))
