"""The open task of lesson 08: which tokens make the best sinks of a stream.

Dimension key: N texts, T tokens of a text, S first tokens that stay.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.attention.windowed import windowed
from course_lib.data.corpora import windows
from course_lib.lessons.common.ideas import by_idea
from course_lib.lessons.common.subject import loaded
from course_lib.measure.experiment import Tables

SLOTS, MOST = 48, 16  # tokens that a query reads, including itself; at most this many of them are kept permanently
TEXTS, LENGTH = 10, 160
Start = str | int  # a text that is put before each text, or the number of the text's own first tokens that are kept


@dataclass(frozen=True)
class Attempt:
    """The result of a start: the number of slots that it takes, and the log-perplexity of every text."""

    n_kept: int
    losses: Float[Tensor, "N"]


@torch.no_grad()
def attempt(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, start: Start, seed: int = 0) -> Attempt:
    """Stream the texts through SLOTS slots, including those of the start; all starts predict the same tokens.

    Raises:
        ValueError: if the start is neither a text nor a number, or takes more than MOST slots.
    """
    texts = windows("wikipedia", TEXTS, LENGTH, tokenizer, split="evaluation", seed=seed)
    before, n_kept = start_of(tokenizer, start)
    ids = torch.cat([before.expand(TEXTS, -1), texts], dim=1)
    with windowed(model, window=SLOTS - n_kept, sinks=n_kept):
        logits = model(ids, use_cache=False, logits_to_keep=LENGTH - SLOTS).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), texts[:, SLOTS + 1 :], reduction="none")
    return Attempt(n_kept, losses.double().mean(dim=1))


def start_of(tokenizer: Callable[..., Any], start: object) -> tuple[Tensor, int]:
    """Return the tokens that are put before a text, and how many first tokens are kept."""
    if isinstance(start, bool) or not isinstance(start, str | int):
        raise ValueError(f"got {start!r}; expected a text, or how many of the text's own first tokens stay.")
    none = torch.zeros(0, dtype=torch.int64)
    before = torch.tensor(tokenizer(start, add_special_tokens=False).input_ids) if isinstance(start, str) else none
    n_kept = len(before) if isinstance(start, str) else start
    if not 0 <= n_kept <= MOST:
        raise ValueError(f"got a start of {n_kept} tokens; expected 0 to {MOST}: each takes a slot from the window.")
    return before.long(), n_kept


OWN, NONE = "the text's own first 4 tokens", "none"
IDEAS: dict[str, Start] = {
    OWN: 4,
    NONE: 0,
    "its own first token": 1,
    "its own first 16 tokens": 16,
    "one newline": "\n",
    "4 newlines (one token)": "\n" * 4,
    "end of text": "<|endoftext|>",
    "what opens a chat": "<|im_start|>user\n",
    "a sentence of 16 tokens": "This is an article of an encyclopedia about a person, a place or a time",
    "digits": "7 3 9 1",
}


def stored(rows: list[dict]) -> dict[str, Attempt]:
    """Return the measured ideas, from the table of a result."""
    return {row["idea"]: Attempt(row["n_kept"], torch.tensor(row["losses"], dtype=torch.float64)) for row in rows}


def row(idea: str, seed: int) -> Tables:
    """Measure one idea on all texts."""
    made = attempt(*loaded(), IDEAS[idea], seed)
    losses = [round(loss, 5) for loss in made.losses.tolist()]
    return {"ideas": [{"idea": idea, "start": IDEAS[idea], "n_kept": made.n_kept, "losses": losses}]}


EXPERIMENT = by_idea("What stays at the start of a stream", IDEAS, (OWN, NONE), row)
