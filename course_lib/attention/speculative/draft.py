"""Drafts: they propose the next tokens and report the distributions from which they sampled these.

Dimension key: N tokens of a text, k drafted tokens, V tokens of the vocabulary.
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
    """Drafted tokens, and the distributions from which they were sampled."""

    tokens: list[int]
    q: Float[Tensor, "k V"]


class Draft(ABC):
    """Propose up to k tokens after a text, or none if the draft has no candidate.

    The text has the distribution of the target model for any draft that samples its tokens from the q that it reports.
    """

    n_vocabulary: int

    @abstractmethod
    def propose(self, ids: Int[Tensor, "N"], k: int, sampling: Sampling) -> Proposal: ...


@dataclass(frozen=True)
class Lookup(Draft):
    """Propose the tokens that followed the last tokens earlier in the text: after the longest match of up to `longest`
    tokens, and the latest one of these. Saxena, Prompt lookup decoding, 2023,
    https://github.com/apoorvumang/prompt-lookup-decoding

    It needs no forward pass. Its draft has q(x) = 1, so a token is accepted with probability p(x).
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
            same = (ids[:-1].unfold(0, n, 1) == ids[-n:]).all(dim=1)  # for each place except the end itself
            if bool(same.any()):
                start = int(same.nonzero()[-1]) + n
                return ids[start : start + k]
        return ids[:0]


@dataclass(frozen=True, eq=False)
class ModelDraft(Draft):
    """Sample tokens one at a time from a smaller model, with k forward passes for k tokens."""

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
    """Return a draft that uses any causal model with the same vocabulary, with its own cache.

    For example, use an early exit, `first_blocks(model, 24)`, or the model itself with fewer neurons: `inside` makes
    the context in which the draft runs, such as `lambda: contextual(model, selector, density=0.3)`.
    """
    cached = CachedModel(model)

    def logits(ids: Int[Tensor, "N"], n: int) -> Tensor:
        with inside():
            return cached(ids, n)

    return ModelDraft(logits, model.config.vocab_size)
