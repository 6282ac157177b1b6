"""Settings of a pruning, found without a label. Yang and others, VFlowOpt, 2025,
https://arxiv.org/abs/2508.05211

Dimension key: B questions, W words, C width.
"""

from dataclasses import dataclass
from math import ceil

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cosine_similarity

from course_lib.attention.visual.bayesian import Point, Trial, best, maximise
from course_lib.attention.visual.importance import EmptyContext, Importance
from course_lib.attention.visual.model import GRID, SmallVLM
from course_lib.attention.visual.prune import Pruning, Seen, read
from course_lib.attention.visual.stages import Ratios, even, spread

FAILED = 0.0  # what settings score that leave an image without a patch to ask, as in the public code


@dataclass(frozen=True)
class Search:
    """What is searched, and how long; a point (t, α, side, early, later) of the unit cube is one set of settings.

    Args:
        mean: R̄, the same for all points.
        most_t, most_alpha: t and α are searched from 0 to these. (The public code has α up to 1 beside a mean over K,
            where equation 4 has the sum, |K| times as much.)
        sides: of the cells. Those of which there would be more than tokens to keep are passed over.
        n_first: points before the Gaussian process is asked.
        n_steps: points in all.
    """

    mean: float
    most_t: float = 3.0
    most_alpha: float = 30.0
    sides: tuple[int, ...] = (3, 4, 6, 12)
    n_first: int = 12
    n_steps: int = 50

    def pruning(self, point: Point) -> Pruning:
        """The settings at a point."""
        t, alpha, side, early, later = point
        ratios = spread(self.mean, early, later)
        sides = fitting(self.sides, ratios)
        return Pruning(
            Importance(t * self.most_t, alpha * self.most_alpha),
            ratios,
            sides[min(int(side * len(sides)), len(sides) - 1)],
        )


@dataclass(frozen=True)
class Calibrated:
    """The settings that changed the answer's vector least, and all that were tried."""

    pruning: Pruning
    cosine: float
    trials: list[Trial]


def by_hand(mean: float) -> Pruning:
    """Settings that nobody searched: patches above the mean are asked, entropy weighs as much as one of them, cells of
    6 × 6, the same share kept at every stage."""
    return Pruning(Importance(t=1.0, alpha=1.0), even(mean), fitting((6, 12), even(mean))[0])


def fitting(sides: tuple[int, ...], ratios: Ratios) -> tuple[int, ...]:
    """The sides of which there are at most as many cells as tokens to keep in the first third.

    Raises:
        ValueError: none is that large.
    """
    count = ratios.counts(GRID**2)[0]
    fits = tuple(side for side in sides if ceil(GRID / side) ** 2 <= count)
    if not fits:
        raise ValueError(f"got sides {sides} and {count} tokens to keep; expected a side of at most so many cells.")
    return fits


def agreement(model: SmallVLM, seen: Seen, words: Int[Tensor, "B W"], pruning: Pruning) -> Float[Tensor, "B"]:
    """cos(h, h'), of the last word's vectors after the last layer with all tokens and with those left (equation 8)."""
    return cosine_similarity(read(model, seen, words, pruning).last, whole(model, seen, words), dim=1)


def whole(model: SmallVLM, seen: Seen, words: Int[Tensor, "B W"]) -> Float[Tensor, "B C"]:
    """h: the last word's vector where nothing is pruned."""
    return read(model, seen, words, Pruning(Importance(t=0.0), Ratios())).last


def calibrate(model: SmallVLM, seen: Seen, words: Int[Tensor, "B W"], search: Search, seed: int = 0) -> Calibrated:
    """The settings of the highest mean cosine over unlabelled questions, among as many as the paper tries."""
    target = whole(model, seen, words)

    def objective(point: Point) -> float:
        try:
            last = read(model, seen, words, search.pruning(point)).last
        except EmptyContext:
            return FAILED
        return cosine_similarity(last, target, dim=1).mean().item()

    start = (0.25, 0.01, 0.5, 0.0, 0.0)  # little entropy, no stages
    trials = maximise(objective, [start], search.n_first, search.n_steps, seed)
    found = best(trials)
    return Calibrated(search.pruning(found.point), found.value, trials)
