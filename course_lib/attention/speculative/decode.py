"""`speculate(model, ids, 100, Lookup(model.config.vocab_size), k=4)`: the model's own text, in fewer passes.

Each pass reads all weights once, whether it reads one token or five: where weights come from memory token by token, as
in decoding one text, passes are time. Where many texts are decoded together there is less to win.

Dimension key: N tokens of a text, n last ones, V words of the vocabulary.
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
    """One pass of the model: tokens drafted for it, those that stayed, and Σ min(p, q) summed over those tried.

    What follows the first that fell is not tried.
    """

    n_drafted: int
    n_stayed: int
    overlap: float

    @property
    def n_tried(self) -> int:
        return min(self.n_stayed + 1, self.n_drafted)


@dataclass(frozen=True, eq=False)
class Speculated:
    """A text, of which the model read the first `n_prompt` tokens and wrote the others."""

    ids: Int[Tensor, "N"]
    n_prompt: int
    rounds: tuple[Round, ...]

    @property
    def new(self) -> Int[Tensor, "_"]:
        return self.ids[self.n_prompt :]

    @property
    def tokens_per_pass(self) -> float:
        """1 without speculation. The pass that reads the prompt is one of them."""
        return len(self.new) / len(self.rounds)

    @property
    def passes_per_100(self) -> float:
        """How often the weights are loaded for 100 tokens."""
        return 100 / self.tokens_per_pass

    @property
    def stayed(self) -> float:
        """The share of the drafted tokens tried that stayed; NaN where nothing was drafted."""
        n_tried = sum(each.n_tried for each in self.rounds)
        return sum(each.n_stayed for each in self.rounds) / n_tried if n_tried else math.nan

    @property
    def acceptance(self) -> float:
        """α: what `stayed` is on average, the mean of Σ min(p, q), which varies less."""
        n_tried = sum(each.n_tried for each in self.rounds)
        return sum(each.overlap for each in self.rounds) / n_tried if n_tried else math.nan


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
    """Exactly n_new tokens behind a text, fewer only where one of `stop` ends it; distributed as the model's own.

    At temperature 0 that is the model's greedy text, but for ties that float rounding breaks differently in a pass of
    several tokens.

    Args:
        k: tokens drafted for each pass at most.
        generator: of the CPU; needed at temperatures above 0.

    Raises:
        ValueError: an empty text or one of several rows, ids that are no tokens of the model, more tokens than it has
            positions for, n_new or k below 1, a temperature below 0 or without a generator, a draft of another
            vocabulary, or logits without a distribution.
    """
    check_is_model(model)
    _check(n_new, k, temperature)
    if not isinstance(ids, Tensor) or ids.ndim != 1 or not len(ids):
        what = f"of shape {tuple(ids.shape)}" if isinstance(ids, Tensor) else f"as {type(ids).__name__}"
        raise ValueError(f"got ids {what}; expected one text (N,) of at least one token.")
    _check_ids(ids, model.config.vocab_size)
    _check_positions(model, len(ids), n_new)
    _check_stop(stop)
    if not isinstance(draft, Draft):
        raise ValueError(f"got draft {draft!r}; expected a Draft, such as Lookup({model.config.vocab_size}).")
    if draft.n_vocabulary != model.config.vocab_size:
        raise ValueError(
            f"got a draft of {draft.n_vocabulary} words for a model of {model.config.vocab_size}; expected the same "
            "vocabulary, or token ids would mean different words."
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
    """The loop, for anything that gives logits."""
    n_prompt, rounds = len(ids), []
    while (n_left := n_prompt + n_new - len(ids)) > 0 and not _stopped(ids[n_prompt:], stop):
        # One token more than were drafted comes out of a pass, so that the last pass has one less to draft.
        proposal = draft.propose(ids, min(k, n_left - 1), sampling) if n_left > 1 else None
        drafted = proposal.tokens if proposal else []
        text = torch.cat([ids, torch.tensor(drafted, dtype=ids.dtype)])
        p = sampling.distribution(logits(text, len(drafted) + 1))
        q = proposal.q if proposal else p[:0]
        tokens, n_stayed = verify(drafted, q, p, sampling.chance)
        n_tried = min(n_stayed + 1, len(drafted))
        rounds.append(Round(len(drafted), n_stayed, float(overlap(p[:n_tried], q[:n_tried]).sum())))
        ids = torch.cat([ids, _until(tokens, stop).to(ids.dtype)])
    return Speculated(ids, n_prompt, tuple(rounds))


def _until(tokens: list[int], stop: Collection[int]) -> Int[Tensor, "_"]:
    """Tokens up to the first of those that end a text."""
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
    whole = not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
    if not whole or int(ids.min()) < 0 or int(ids.max()) >= n_vocabulary:
        raise ValueError(
            f"got ids of type {ids.dtype} from {ids.min()} to {ids.max()}; expected whole numbers from 0 to "
            f"{n_vocabulary - 1}, the tokens of this model."
        )


def _check_positions(model: PreTrainedModel, n_prompt: int, n_new: int) -> None:
    most = n_positions(model)
    if most is not None and n_prompt + n_new - 1 > most:  # the last new token is never read
        raise ValueError(
            f"got a text of {n_prompt} tokens and n_new={n_new}; expected at most {most + 1} together, because this "
            f"{type(model).__name__} has {most} positions. Shorten the text or lower n_new."
        )


def _check_stop(stop: object) -> None:
    if not isinstance(stop, Collection) or not all(isinstance(token, Integral) for token in stop):
        raise ValueError(f"got stop={stop!r}; expected a collection of token ids, such as (2,).")
