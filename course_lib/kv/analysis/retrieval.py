"""Retrieval from a compressed cache: a needle in a text, and a question that the model reads only after the eviction.

A prompt that ends with the question tests nothing: the model attends to the complete prompt while it reads it, so the
first token of the answer comes from a cache before any eviction. Here the question follows the eviction.

Dimension key: S samples, L tokens of each, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.data.needles import Sample
from course_lib.kv.cache import evicting
from course_lib.kv.layers import EvictingCache
from course_lib.kv.policies.full import Full
from course_lib.kv.policy import EvictionPolicy
from course_lib.measure.paired import wilson

GATE = 0.8  # if a complete cache solves a task less often, the task says nothing about smaller caches
BATCH = 10  # samples read together


@dataclass(frozen=True)
class Answer:
    """The number of an answer's tokens that are right before the first wrong one."""

    depth: float
    n_right: int
    n: int

    @property
    def exact(self) -> bool:
        return self.n_right == self.n


@dataclass(frozen=True)
class Retrieval:
    """The answers to one question of each sample.

    The confidence interval is Wilson's, which is also valid for fractions near 0 and 1 and for few samples.
    """

    answers: tuple[Answer, ...]

    @property
    def exact(self) -> float:
        """Fraction of answers in which every token is right."""
        return sum(answer.exact for answer in self.answers) / len(self.answers)

    @property
    def prefix(self) -> float:
        """Mean fraction of an answer's tokens before the first wrong one."""
        return sum(answer.n_right / answer.n for answer in self.answers) / len(self.answers)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of `exact`."""
        return wilson(sum(answer.exact for answer in self.answers), len(self.answers))

    def by_depth(self) -> dict[float, "Retrieval"]:
        depths = sorted({answer.depth for answer in self.answers})
        return {depth: Retrieval(tuple(a for a in self.answers if a.depth == depth)) for depth in depths}


@torch.no_grad()
def retrieve(
    model: PreTrainedModel, samples: Sequence[Sample], policy: EvictionPolicy, positions: str = "original"
) -> Retrieval:
    """Answer the last question of each sample under a policy. The prompt is read in one pass, before any eviction.

    With Full() the answers are those of the model itself. If fewer than `GATE` of them are right, the task is not
    usable.
    """
    with evicting(model, policy, positions) as cache:
        return retrieve_through(model, samples, cache)[-1]


def usable(model: PreTrainedModel, samples: Sequence[Sample]) -> bool:
    """Return whether the model solves the task with a complete cache."""
    return retrieve(model, samples, Full()).exact >= GATE


@torch.no_grad()
def retrieve_through(
    model: PreTrainedModel, samples: Sequence[Sample], cache: EvictingCache, chunk: int | None = None
) -> list[Retrieval]:
    """Answer each question in turn through an open cache, which is reset before each batch.

    Args:
        chunk: tokens of a question read in one pass; all when None.
    """
    if not samples:
        raise ValueError("got no samples; expected at least one.")
    by_question: list[list[Answer]] = [[] for _ in samples[0].questions]
    for start in range(0, len(samples), BATCH):
        batch = samples[start : start + BATCH]
        cache.reset()
        logits = read(model, torch.stack([sample.prompt for sample in batch]), cache)
        for answers, more in zip(by_question, ask(model, batch, cache, logits, chunk), strict=True):
            answers += more
    return [Retrieval(tuple(answers)) for answers in by_question]


def ask(
    model: PreTrainedModel,
    batch: Sequence[Sample],
    cache: EvictingCache,
    logits: Float[Tensor, "S V"],
    chunk: int | None = None,
) -> list[list[Answer]]:
    """Answer the questions of a batch after its prompts have been read; `logits` are those after the prompts.

    The generated answers remain in the text before the next question, even if they are wrong.
    """
    by_question = []
    for i in range(len(batch[0].questions)):
        question = torch.stack([sample.questions[i] for sample in batch])
        right = torch.stack([sample.answers[i] for sample in batch])
        if i:
            question = torch.cat([generated[-1][:, None].cpu(), question], dim=1)
        for some in question.split(chunk or max(1, question.shape[1]), dim=1) if question.shape[1] else ():
            logits = read(model, some, cache)
        generated = [logits.argmax(dim=-1)]
        for _ in range(right.shape[1] - 1):
            generated.append(read(model, generated[-1][:, None], cache).argmax(dim=-1))
        n_right = (torch.stack(generated, dim=1).cpu() == right).long().cumprod(dim=1).sum(dim=1).tolist()
        by_question.append([Answer(s.depths[i], n, right.shape[1]) for s, n in zip(batch, n_right, strict=True)])
    return by_question


def read(model: PreTrainedModel, ids: Int[Tensor, "S L"], cache: EvictingCache) -> Float[Tensor, "S V"]:
    """Read tokens in one pass, and return the logits (S, V) after the last one."""
    return model(ids.to(model.device), past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
