"""What a router decides: who goes where, with which weight.

Dimension key: T tokens, E experts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float
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


def joined(routings: Sequence[Routing]) -> Routing:
    """The routings of several groups of tokens as one, in their order."""
    parts = {field.name: [getattr(routing, field.name) for routing in routings] for field in fields(Routing)}
    return Routing(**{name: None if values[0] is None else torch.cat(values) for name, values in parts.items()})
