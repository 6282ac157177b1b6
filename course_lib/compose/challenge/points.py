"""From losses to points: three models measured in the same run say what a loss is worth.

In each domain, on the same windows,

    share = (L_uniform − L) / (L_uniform − L_master),    points = 20 · clip(min over domains of share, 0, 1):

nothing for what loses as much as half of the weights pruned alike, all for what loses no more than the master's recipe,
which is within the budget. The domain with fewer points counts.
"""

from dataclasses import dataclass, replace

from course_lib.compose.challenge.judge import Losses
from course_lib.compose.front import ERRORS
from course_lib.measure.paired import mean_and_error

FULL = 20.0
UNIFORM = '{"weights": {"method": "Wanda", "pattern": 0.5}}'  # in no budget; what a recipe has to be better than


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """Losses by domain of three models, window by window."""

    dense: Losses
    uniform: Losses
    master: Losses

    def check(self) -> None:
        """Raises ValueError where the uniform does not lose more than the master's by two errors, window by window."""
        for domain, windows in self.uniform.items():
            pairs = zip(windows, self.master[domain], strict=True)
            gap, error = mean_and_error([worse - better for worse, better in pairs])
            if gap <= ERRORS * error:
                raise ValueError(
                    f"got {gap:+.3f} ± {error:.3f} nats between the uniform recipe and the master's on {domain}; "
                    "expected more than two errors. Take more windows, or another text."
                )

    def without(self, index: int, domain: str) -> "Anchors":
        """The same with one window left out."""
        return replace(
            self, **{name: _without(getattr(self, name), index, domain) for name in ("dense", "uniform", "master")}
        )


@dataclass(frozen=True, kw_only=True)
class Points:
    """The points of a recipe.

    Args:
        domain: the one that counts. swing: the most that leaving out any one window moves the points.
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
    """The fraction of the way from the uniform's loss to the master's, below 0 and above 1 too."""
    return {
        domain: (_mean(anchors.uniform[domain]) - _mean(windows))
        / (_mean(anchors.uniform[domain]) - _mean(anchors.master[domain]))
        for domain, windows in losses.items()
    }


def worth(share: float) -> float:
    """The points of a share."""
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
