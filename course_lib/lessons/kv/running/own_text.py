"""The open task of lesson 07: find a text on which H2O loses less than a window with sinks of the same size.

Dimension key: C blocks of neighbouring predictions.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.kv.policies.h2o import H2O
from course_lib.kv.policies.streaming_llm import StreamingLLM
from course_lib.lessons.common.table import Table, number, plus_minus
from course_lib.lessons.kv.running.measure import race
from course_lib.measure.paired import block_means, mean_and_error

BUDGET, SINKS = 64, 4
LEAST, MOST = 4 * BUDGET, 8 * BUDGET  # tokens of a text
BLOCK = 32  # tokens read at once; their predictions are one sample together, as neighbours are no independent ones
WINDOW, HEAVY = f"window with {SINKS} sinks", "H2O"


@dataclass(frozen=True)
class Contest:
    """Log-perplexities of both policies on one text, by block of predictions."""

    n_tokens: int
    window: Float[Tensor, "C"]
    heavy: Float[Tensor, "C"]

    @property
    def lower(self) -> tuple[float, float]:
        """How much lower H2O's log-perplexity is, and its standard error over blocks."""
        return mean_and_error(self.window - self.heavy)


def contest(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: object) -> Contest:
    """Stream a text through both caches; predictions count from where the caches are full.

    Raises:
        ValueError: for no text, and for one of fewer than LEAST tokens. Of a longer one the first MOST are read.
    """
    if not isinstance(text, str):
        raise ValueError(f"got a {type(text).__name__}; expected a text.")
    ids = tokenizer(text, return_tensors="pt", verbose=False).input_ids[0]
    if len(ids) < LEAST:
        raise ValueError(
            f"got a text of {len(ids)} tokens; expected {LEAST} or more, so that most of it has left {BUDGET} slots."
        )
    ids = ids[:MOST]
    policies = {WINDOW: StreamingLLM(BUDGET, sinks=SINKS), HEAVY: H2O(BUDGET, recent=BUDGET // 2)}
    losses = {name: stream.losses[BUDGET:] for name, stream in race(model, ids, policies, chunk=BLOCK).items()}
    return Contest(len(ids), *(block_means(losses[name], BLOCK) for name in (WINDOW, HEAVY)))


LOWER = "H2O's log-perplexity lower by"


def table(contests: dict[str, Contest]) -> Table:
    """A row for each text."""
    frame = []
    for name, found in contests.items():
        lower, error = found.lower
        window, heavy = (losses.mean().exp().item() for losses in (found.window, found.heavy))
        frame.append(
            {"text": name, "tokens": found.n_tokens, WINDOW: window, HEAVY: heavy, LOWER: lower, "error": error}
        )
    return Table(
        frame,
        caption="Perplexity of both caches, by text",
        formats={WINDOW: number(1), HEAVY: number(1), (LOWER, "error"): plus_minus(3, sign=True)},
        note="± one standard error over blocks of predictions.",
    )


def stored(rows: list[dict]) -> dict[str, Contest]:
    """The texts that were measured, from the table of a result."""
    return {
        row["text"]: Contest(row["n_tokens"], torch.tensor(row["window"]), torch.tensor(row["heavy"])) for row in rows
    }
