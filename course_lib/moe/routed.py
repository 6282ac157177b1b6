"""What a router decides: who goes where, with which weight.

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
    """Who goes where. Rows of padding are zero in all four; `real` says which they are not.

    Args:
        weights: what the output of each expert is multiplied by; zero where the token does not go.
        probs: what the gate thinks of all experts, chosen or not: rows that sum to one, which losses read.
        chosen: which experts a token asks for. Loads count these.
        keep: which of them compute it: what is chosen, less what found no place.
        sent: how likely the token is to be sent to each expert, were its noise drawn anew; where the router knows.
    """

    weights: Float[Tensor, "T E"]
    probs: Float[Tensor, "T E"]
    chosen: Bool[Tensor, "T E"]
    keep: Bool[Tensor, "T E"]
    logits: Float[Tensor, "T E"] | None = None
    real: Bool[Tensor, "T"] | None = None
    sent: Float[Tensor, "T E"] | None = None

    def without(self, padding: Bool[Tensor, "T"]) -> "Routing":
        """The routing with zeros in the rows of padding."""
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
        """The share of all choices that each expert has."""
        counts = self.chosen.sum(0)
        return counts / counts.sum()

    @property
    def n_dropped(self) -> int:
        """How many choices found no place, or were not drawn."""
        return int((self.chosen & ~self.keep).sum())


class DecidedRouting(Routing):
    """The routing of the k experts that a kernel chose for each token. Its (T, E) tables, and `real`, are built at the
    first reading: a model that generates text reads none of them, and each would cost launches.
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
        """Args: `probs` gives what the gate thinks of all experts from the logits."""
        routing = cls.__new__(cls)  # not through __init__, which wants the tables
        vars(routing).update(_logits=logits, _weight=weight, _expert=expert, _probs=probs, _real=real)
        return routing

    def _without_padding(self, table: Float[Tensor, "T E"]) -> Float[Tensor, "T E"]:
        return table if self._real is None else table.where(self._real[:, None], 0)

    @cached_property
    def logits(self) -> Float[Tensor, "T E"]:
        return self._without_padding(self._logits)

    @cached_property
    def weights(self) -> Float[Tensor, "T E"]:
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
    """The routings of several groups of tokens as one, in their order."""
    parts = {field.name: [getattr(routing, field.name) for routing in routings] for field in fields(Routing)}
    return Routing(**{name: None if values[0] is None else torch.cat(values) for name, values in parts.items()})
