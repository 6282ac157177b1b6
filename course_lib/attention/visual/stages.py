"""Compute how many visual tokens are kept in each third of the decoder. Yang and others, VFlowOpt, 2025,
https://arxiv.org/abs/2508.05211

Dimension key: N visual tokens, L layers.
"""

from dataclasses import dataclass

from course_lib.settings import is_real


@dataclass(frozen=True)
class Ratios:
    """The fractions of the current tokens that are kept before the first, the second and the last third.

    R̄ = (R₁ L₁ + R₁R₂ L₂ + R₁R₂R₃ L₃) / L with thirds L₁ = L₂ = L₃ (equation 5): the mean fraction over layers, which
    is also the size of the key-value cache.

    Raises:
        ValueError: a ratio is outside (0, 1].
    """

    first: float = 1.0
    second: float = 1.0
    third: float = 1.0

    def __post_init__(self) -> None:
        ratios = {"first": self.first, "second": self.second, "third": self.third}
        if not all(is_real(ratio) and 0 < ratio <= 1 for ratio in ratios.values()):
            raise ValueError(f"got ratios {ratios}; expected fractions of the tokens in (0, 1]: 1 keeps all of them.")

    @property
    def each(self) -> tuple[float, float, float]:
        return self.first, self.second, self.third

    @property
    def mean(self) -> float:
        """R̄."""
        return self.first * (1 + self.second * (1 + self.third)) / 3

    def counts(self, n_tokens: int) -> tuple[int, int, int]:
        """Return the tokens in each third, N R₁, N R₁R₂, N R₁R₂R₃ rounded; at least one and never more than before."""
        shares = self.first, self.first * self.second, self.first * self.second * self.third
        first, second, third = (max(1, round(share * n_tokens)) for share in shares)
        return first, second, third


def even(mean: float) -> Ratios:
    """Return equal ratios for all stages: the R with R + R² + R³ = 3 R̄.

    Raises:
        ValueError: the mean is outside (0, 1].
    """
    _check(mean)
    low, high = 0.0, 1.0
    for _ in range(60):  # bisection, down to the last bit of a float
        middle = (low + high) / 2
        low, high = (middle, high) if middle + middle**2 + middle**3 < 3 * mean else (low, middle)
    return Ratios(high, high, high)


def spread(mean: float, early: float, later: float) -> Ratios:
    """Map a point of the unit square to ratios of mean R̄; every point gives valid ratios, and all ratios are reached.

    R₁ grows from R̄ (`early` = 0: all thirds alike, no stages) towards the largest value that leaves tokens to the
    others. Then R₂(1 + R₃) = 3 R̄ / R₁ − 1 is fixed, and `later` divides it: 0 gives R₃ = 1, more gives the second
    third more.

    Raises:
        ValueError: the mean is outside (0, 1], or the point is outside the square.
    """
    _check(mean)
    if not (0 <= early <= 1 and 0 <= later <= 1):
        raise ValueError(f"got early={early}, later={later}; expected a place in the unit square.")
    # At 3 R̄ no tokens would be left for the later thirds, so we stop after nine tenths of the way.
    first = mean + early * (min(1.0, 2.8 * mean) - mean)
    rest = min(3 * mean / first - 1, 2.0)
    second = rest / 2 + later * (min(1.0, 0.9 * rest) - rest / 2)
    return Ratios(first, min(second, 1.0), min(rest / second - 1, 1.0))


def _check(mean: float) -> None:
    if not 0 < mean <= 1:
        raise ValueError(f"got a mean share of {mean}; expected one in (0, 1], such as 0.25.")
