"""A trained predictor for each block. Liu and others, Deja Vu, 2023, https://arxiv.org/abs/2310.17157

Dimension key: T tokens, L blocks, n windows of N tokens, D width, F neurons.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.contextual.predictor.two_layer import as_it_reads
from course_lib.contextual.selector import NeuronSelector, Seen
from course_lib.settings import check_count


@dataclass(frozen=True, eq=False, kw_only=True)
class DejaVu(NeuronSelector):
    """score = U V x: two matrices of low rank without a nonlinearity in between, trained to predict active neurons.

    With `lookahead` n, the predictor of block l reads x of block l − n, or of block 0 if l < n: so the choice is known
    before the block is reached (section 4.3; Lemma 4.1 bounds how little x changes). Predictors are trained by
    course_lib/contextual/predictor; in half precision, `predictor.bfloat16()`, they read half of the bytes.
    """

    predictors: tuple[Callable[[Tensor], Tensor], ...] = field(default=(), repr=False)
    lookahead: int = 0
    fits_alone = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("lookahead", self.lookahead, least=0, unit="blocks")

    @property
    def n_bytes(self) -> int:
        return sum(_bytes_of(predictor) for predictor in self.predictors)

    def _fit(self, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> "NeuronSelector":
        if not self.predictors:
            raise ValueError("got no predictors; train them first, with course_lib/contextual/predictor.")
        return self

    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        if block >= len(self.predictors):
            raise ValueError(f"got {len(self.predictors)} predictors, and block {block}; expected one for each block.")
        earlier = max(block - self.lookahead, 0)
        x = seen.x if earlier == block else seen.earlier[earlier]
        try:
            return self.predictors[block](as_it_reads(self.predictors[block], x))
        except RuntimeError as error:
            got = f"got a predictor of block {block} that cannot read x of shape {tuple(x.shape)}: {error}."
            raise ValueError(f"{got} Expected one that was trained on this model.") from error


def _bytes_of(predictor: object) -> int:
    if isinstance(predictor, nn.Module):
        return sum(weight.nbytes for weight in predictor.parameters())
    return getattr(predictor, "n_bytes", 0)
