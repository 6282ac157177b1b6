"""From losses to points, relative to the losses of three models that were measured in the same run.

In each domain, on the same windows,

    share = (L_uniform − L) / (L_uniform − L_master),    points = 20 · clip(min over domains of share, 0, 1).

So a recipe gets no points if its loss is that of uniform pruning of half the weights, and all points if its loss is not
above that of the master's recipe, which is within the budget. The domain with fewer points counts.
"""

from dataclasses import dataclass, replace

from course_lib.compose.challenge.judge import Losses
from course_lib.compose.front import ERRORS
from course_lib.measure.paired import mean_and_error

FULL = 20.0
UNIFORM = '{"weights": {"method": "Wanda", "pattern": 0.5}}'  # the baseline, which no budget limits


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """Losses of three models, by domain and window."""

    dense: Losses
    uniform: Losses
    master: Losses

    def check(self) -> None:
        """Raise ValueError unless the uniform recipe's loss is above the master's by more than two standard errors."""
        for domain, windows in self.uniform.items():
            pairs = zip(windows, self.master[domain], strict=True)
            gap, error = mean_and_error([worse - better for worse, better in pairs])
            if gap <= ERRORS * error:
                raise ValueError(
                    f"got {gap:+.3f} ± {error:.3f} nats between the uniform recipe and the master's on {domain}; "
                    "expected more than two errors. Take more windows, or another text."
                )

    def without(self, index: int, domain: str) -> "Anchors":
        """Return the anchors without one window."""
        return replace(
            self, **{name: _without(getattr(self, name), index, domain) for name in ("dense", "uniform", "master")}
        )


@dataclass(frozen=True, kw_only=True)
class Points:
    """The points of a recipe.

    Args:
        domain: the one that counts. swing: the largest change of the points when we leave out any single window.
    """

    points: float
    domain: str
    swing: float


def points(losses: Losses, anchors: Anchors) -> Points:
    """Compute the points of a recipe within the budget."""
    earned, domain = _earned(losses, anchors)
    swing = max(
        abs(_earned(_without(losses, index, one), anchors.without(index, one))[0] - earned)
        for one, windows in losses.items()
        for index in range(len(windows))
    )
    return Points(points=earned, domain=domain, swing=swing)


def by_domain(losses: Losses, anchors: Anchors) -> dict[str, float]:
    """Return the fraction of the way from the uniform recipe's loss to the master's; it can be below 0 or above 1."""
    return {
        domain: (_mean(anchors.uniform[domain]) - _mean(windows))
        / (_mean(anchors.uniform[domain]) - _mean(anchors.master[domain]))
        for domain, windows in losses.items()
    }


def worth(share: float) -> float:
    """Return the points of a fraction."""
    return FULL * min(1.0, max(0.0, share))


def _earned(losses: Losses, anchors: Anchors) -> tuple[float, str]:
    shares = by_domain(losses, anchors)
    domain = min(shares, key=shares.__getitem__)
    return worth(shares[domain]), domain


def _mean(windows: tuple[float, ...]) -> float:
    return mean_and_error(windows)[0]


def _without(losses: Losses, index: int, domain: str) -> Losses:
    kept = losses[domain]
    return losses | {domain: kept[:index] + kept[index + 1 :]}
