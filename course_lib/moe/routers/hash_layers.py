"""Hash layers. Roller, Sukhbaatar, Szlam, Weston, Hash layers for large sparse models, 2021, https://arxiv.org/abs/2106.04426"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.moe.checks import check_experts, check_table
from course_lib.moe.choice import among
from course_lib.moe.routed import Routing
from course_lib.moe.routing import Given, Router


@dataclass(frozen=True)
class Hash(Router):
    """A fixed table of token ids selects the expert: nothing is learnt, so nothing can collapse.

    Args:
        table: the expert of each id; by default the id modulo the number of experts. See `random_table`,
            `balanced_table`.
    """

    table: Int[Tensor, "V"] | None = field(default=None, compare=False)
    needs: ClassVar[Literal["logits", "ids", "noise"]] = "ids"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_table(self.table)

    @property
    def learns(self) -> bool:
        return False

    def _route(self, logits: Float[Tensor, "T E"], given: Given) -> Routing:
        n_experts, ids = logits.shape[1], given.ids.where(given.real, 0).long()
        largest = int(ids.max())
        if int(ids.min()) < 0 or (self.table is not None and largest >= len(self.table)):
            raise ValueError(f"got token ids {int(ids.min())} to {largest}; expected 0 up to the size of the table.")
        expert = ids % n_experts if self.table is None else self.table.to(ids.device)[ids]
        check_experts(expert, n_experts)
        keep = among(expert[:, None], n_experts)
        return Routing(keep.to(logits.dtype), keep.to(logits.dtype), keep, keep)


def random_table(n_ids: int, n_experts: int, generator: torch.Generator) -> Int[Tensor, "V"]:
    """Return a random expert for each id: equal numbers of ids, but unequal loads, since some ids are frequent."""
    return torch.randint(n_experts, (n_ids,), generator=generator)


def balanced_table(counts: Int[Tensor, "V"], n_experts: int) -> Int[Tensor, "V"]:
    """Assign ids by decreasing frequency, each to the expert with the fewest tokens so far."""
    table, load = torch.zeros_like(counts), [0] * n_experts
    for index in counts.sort(descending=True, stable=True).indices.tolist():
        emptiest = load.index(min(load))
        table[index] = emptiest
        load[emptiest] += int(counts[index])
    return table
