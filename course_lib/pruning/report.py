"""What pruning tells afterwards: what each layer lost, where the seconds went, how much memory it held at once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PHASES = ("forward", "gram", "factorise", "solve")
HELD = ("activations", "grams")


@dataclass
class PruneReport:
    """The pruned layers, with the seconds and bytes that pruning took.

    `seconds`: running the blocks, summing Gram matrices, factorising them, choosing and updating weights. `bytes`: the
    most that was held at once of hidden states with the arguments of the blocks, and of Gram matrices with what was
    made of them. `notes`: what a method had to do differently than asked, by layer, such as more damping.
    """

    n_tokens: int
    sparsity: dict[str, float] = field(default_factory=dict)  # by layer, such as "blocks.3.mlp.up_proj"
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(HELD, 0))
    notes: dict[str, str] = field(default_factory=dict)
    n_zero: int = 0
    n_weights: int = 0
    n_ignored: int = 0  # layers that were left dense because the caller asked for it
    reached: str = ""  # the block or layer being worked on

    def __post_init__(self) -> None:
        self._clocks: list[str] = []  # the phases begun and not ended, of which only the last one runs
        self._counted_until = 0.0

    @property
    def total_sparsity(self) -> float:
        """Zeros over all pruned layers, each weight counting the same."""
        return self.n_zero / max(1, self.n_weights)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """The seconds in here count for this phase alone, and not for a phase around it."""
        self._count()
        self._clocks.append(phase)
        try:
            yield
        finally:
            self._count()
            self._clocks.pop()

    def _count(self) -> None:
        now = time.perf_counter()
        if self._clocks:
            self.seconds[self._clocks[-1]] += now - self._counted_until
        self._counted_until = now

    def held(self, what: str, n_bytes: int) -> None:
        """So much is held now; the most is remembered."""
        self.bytes[what] = max(self.bytes[what], n_bytes)
