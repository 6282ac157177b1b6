"""The report of a pruning run: the sparsity of each layer, the time of each phase, and the peak memory."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PHASES = ("forward", "gram", "factorise", "solve")
HELD = ("activations", "grams")


@dataclass
class PruneReport:
    """The pruned layers, with the time and memory that pruning took.

    `seconds`: time per phase, which is running the blocks, summing Gram matrices, factorising them, or choosing and
    updating weights. `bytes`: peak memory of hidden states and other arguments of the blocks, and of Gram matrices and
    their factors. `notes`: by layer, how a method had to deviate from its settings, for example with more damping.
    """

    n_tokens: int
    sparsity: dict[str, float] = field(default_factory=dict)  # by layer, such as "blocks.3.mlp.up_proj"
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(HELD, 0))
    notes: dict[str, str] = field(default_factory=dict)
    n_zero: int = 0
    n_weights: int = 0
    n_ignored: int = 0  # layers that were left dense because the caller asked for it
    reached: str = ""  # the current block or layer

    def __post_init__(self) -> None:
        self._clocks: list[str] = []  # nested phases; time counts only for the last one
        self._counted_until = 0.0

    @property
    def total_sparsity(self) -> float:
        """Return the fraction of zeros among the weights of all pruned layers."""
        return self.n_zero / max(1, self.n_weights)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Count the seconds inside the `with` block for this phase only, not for a phase around it."""
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
        """Record how many bytes are in memory now; the report keeps the maximum."""
        self.bytes[what] = max(self.bytes[what], n_bytes)
