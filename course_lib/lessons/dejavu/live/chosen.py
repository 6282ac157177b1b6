"""Which neurons count for each token of a text, beside those that count on other text.

Dimension key: L blocks, T tokens, F neurons.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.sparsity.ranking import keep_highest


@dataclass(frozen=True)
class Chosen:
    """A text by its tokens, and how much each neuron of some blocks counts for each; `usual` on other text."""

    tokens: tuple[str, ...]
    importance: Float[Tensor, "L T F"]
    usual: Float[Tensor, "L F"]

    def __post_init__(self) -> None:
        if len(self.tokens) != self.importance.shape[1] or self.usual.shape != self.importance[:, 0].shape:
            raise ValueError(
                f"got {len(self.tokens)} tokens, importance {tuple(self.importance.shape)} and usual importance "
                f"{tuple(self.usual.shape)}; expected (blocks, tokens, neurons) of these tokens, and (blocks, neurons)."
            )

    def keep(self, block: int, density: float) -> Bool[Tensor, "T F"]:
        """The share of each token's neurons that count most; among them none that says nothing."""
        importance = self.importance[block]
        return keep_highest(importance, importance.shape[1] - self.n_kept(density)) & (importance > 0)

    def fixed(self, block: int, density: float) -> Bool[Tensor, "F"]:
        """As many, chosen once on other text."""
        usual = self.usual[block][None]
        return keep_highest(usual, usual.shape[1] - self.n_kept(density))[0]

    def n_kept(self, density: float) -> int:
        """Of one token.

        Raises:
            ValueError: for a share outside (0, 1].
        """
        if not 0 < density <= 1:
            raise ValueError(f"got density {density}; expected a share of the neurons above 0, at most 1.")
        return max(1, round(density * self.importance.shape[2]))


def of(tokens: Sequence[str], importance: Sequence[Tensor], elsewhere: Sequence[Tensor]) -> Chosen:
    """From the importance of neurons in some blocks, (T, F) each, on a text and on another."""
    usual = torch.stack([each.mean(dim=0) for each in elsewhere])
    return Chosen(tuple(tokens), torch.stack(list(importance)), usual)


def caption(seen: Chosen, block: int, density: float, name: str = "") -> str:
    """How many of a token's neurons the token before had, and how many a fixed set of equal size has."""
    keep, fixed = seen.keep(block, density), seen.fixed(block, density)
    n_kept, n_again = keep[1:].sum(), (keep[1:] & keep[:-1]).sum()
    before, always = n_again / n_kept, (keep & fixed).sum() / keep.sum()
    share = keep.float().mean()
    return (
        f"{name}{': ' if name else ''}{100 * share:.0f} % of the neurons are chosen. The token before chose "
        f"{100 * before:.0f} % of them too, a set fixed beforehand has {100 * always:.0f} %; "
        f"lots would have {100 * len(fixed.nonzero()) / len(fixed):.0f} %"
    )
