"""How many visual tokens are left in each third of the decoder. Yang and others, VFlowOpt, 2025,
https://arxiv.org/abs/2508.05211

Dimension key: N visual tokens, L layers.
"""

from dataclasses import dataclass

from course_lib.settings import is_real


@dataclass(frozen=True)
class Ratios:
    """Of the tokens that came so far, the shares that go on: into the first third, into the second, into the third.

    R̄ = (R₁ L₁ + R₁R₂ L₂ + R₁R₂R₃ L₃) / L with thirds L₁ = L₂ = L₃ (equation 5): what the layers read on average,
    which is what the cache of keys and values holds too.

    Raises:
        ValueError: a ratio outside (0, 1].
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
        """Tokens in each third, to the nearest one of N R₁, N R₁R₂, N R₁R₂R₃; never more than before, never none."""
        shares = self.first, self.first * self.second, self.first * self.second * self.third
        first, second, third = (max(1, round(share * n_tokens)) for share in shares)
        return first, second, third


def even(mean: float) -> Ratios:
    """The same share at every stage: the R with R + R² + R³ = 3 R̄.

    Raises:
        ValueError: a mean outside (0, 1].
    """
    _check(mean)
    low, high = 0.0, 1.0
    for _ in range(60):  # halving an interval: down to the last bit of a float
        middle = (low + high) / 2
        low, high = (middle, high) if middle + middle**2 + middle**3 < 3 * mean else (low, middle)
    return Ratios(high, high, high)


def spread(mean: float, early: float, later: float) -> Ratios:
    """The ratios of mean R̄ that lie at a place of the unit square: every place is allowed, and all of it is reached.

    R₁ goes from R̄ (`early` = 0: all thirds alike, no stages) towards the most that leaves something to the others.
    Then R₂(1 + R₃) = 3 R̄ / R₁ − 1 is fixed, and `later` shares it: 0 has R₃ = 1, more puts it into the second third.

    Raises:
        ValueError: a mean outside (0, 1], or a place outside the square.
    """
    _check(mean)
    if not (0 <= early <= 1 and 0 <= later <= 1):
        raise ValueError(f"got early={early}, later={later}; expected a place in the unit square.")
    # At 3 R̄ nothing would be left for the later thirds: a tenth of the way stays.
    first = mean + early * (min(1.0, 2.8 * mean) - mean)
    rest = min(3 * mean / first - 1, 2.0)
    second = rest / 2 + later * (min(1.0, 0.9 * rest) - rest / 2)
    return Ratios(first, min(second, 1.0), min(rest / second - 1, 1.0))


def _check(mean: float) -> None:
    if not 0 < mean <= 1:
        raise ValueError(f"got a mean share of {mean}; expected one in (0, 1], such as 0.25.")
