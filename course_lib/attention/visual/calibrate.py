"""Calibration of pruning settings without labels. Yang and others, VFlowOpt, 2025,
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

FAILED = 0.0  # score of settings for which the set K of an image is empty (see importance.py), as in the public code


@dataclass(frozen=True)
class Search:
    """The search space and the number of trials. A point (t, α, side, early, later) of the unit cube is one setting.

    Args:
        mean: R̄, the same for all points.
        most_t, most_alpha: upper limits of t and α; the lower limits are 0. (The public code searches α up to 1, but
            averages over K where equation 4 sums, which is |K| times as much.)
        sides: candidate side lengths of cells, in patches. Sides that give more cells than tokens to keep are skipped.
        n_first: trials before the Gaussian process chooses the points.
        n_steps: trials in all.
    """

    mean: float
    most_t: float = 3.0
    most_alpha: float = 30.0
    sides: tuple[int, ...] = (3, 4, 6, 12)
    n_first: int = 12
    n_steps: int = 50

    def pruning(self, point: Point) -> Pruning:
        """Return the settings at a point."""
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
    """The settings with the highest cosine similarity, and all trials."""

    pruning: Pruning
    cosine: float
    trials: list[Trial]


def by_hand(mean: float) -> Pruning:
    """Return a baseline without search: patches above the mean form K, entropy weighs as much as one of them, cells of
    6 × 6 patches (12 × 12 if too few tokens are kept), and the same ratio at every stage."""
    return Pruning(Importance(t=1.0, alpha=1.0), even(mean), fitting((6, 12), even(mean))[0])


def fitting(sides: tuple[int, ...], ratios: Ratios) -> tuple[int, ...]:
    """Return the sides that give at most as many cells as there are tokens to keep in the first third.

    Raises:
        ValueError: if there is no such side.
    """
    count = ratios.counts(GRID**2)[0]
    fitting_sides = tuple(side for side in sides if ceil(GRID / side) ** 2 <= count)
    if not fitting_sides:
        raise ValueError(f"got sides {sides} and {count} tokens to keep; expected a side with at most {count} cells.")
    return fitting_sides


def agreement(model: SmallVLM, seen: Seen, words: Int[Tensor, "B W"], pruning: Pruning) -> Float[Tensor, "B"]:
    """cos(h, h'): the last word's final hidden states with all tokens and with the kept ones (equation 8)."""
    return cosine_similarity(read(model, seen, words, pruning).last, whole(model, seen, words), dim=1)


def whole(model: SmallVLM, seen: Seen, words: Int[Tensor, "B W"]) -> Float[Tensor, "B C"]:
    """h: the last word's final hidden state without pruning."""
    return read(model, seen, words, Pruning(Importance(t=0.0), Ratios())).last


def calibrate(model: SmallVLM, seen: Seen, words: Int[Tensor, "B W"], search: Search, seed: int = 0) -> Calibrated:
    """Maximise the mean cosine similarity over unlabelled questions, with as many trials as in the paper."""
    target = whole(model, seen, words)

    def objective(point: Point) -> float:
        try:
            last = read(model, seen, words, search.pruning(point)).last
        except EmptyContext:
            return FAILED
        return cosine_similarity(last, target, dim=1).mean().item()

    start = (0.25, 0.01, 0.5, 0.0, 0.0)  # little weight on entropy; all pruning before the first third
    trials = maximise(objective, [start], search.n_first, search.n_steps, seed)
    best_trial = best(trials)
    return Calibrated(search.pruning(best_trial.point), best_trial.value, trials)
