"""Drafts: whatever proposes next tokens and says how probable it thought them.

Dimension key: N tokens of a text, k drafted tokens, V words of the vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot
from transformers import PreTrainedModel

from course_lib.attention.speculative.accept import Sampling
from course_lib.attention.speculative.cached import CachedModel, Logits
from course_lib.settings import check_count


@dataclass(frozen=True, eq=False)
class Proposal:
    """Drafted tokens, and the distributions that they were drawn from."""

    tokens: list[int]
    q: Float[Tensor, "k V"]


class Draft(ABC):
    """Proposes up to k tokens after a text; none where it has no idea.

    The text is distributed as the model's own for any draft that draws its tokens from the q that it reports.
    """

    n_vocabulary: int

    @abstractmethod
    def propose(self, ids: Int[Tensor, "N"], k: int, sampling: Sampling) -> Proposal: ...


@dataclass(frozen=True)
class Lookup(Draft):
    """Proposes what followed the last tokens earlier in the text: the longest match of at most `longest` tokens, the
    latest of equals. Saxena, Prompt lookup decoding, 2023, https://github.com/apoorvumang/prompt-lookup-decoding

    It costs no pass. It is certain of itself, q(x) = 1, so that a token stays with probability p(x).
    """

    n_vocabulary: int
    longest: int = 3

    def __post_init__(self) -> None:
        check_count("n_vocabulary", self.n_vocabulary, unit="tokens")
        check_count("longest", self.longest, unit="tokens")

    def propose(self, ids: Int[Tensor, "N"], k: int, sampling: Sampling) -> Proposal:
        tokens = self._found(ids, k)
        return Proposal(tokens.tolist(), one_hot(tokens, self.n_vocabulary).double())

    def _found(self, ids: Int[Tensor, "N"], k: int) -> Int[Tensor, "_"]:
        for n in range(min(self.longest, len(ids) - 1), 0, -1):
            same = (ids[:-1].unfold(0, n, 1) == ids[-n:]).all(dim=1)  # of each place but the end itself
            if bool(same.any()):
                start = int(same.nonzero()[-1]) + n
                return ids[start : start + k]
        return ids[:0]


@dataclass(frozen=True, eq=False)
class ModelDraft(Draft):
    """Tokens drawn one by one from a smaller model, k passes for k tokens."""

    logits: Logits
    n_vocabulary: int

    def propose(self, ids: Int[Tensor, "N"], k: int, sampling: Sampling) -> Proposal:
        tokens, q = [], []
        for _ in range(k):
            q.append(sampling.distribution(self.logits(ids, 1)[0]))
            tokens.append(sampling.chance.pick(q[-1]))
            ids = torch.cat([ids, torch.tensor(tokens[-1:])])
        return Proposal(tokens, torch.stack(q))


def model_draft(model: PreTrainedModel, inside: Callable[[], AbstractContextManager] = nullcontext) -> ModelDraft:
    """A draft of any causal model of the same vocabulary, with a cache of its own.

    A cut model, `first_blocks(model, 24)`, or the model itself with less: `inside` makes the block in which it runs,
    such as `lambda: contextual(model, selector, density=0.3)`.
    """
    cached = CachedModel(model)

    def logits(ids: Int[Tensor, "N"], n: int) -> Tensor:
        with inside():
            return cached(ids, n)

    return ModelDraft(logits, model.config.vocab_size)
