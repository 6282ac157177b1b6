"""The interface of all neuron selectors: from the inputs of a token in a block to the neurons that it keeps there.

Dimension key: T tokens of a pass in one row, D width, F neurons, n calibration windows of N tokens.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import ClassVar

from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.neurons import Neurons
from course_lib.contextual.seen import Seen
from course_lib.contextual.sizes import Sizes, sizes_of
from course_lib.sparsity.ranking import keep_highest

__all__ = ["NeuronSelector", "Neurons", "Seen", "check_density", "n_kept"]


@dataclass(frozen=True, eq=False, kw_only=True)
class NeuronSelector(ABC):
    """Settings and fitted tensors; neither changes during inference. Each selector is a subclass with a `_score`.

    Args:
        density: fraction of each block's neurons that a token keeps.
        by_block: one fraction per transformer block of the model, instead of `density`; empty to use `density`.
        sizes: sizes of the model that the selector was fitted to; None if nothing had to be fitted.
    """

    density: float = 0.5
    by_block: tuple[float, ...] = ()
    sizes: Sizes | None = field(default=None, repr=False)

    lookahead: ClassVar[int] = 0  # how many blocks earlier it reads x; a subclass with this setting declares the field
    reads_hidden: ClassVar[bool] = False  # whether it uses the activations that it should predict: an oracle
    counts_exactly: ClassVar[bool] = True  # whether each token keeps the same number of neurons
    n_read_whole: ClassVar[int] = 0  # how many of the matrices that multiply x it computes for all neurons
    fits_alone: ClassVar[bool] = True  # whether `fit` needs only calibration text, and no predictor trained before

    def __post_init__(self) -> None:
        if not isinstance(self.by_block, (tuple, list)):
            raise ValueError(
                f"got by_block {self.by_block!r}; expected a tuple with the fraction of neurons that each block keeps, "
                "such as (0.5, 0.3), or () for the same density in every block."
            )
        for density in (self.density, *self.by_block):
            check_density(density)

    def density_at(self, block: int) -> float:
        """Return the fraction of a block's neurons that a token keeps."""
        return self.by_block[block] if self.by_block else self.density

    @property
    def n_bytes(self) -> int:
        """Memory of the selector in bytes, in addition to the model's weights, over all transformer blocks."""
        return 0

    def fit(self, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> "NeuronSelector":
        """Return a copy with the same settings that is fitted to calibration text.

        Raises:
            ValueError: the model is of an unknown family or has experts, or there are no windows.
        """
        return replace(self._fit(model, calibration), sizes=sizes_of(model))

    def _fit(self, model: PreTrainedModel, calibration: Int[Tensor, "n N"]) -> "NeuronSelector":
        return self

    def score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        """Return the score of each neuron for each token; high = keep. Only the order within a token has a meaning.

        Raises:
            ValueError: the selector is of another model or was not fitted, or scores have NaN or a wrong shape.
        """
        score = self.unchecked_score(seen, block)
        if bool(score.isnan().any()):
            raise ValueError(
                f"got {int(score.isnan().sum())} NaN of {score.numel()} scores from {type(self).__name__} at block "
                f"{block}; expected numbers. Check whether its training diverged."
            )
        return score

    def unchecked_score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        """Return the score without looking for NaN, for which the host would wait for a GPU.

        Raises:
            ValueError: the selector is of another model or was not fitted, or scores have a wrong shape.
        """
        self._check_seen(seen, block)
        score = self._score(seen, block)
        expected = (len(seen.x), seen.neurons.n)
        if tuple(score.shape) != expected:
            raise ValueError(
                f"got scores {tuple(score.shape)} from {type(self).__name__} at block {block}; expected (tokens, "
                f"neurons) = {expected}. Use a selector that was fitted to this model."
            )
        return score

    def keep(self, seen: Seen, block: int) -> Bool[Tensor, "T F"]:
        """Keep exactly max(1, round(density · F)) neurons per token, the highest scores; of equals the higher index."""
        score = self.score(seen, block)
        return keep_highest(score, score.shape[1] - n_kept(self.density_at(block), score.shape[1]))

    @abstractmethod
    def _score(self, seen: Seen, block: int) -> Float[Tensor, "T F"]:
        """Compute the score; `score` has checked the inputs."""

    def _check_seen(self, seen: Seen, block: int) -> None:
        if len(seen.x) == 0:
            raise ValueError("got no tokens; expected at least one.")
        n_blocks = self.sizes.n_blocks if self.sizes else len(self.by_block) or block + 1
        self.check_sizes(Sizes(n_blocks, seen.neurons.width, seen.neurons.n))
        if not 0 <= block < n_blocks:
            raise ValueError(f"got block {block}; expected 0 to {n_blocks - 1}.")

    def check_sizes(self, sizes: Sizes) -> None:
        """Raise ValueError if the selector was fitted to other sizes, or `by_block` has another number of blocks."""
        if self.by_block and len(self.by_block) != sizes.n_blocks:
            raise ValueError(
                f"got by_block with {len(self.by_block)} fractions; expected {sizes.n_blocks}, one per block of this "
                "model."
            )
        if self.sizes is not None and self.sizes != sizes:
            raise ValueError(
                f"got a {type(self).__name__} fitted to {_words(self.sizes)}; this model has {_words(sizes)}. "
                "Fit it to this model: selector.fit(model, calibration)."
            )

    def fitted(self, value: object) -> None:
        """Raise ValueError if `value`, which `fit` computes, is missing."""
        if value is None:
            raise ValueError(
                f"got a {type(self).__name__} that was not fitted; expected {type(self).__name__}(...).fit(model, "
                "calibration) before it chooses."
            )


def n_kept(density: float, n_neurons: int) -> int:
    """Return the number of neurons to keep: max(1, round(density · F))."""
    return max(1, round(density * n_neurons))


def check_density(density: object) -> None:
    """Raise ValueError unless the density is a number above 0 and at most 1."""
    if isinstance(density, bool) or not isinstance(density, Real) or not 0 < density <= 1:
        raise ValueError(f"got density {density!r}; expected the fraction to keep, above 0 and at most 1, such as 0.5.")


def _words(sizes: Sizes) -> str:
    return f"{sizes.n_blocks} blocks {sizes.width} wide with {sizes.n_neurons} neurons each"
