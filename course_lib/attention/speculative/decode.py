"""Speculative decoding: `speculate(model, ids, 100, Lookup(model.config.vocab_size), k=4)` needs fewer passes.

Each forward pass loads all weights once, for one token as for five. Decoding a single text is memory-bound, so its time
grows with the number of passes. At larger batch sizes there is less to gain.

Dimension key: N tokens of a text, n last ones, V tokens of the vocabulary.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from numbers import Integral

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.speculative.accept import Drawn, Sampling, overlap, verify
from course_lib.attention.speculative.cached import CachedModel, Logits
from course_lib.attention.speculative.draft import Draft
from course_lib.models import check_is_model, n_positions
from course_lib.settings import is_real


@dataclass(frozen=True)
class Round:
    """One pass of the target model: how many tokens were drafted and accepted, and Σ min(p, q) over those tried.

    Tokens after the first rejected one are not tried.
    """

    n_drafted: int
    n_stayed: int
    overlap: float

    @property
    def n_tried(self) -> int:
        return min(self.n_stayed + 1, self.n_drafted)


@dataclass(frozen=True, eq=False)
class Speculated:
    """A text: `n_prompt` tokens of prompt, then the generated tokens."""

    ids: Int[Tensor, "N"]
    n_prompt: int
    rounds: tuple[Round, ...]

    @property
    def new(self) -> Int[Tensor, "_"]:
        return self.ids[self.n_prompt :]

    @property
    def tokens_per_pass(self) -> float:
        """Generated tokens per forward pass; 1 without speculation. The pass over the prompt counts."""
        return len(self.new) / len(self.rounds)

    @property
    def passes_per_100(self) -> float:
        """Number of weight loads (forward passes of the target model) per 100 generated tokens."""
        return 100 / self.tokens_per_pass

    @property
    def stayed(self) -> float:
        """Fraction of the tried tokens that were accepted; NaN if no token was drafted."""
        n_tried = sum(one_round.n_tried for one_round in self.rounds)
        return sum(one_round.n_stayed for one_round in self.rounds) / n_tried if n_tried else math.nan

    @property
    def acceptance(self) -> float:
        """α: the expected value of `stayed`, the mean of Σ min(p, q) over the tried tokens. It has less variance."""
        n_tried = sum(one_round.n_tried for one_round in self.rounds)
        return sum(one_round.overlap for one_round in self.rounds) / n_tried if n_tried else math.nan


def speculate(
    model: PreTrainedModel,
    ids: Int[Tensor, "N"],
    n_new: int,
    draft: Draft,
    k: int = 4,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
    stop: Collection[int] = (),
) -> Speculated:
    """Continue a text by n_new tokens, distributed as the model's own; fewer only if one of `stop` ends the text.

    At temperature 0 the result is the model's greedy text, except for ties that rounding breaks differently in a pass
    over several tokens.

    Args:
        k: the largest number of tokens drafted per pass.
        generator: on the CPU; required at temperatures above 0.
        stop: token ids that end the text.

    Raises:
        ValueError: the text is empty or a batch of texts, ids are outside the vocabulary, the model has too few
            positions, n_new or k is below 1, the temperature is negative, or positive without a generator, the draft
            has another vocabulary, or logits define no distribution.
    """
    check_is_model(model)
    _check(n_new, k, temperature)
    if not isinstance(ids, Tensor) or ids.ndim != 1 or not len(ids):
        description = f"of shape {tuple(ids.shape)}" if isinstance(ids, Tensor) else f"as {type(ids).__name__}"
        raise ValueError(f"got ids {description}; expected one text (N,) of at least one token.")
    _check_ids(ids, model.config.vocab_size)
    _check_positions(model, len(ids), n_new)
    _check_stop(stop)
    if not isinstance(draft, Draft):
        raise ValueError(f"got draft {draft!r}; expected a Draft, such as Lookup({model.config.vocab_size}).")
    if draft.n_vocabulary != model.config.vocab_size:
        raise ValueError(
            f"got a draft of {draft.n_vocabulary} tokens for a model of {model.config.vocab_size}; expected the same "
            "vocabulary, so that token ids mean the same in both."
        )
    if temperature != 0 and not isinstance(generator, torch.Generator):
        raise ValueError(
            f"got temperature {temperature} and generator {generator!r}; expected torch.Generator().manual_seed(0)."
        )
    sampling = Sampling(temperature, Drawn(generator))
    return speculate_from(CachedModel(model), ids.cpu().long(), n_new, draft, k, sampling, stop)


def speculate_from(
    logits: Logits,
    ids: Int[Tensor, "N"],
    n_new: int,
    draft: Draft,
    k: int,
    sampling: Sampling,
    stop: Collection[int] = (),
) -> Speculated:
    """Run the loop of speculative decoding with any function that returns logits."""
    n_prompt, rounds = len(ids), []
    while (n_left := n_prompt + n_new - len(ids)) > 0 and not _stopped(ids[n_prompt:], stop):
        # A pass yields one token more than it accepts, so the last pass has one token less to draft.
        proposal = draft.propose(ids, min(k, n_left - 1), sampling) if n_left > 1 else None
        draft_tokens = proposal.tokens if proposal else []
        text = torch.cat([ids, torch.tensor(draft_tokens, dtype=ids.dtype)])
        # p: (k + 1, V), after the text and after each drafted token; q: (k, V), the draft's own distributions.
        p = sampling.distribution(logits(text, len(draft_tokens) + 1))
        q = proposal.q if proposal else p[:0]
        tokens, n_stayed = verify(draft_tokens, q, p, sampling.chance)
        n_tried = min(n_stayed + 1, len(draft_tokens))
        rounds.append(Round(len(draft_tokens), n_stayed, float(overlap(p[:n_tried], q[:n_tried]).sum())))
        ids = torch.cat([ids, _until(tokens, stop).to(ids.dtype)])
    return Speculated(ids, n_prompt, tuple(rounds))


def _until(tokens: list[int], stop: Collection[int]) -> Int[Tensor, "_"]:
    """Return the tokens up to and including the first one that ends a text."""
    ends = [i for i, token in enumerate(tokens) if token in stop]
    return torch.tensor(tokens[: ends[0] + 1] if ends else tokens)


def _stopped(new: Int[Tensor, "_"], stop: Collection[int]) -> bool:
    return len(new) > 0 and int(new[-1]) in stop


def _check(n_new: object, k: object, temperature: object) -> None:
    for name, value in (("n_new", n_new), ("k", k)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"got {name}={value!r}; expected a whole number of tokens, 1 or more.")
    if not is_real(temperature) or not 0 <= temperature < math.inf:
        raise ValueError(f"got temperature {temperature!r}; expected 0 (greedy) or more.")


def _check_ids(ids: Tensor, n_vocabulary: int) -> None:
    is_integer = not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
    if not is_integer or int(ids.min()) < 0 or int(ids.max()) >= n_vocabulary:
        raise ValueError(
            f"got ids of type {ids.dtype} from {ids.min()} to {ids.max()}; expected whole numbers from 0 to "
            f"{n_vocabulary - 1}, the vocabulary of this model."
        )


def _check_positions(model: PreTrainedModel, n_prompt: int, n_new: int) -> None:
    most = n_positions(model)
    if most is not None and n_prompt + n_new - 1 > most:  # the last new token is never fed
        raise ValueError(
            f"got a text of {n_prompt} tokens and n_new={n_new}; expected at most {most + 1} together, because this "
            f"{type(model).__name__} has {most} positions. Shorten the text or lower n_new."
        )


def _check_stop(stop: object) -> None:
    if not isinstance(stop, Collection) or not all(isinstance(token, Integral) for token in stop):
        raise ValueError(f"got stop={stop!r}; expected a collection of token ids, such as (2,).")
