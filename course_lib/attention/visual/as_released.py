"""Reproduce where VFlowOpt's public code differs from the paper, to measure it. https://github.com/sihany077/VFlowOpt

Nothing else in the library uses these.

Dimension key: B canvases, P pixels of a side, N patches.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from course_lib.attention.visual.entropy import patch_entropy
from course_lib.attention.visual.importance import TokenScore
from course_lib.attention.visual.recycle import cells
from course_lib.settings import is_real


def wrapped_entropy(images: UInt8[Tensor, "B P P"]) -> Float[Tensor, "B N"]:
    """Return the entropy of grey levels that were scaled to −1 to 1, multiplied by 255 and cast to 8 bits (modulo 256).

    Level v becomes 2v − 255 modulo 256, so v and v + 128 become equal.
    """
    return patch_entropy(((2 * images.int() - 255) % 256).to(torch.uint8))


@dataclass(frozen=True)
class MeanOverContext(TokenScore):
    """I_i = (1/|K|) Σ_{k∈K} A_ki + α softmax(H)_i: the mean over K instead of the sum, and α of either sign.

    Both parts sum to 1 and α over an image, while equation 4 has |K| and α. If no patch gets more than t times the
    mean, K is empty, so the mean is NaN, and every importance too.
    """

    t: float = 1.0
    alpha: float = 0.0

    def __post_init__(self) -> None:
        if not (is_real(self.t) and is_real(self.alpha) and self.t >= 0 and abs(self.alpha) < float("inf")):
            raise ValueError(
                f"got t={self.t!r}, alpha={self.alpha!r}; expected t of 0 or more and a finite number, of either sign, "
                "for alpha."
            )

    def _score(self, attention: Float[Tensor, "B N N"], entropy: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        received = attention.sum(dim=1)
        asked = (received > self.t * received.mean(dim=1, keepdim=True)).float()
        part = torch.einsum("bk,bki->bi", asked, attention) / asked.sum(dim=1, keepdim=True)
        return part + self.alpha * entropy.softmax(dim=1)


def left_after_recycling(importance: Float[Tensor, "B N"], count: int, side: int) -> Int[Tensor, "B"]:
    """Return how many tokens remain where `count` should remain.

    The code prunes N − K + ⌊N / a²⌋ tokens, as if these were in ⌊N / a²⌋ cells. Each cell that they hit adds a token.
    """
    n, cell = importance.shape[1], cells(side)
    n_pruned = min(n, n - count + n // side**2)
    hit = cell[importance.argsort(dim=1, stable=True)[:, :n_pruned]]
    return torch.tensor([n - n_pruned + len(row.unique()) for row in hit])
