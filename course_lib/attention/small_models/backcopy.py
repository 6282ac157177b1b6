"""Bigram-backcopy: a tiny language in which a head has nothing to attend to at most positions.

Guo, Pai, Bai, Jiao, Jordan, Mei, 2024, https://arxiv.org/abs/2410.13835, section 2. Each letter is sampled given the
letter before it, with the bigram frequencies of English; but after a trigger comes a copy of the letter before the
trigger. A head has to look back after triggers, and has nothing to attend to elsewhere.

Dimension key: B sequences, T tokens, V letters.
"""

from collections import Counter
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.attention.small_models.model import SinkLM
from course_lib.attention.small_models.streaming import streaming_losses


@dataclass(frozen=True)
class Language:
    """The letters, which of them are triggers, and the probability of each letter after each letter (rows)."""

    letters: str
    triggers: Bool[Tensor, "V"]
    following: Float[Tensor, "V V"]

    @staticmethod
    def of(text: str, n_letters: int = 32, triggers: str = "aeiou") -> "Language":
        """Build a language of the most common characters of a text in lower case; other characters are left out.

        Raises:
            ValueError: none of the letters is a trigger, or all of them are.
        """
        text = text.lower()
        letters = "".join(letter for letter, _ in Counter(text).most_common(n_letters))
        marked = torch.tensor([letter in triggers for letter in letters])
        if marked.all() or not marked.any():
            raise ValueError(f"got triggers {triggers!r}; expected some, but not all, of the letters {letters!r}.")
        place = {letter: index for index, letter in enumerate(letters)}
        ids = torch.tensor([place[letter] for letter in text if letter in place])
        pairs = torch.bincount(ids[:-1] * len(letters) + ids[1:], minlength=len(letters) ** 2)
        counts = pairs.view(len(letters), -1).float() + 0.1  # so every letter can follow every other
        return Language(letters, marked, counts / counts.sum(dim=1, keepdim=True))

    def draw(self, n_sequences: int, length: int, generator: torch.Generator) -> Int[Tensor, "B T"]:
        """Sample sequences; their first letter is not a trigger, since there is nothing before it to copy."""
        first = (~self.triggers).float().expand(n_sequences, -1)
        letters = [torch.multinomial(first, 1, generator=generator)[:, 0]]
        while len(letters) < length:
            new = torch.multinomial(self.following[letters[-1]], 1, generator=generator)[:, 0]
            letters.append(torch.where(self.triggers[letters[-1]], letters[-2], new) if len(letters) > 1 else new)
        return torch.stack(letters, dim=1)

    def read(self, ids: Int[Tensor, "T"]) -> str:
        return "".join(self.letters[index] for index in ids.tolist())

    def copies(self, ids: Int[Tensor, "B T"]) -> Bool[Tensor, "B T-1"]:
        """Return whether each token after the first is a copy: whether the token before it is a trigger."""
        return self.triggers[ids[:, :-1]]

    def least(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T-1"]:
        """Return the lowest possible loss of each token after the first, in nats, which is 0 for a copy."""
        return torch.where(self.copies(ids), 0, -self.following[ids[:, :-1], ids[:, 1:]].log())


def excess(
    model: SinkLM, language: Language, ids: Int[Tensor, "B T"], sinks: int, window: int
) -> dict[str, Float[Tensor, "B"]]:
    """Return the excess of a streaming model's loss over the lowest possible loss, in nats per token, per sequence.

    Only tokens after the first eviction from the cache of `window` slots count. "copies" are the tokens after triggers,
    "others" all other tokens.
    """
    late = slice(window + 1, None)
    more = (streaming_losses(model, ids, sinks, window) - language.least(ids))[:, late]
    copies = language.copies(ids)[:, late]
    kinds = {"copies": copies, "others": ~copies}
    return {kind: (more * of_kind).sum(dim=1) / of_kind.sum(dim=1).clamp(min=1) for kind, of_kind in kinds.items()}


@torch.no_grad()
def attention_of(model: SinkLM, ids: Int[Tensor, "T"]) -> Float[Tensor, "T slots"]:
    """Return the weights of the first layer's first head; a learned sink, if there is one, is the first slot."""
    block = model.blocks[0]
    weights = block.attention.weights(block.norm(model.embedded(ids[None])))
    return weights[0, 0, -len(ids) :]


@torch.no_grad()
def value_norms(model: SinkLM, ids: Int[Tensor, "B T"]) -> Float[Tensor, "slots"]:
    """Return the mean norm of the values in each slot, in the first layer's first head."""
    block = model.blocks[0]
    _, _, values = block.attention.projected(block.norm(model.embedded(ids)), None)
    return values[:, 0].norm(dim=2).mean(dim=0)
