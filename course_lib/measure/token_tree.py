"""Many token sequences in one forward pass; every shared prefix is computed once.

Dimension key: T tokens of a tree, D hidden size.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.measure.likelihood import hidden_states


@dataclass
class TokenTree:
    """Token sequences with common prefixes in one row, which contains every shared token once.

    A token attends to its ancestors and itself, at the position that it has in its sequence, so the model computes the
    same as for each sequence alone. For example, a context runs once for all its choices, and few-shot examples run
    once for many questions. No row needs padding.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)  # index of the token before; -1 where a sequence begins
    paths: list[list[int]] = field(default_factory=list)  # for each sequence, the places of its tokens
    _places: dict[tuple[int, int], int] = field(default_factory=dict)  # (parent, token) -> index

    def shared(self, sequence: list[int]) -> list[int]:
        """Find the places of the longest prefix of the sequence that is already in the row."""
        path, parent = [], -1
        for token in sequence:
            if (parent := self._places.get((parent, token), -1)) < 0:
                break
            path.append(parent)
        return path

    def add(self, sequence: list[int]) -> None:
        path = self.shared(sequence)
        for token in sequence[len(path) :]:
            parent = path[-1] if path else -1
            self._places[parent, token] = len(self.tokens)
            path.append(len(self.tokens))
            self.tokens.append(token)
            self.parents.append(parent)
        self.paths.append(path)

    @property
    def depth(self) -> Int[Tensor, "T"]:
        depth: list[int] = []
        for parent in self.parents:
            depth.append(depth[parent] + 1 if parent >= 0 else 0)
        return torch.tensor(depth)

    @property
    def sees(self) -> Bool[Tensor, "T T"]:
        """sees[i, j]: token j is token i or one of its ancestors."""
        sees = torch.eye(len(self.tokens), dtype=torch.bool)
        for i, parent in enumerate(self.parents):  # a parent comes before its children, so its row is complete
            if parent >= 0:
                sees[i] |= sees[parent]
        return sees


def grow_trees(sequences: list[list[int]], most_tokens: int) -> Iterator[TokenTree]:
    """Build trees of consecutive sequences, each of at most `most_tokens` unless one sequence alone is longer.

    Sort the sequences first, so that those with a common prefix are in the same tree.
    """
    tree = TokenTree()
    for sequence in sequences:
        if tree.tokens and len(tree.tokens) + len(sequence) - len(tree.shared(sequence)) > most_tokens:
            yield tree
            tree = TokenTree()
        tree.add(sequence)
    if tree.paths:
        yield tree


def tree_hidden_states(model: PreTrainedModel, tree: TokenTree) -> Float[Tensor, "T D"]:
    """Run one forward pass over a tree. The mask is additive, which all attention except flash attention supports."""
    hidden = torch.zeros(1, 1, len(tree.tokens), len(tree.tokens), dtype=model.dtype)
    mask = hidden.masked_fill_(~tree.sees, torch.finfo(model.dtype).min).to(model.device)
    ids, depth = torch.tensor([tree.tokens]), tree.depth[None].to(model.device)
    return hidden_states(model, ids, attention_mask=mask, position_ids=depth)[0]
