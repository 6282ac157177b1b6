"""The attention of the model's heads in one text, and the blocks that each of them would read.

Dimension key: L layers, H key-value heads, heads = H * G query heads, T tokens in N blocks of S, R last queries, D size
of a head.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.prefill.lines import last_weights, on_block_diagonals, on_columns
from course_lib.attention.registered import Pass, attending

Head = tuple[int, int]  # layer, query head of it
BLOCK = 64  # tokens: smaller than the 128 of the paper, as the text of the notebook is short


@dataclass(frozen=True, eq=False)
class Heads:
    """Queries and keys of one text after RoPE, layer by layer."""

    query: list[Float[Tensor, "heads T D"]] = field(default_factory=list)
    keys: list[Float[Tensor, "H T D"]] = field(default_factory=list)
    scaling: float = 1.0

    def of(self, head: Head) -> tuple[Float[Tensor, "1 T D"], Float[Tensor, "1 T D"]]:
        """Queries and keys of one head."""
        layer, number = head
        group = len(self.query[layer]) // len(self.keys[layer])
        return self.query[layer][number, None], self.keys[layer][number // group, None]

    def weights(self, head: Head, n_last: int | None = None) -> Float[Tensor, "R T"]:
        """Return the attention of the last queries of a head; of all queries by default."""
        query, keys = self.of(head)
        return last_weights(query, keys, self.scaling, n_last or query.shape[1])[0]


@torch.no_grad()
def heads_of_text(model: PreTrainedModel, ids: Int[Tensor, "T"]) -> Heads:
    """Run the model on a text and store the queries and keys of each layer."""
    query, keys, scaling = [], [], []

    def note(seen: Pass) -> Tensor:
        query.append(seen.query[0].float().clone())
        keys.append(seen.keys[0].float().clone())
        scaling.append(seen.scaling)
        return seen.read(seen.logits)

    with attending(model, "course_look", note):
        model(ids[None], use_cache=False, logits_to_keep=1)
    return Heads(query, keys, scaling[0])


Lines = Callable[[Tensor], tuple[Tensor, Tensor]]
Smallest = Callable[[Tensor, float], Tensor]
Mask = Callable[[Tensor, Tensor, int, int], Tensor]


@dataclass(frozen=True, eq=False)
class Chosen:
    """The blocks of one head that hold a fraction of its attention, by three functions of the exercises."""

    weights: Float[Tensor, "T T"]
    lines: Lines
    smallest: Smallest
    mask: Mask

    def reads(self, gamma: float) -> Bool[Tensor, "T T"]:
        """Columns and diagonals that hold γ each of what the last block of queries attends to; then their mask."""
        vertical, slash = self.lines(self.weights[-BLOCK:])
        columns = on_columns(vertical[None, None], BLOCK)
        diagonals = on_block_diagonals(slash[None], BLOCK)
        n_tokens = len(self.weights)
        return self.mask(self.smallest(columns, gamma)[0], self.smallest(diagonals, gamma)[0], n_tokens, BLOCK)

    def density(self, reads: Bool[Tensor, "T T"]) -> float:
        """Return the fraction of the causal entries that is read."""
        n_tokens = len(self.weights)
        return int(reads.sum()) / (n_tokens * (n_tokens + 1) / 2)

    def coverage(self, reads: Bool[Tensor, "T T"]) -> float:
        """Return the fraction of the attention that is read, the mean over queries."""
        return float((self.weights * reads).sum() / len(self.weights))
