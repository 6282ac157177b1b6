"""Predict neurons linearly from the embedding. After Liu and others, Deja Vu, 2023, https://arxiv.org/abs/2310.17157

Dimension key: T tokens, n windows of N tokens, F neurons.
"""

from dataclasses import dataclass, field, replace

from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.fitting.linear_maps import Regression, RegressionSums
from course_lib.contextual.seen import look_through
from course_lib.contextual.selector import NeuronSelector, Seen
from course_lib.contextual.sizes import sizes_of


@dataclass(frozen=True, eq=False, kw_only=True)
class FromEmbedding(NeuronSelector):
    """score = ȳ + Bᵀ(e − ē), with the token's embedding e and y = |h| ‖w‖: the best linear prediction of y from e.

    B is ridge regression on calibration tokens, so a token that is not among them is predicted from similar tokens.
    Deviation: the paper passes the embedding itself through each block (see alone.py); here the regression is trained
    on the values y of the dense model.
    """

    damping: float = 3.0  # of a few hundred tokens little more can be learnt; less than 1 learns them by heart
    regression: Regression | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.damping > 0:
            raise ValueError(f"got damping {self.damping!r}; expected a number above 0, such as 3.0.")

    @property
    def n_bytes(self) -> int:
        return sum(part.nbytes for part in self.regression or ())

    def _fit(self, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> "NeuronSelector":
        sums = RegressionSums(sizes_of(model), model.device)

        def add(block: int, seen: Seen) -> None:
            sums.add(block, seen.embedding.float(), seen.neurons.importance(seen.hidden))

        look_through(model, calibration, add)
        return replace(self, regression=sums.solved(self.damping))

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        self.fitted(self.regression)
        centre, mean, slope = self.regression
        return mean[block] + (seen.embedding.float() - centre) @ slope[block]
