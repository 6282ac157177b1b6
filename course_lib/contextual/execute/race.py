"""Measure tokens per second and loss of several ways to decode the same text, in turn for each window.

Dimension key: n windows of N tokens.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.contextual.execute.decode import Choice, Decoder

Way = Callable[[Tensor], Choice]  # a window -> who chooses in it; what happens here is not timed


@dataclass(frozen=True)
class Lap:
    """The measurements of one way over all windows."""

    way: str
    seconds: list[float]  # of each window
    losses: list[float]  # of each window, nats per token
    times_faster: float  # than the first way: the median over windows

    @property
    def loss(self) -> float:
        return sum(self.losses) / len(self.losses)

    def tokens_per_second(self, n_tokens: int) -> float:
        """Return the median over windows of `n_tokens` tokens each."""
        return n_tokens / median(self.seconds)


def race(decoder: Decoder, windows: Int[Tensor, "n N"], ways: Mapping[str, Way]) -> list[Lap]:
    """Decode each window in all ways in turn, so that a slower machine affects all ways equally.

    Raises:
        ValueError: there are no ways, or no windows of at least two tokens.
    """
    if not ways or len(windows) == 0 or windows.shape[1] < 2:
        raise ValueError(
            f"got {len(ways)} ways and windows {tuple(windows.shape)}; expected some, of two tokens or more."
        )
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    losses: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for place, ids in enumerate(windows):
        turn = place % len(names)  # so that no way is always first
        for name in names[turn:] + names[:turn]:
            choose = ways[name](ids)
            start = time.perf_counter()
            logits = decoder.read(ids[:-1], choose)
            seconds[name].append(time.perf_counter() - start)
            losses[name].append(cross_entropy(logits.double(), ids[1:]).item())
    first = seconds[names[0]]
    return [
        Lap(name, seconds[name], losses[name], median(a / b for a, b in zip(first, seconds[name], strict=True)))
        for name in names
    ]
