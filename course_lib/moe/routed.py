"""Routing: which experts process each token, and with which weights.

Dimension key: T tokens, E experts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Routing:
    """The assignment of T tokens to E experts. The rows of padding tokens are zero in the first four tables.

    Args:
        weights: factor on each expert's output, y = Σ_e weights_e · expert_e(x); zero for experts that do not process
            the token.
        probs: the gate's probabilities over all experts, chosen or not; each row sums to one. Balance losses use them.
        chosen: the experts that the router selects for the token. Loads count these.
        keep: the experts that process the token: the chosen ones without those whose capacity is exhausted.
        logits: the gate's output from which the router chose.
        real: False for padding.
        sent: probability that the token is sent to each expert under new noise (Shazeer and others, 2017, equation 8);
            None for routers without such noise.
    """

    weights: Float[Tensor, "T E"]
    probs: Float[Tensor, "T E"]
    chosen: Bool[Tensor, "T E"]
    keep: Bool[Tensor, "T E"]
    logits: Float[Tensor, "T E"] | None = None
    real: Bool[Tensor, "T"] | None = None
    sent: Float[Tensor, "T E"] | None = None

    def without(self, padding: Bool[Tensor, "T"]) -> "Routing":
        """Return a copy with zeros in the rows of padding."""
        rows = padding[:, None]
        return replace(
            self,
            weights=self.weights.masked_fill(rows, 0),
            probs=self.probs.masked_fill(rows, 0),
            chosen=self.chosen & ~rows,
            keep=self.keep & ~rows,
            sent=None if self.sent is None else self.sent.masked_fill(rows, 0),
        )

    @property
    def load(self) -> Float[Tensor, "E"]:
        """The fraction of all choices that each expert receives: f_e = Σ_t chosen_te / Σ_te chosen_te."""
        counts = self.chosen.sum(0)
        return counts / counts.sum()

    @property
    def n_dropped(self) -> int:
        """Number of choices that are not processed: the expert is full, or the router drew another expert."""
        return int((self.chosen & ~self.keep).sum())


class DecidedRouting(Routing):
    """The routing of the k experts that a kernel chose for each token.

    The (T, E) tables and `real` are built when they are first read. Text generation reads none of them, and each table
    would cost kernel launches.
    """

    @classmethod
    def of(
        cls,
        logits: Float[Tensor, "T E"],
        weight: Float[Tensor, "T k"],
        expert: Int[Tensor, "T k"],
        probs: Callable[[Tensor], Tensor],
        real: Bool[Tensor, "T"] | None,
    ) -> "DecidedRouting":
        """Build a routing from the kernel's output.

        Args:
            probs: computes the gate's probabilities over all experts from the logits.
        """
        routing = cls.__new__(cls)  # skips __init__, which needs the (T, E) tables
        vars(routing).update(_logits=logits, _weight=weight, _expert=expert, _probs=probs, _real=real)
        return routing

    def _without_padding(self, table: Float[Tensor, "T E"]) -> Float[Tensor, "T E"]:
        return table if self._real is None else table.where(self._real[:, None], 0)

    @cached_property
    def logits(self) -> Float[Tensor, "T E"]:
        return self._without_padding(self._logits)

    @cached_property
    def weights(self) -> Float[Tensor, "T E"]:
        # weights[t, expert[t, j]] = weight[t, j]: (T, k) to (T, E)
        return self._without_padding(torch.zeros_like(self._logits).scatter(1, self._expert.long(), self._weight))

    @cached_property
    def probs(self) -> Float[Tensor, "T E"]:
        return self._without_padding(self._probs(self.logits))

    @cached_property
    def chosen(self) -> Bool[Tensor, "T E"]:
        chosen = torch.zeros_like(self._logits, dtype=torch.bool).scatter(1, self._expert.long(), True)
        return chosen if self._real is None else chosen & self._real[:, None]

    @cached_property
    def keep(self) -> Bool[Tensor, "T E"]:
        return self.chosen

    @cached_property
    def real(self) -> Bool[Tensor, "T"]:
        return torch.ones_like(self._logits[:, 0], dtype=torch.bool) if self._real is None else self._real


def joined(routings: Sequence[Routing]) -> Routing:
    """Concatenate the routings of several groups of tokens, in their order."""
    parts = {field.name: [getattr(routing, field.name) for routing in routings] for field in fields(Routing)}
    return Routing(**{name: None if values[0] is None else torch.cat(values) for name, values in parts.items()})
