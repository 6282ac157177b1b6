"""The open task of lesson 10: the best sentence before the texts of a model of which half of the weights are gone.

Dimension key: N windows, P tokens of a sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.lessons.common.table import Table, plus_minus
from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.prompts.hard import SENTENCES, hard_prompt, meaningless
from course_lib.prompts.initial import from_ids
from course_lib.prompts.losses import prompted_window_losses

MOST = 40  # tokens of a sentence: each takes a place in front of every text
MODELS = ("Wanda 50 %", "dense")
LOTS = "as many tokens as the code's, by lot"

IDEAS: dict[str, str] = {
    "the sentence of the paper's code": SENTENCES["code"],
    "the sentence on slides": SENTENCES["slides"],
    LOTS: "",
    "an end of a line": "\n",
    "From Wikipedia": "From Wikipedia, the free encyclopedia\n\n",
    "an encyclopedia's words": "This article is about the history, geography and people of a place in the world. ",
    "an article's beginning": "The town was founded in 1842 and is the seat of the county. It has a population of",
}


@dataclass(frozen=True)
class Attempt:
    """The loss of every window behind a sentence, and how many tokens it has."""

    n_tokens: int
    losses: Float[Tensor, "N"]


def attempt(
    sentence: object,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    windows: Int[Tensor, "N L"],
) -> Attempt:
    """Read the windows behind a sentence; scored are the same tokens as without one.

    Raises:
        ValueError: for something that is no sentence, or has more than MOST tokens.
    """
    if not isinstance(sentence, str):
        raise ValueError(f"got {type(sentence).__name__}; expected words, such as 'Once upon a time'.")
    ids = torch.tensor(tokenizer(sentence, add_special_tokens=False).input_ids, dtype=torch.long)
    if not 1 <= len(ids) <= MOST:
        raise ValueError(f"got a sentence of {len(ids)} tokens; expected 1 to {MOST}.")
    return read_behind(ids, model, windows)


def read_behind(ids: Int[Tensor, "P"], model: PreTrainedModel, windows: Int[Tensor, "N L"]) -> Attempt:
    losses = prompted_window_losses(model, from_ids(model, ids), windows, progress=False)
    return Attempt(len(ids), losses)


def of_idea(
    idea: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    windows: Int[Tensor, "N L"],
    seed: int = 0,
) -> Attempt:
    """An idea by its name; tokens by lot are drawn anew for each seed."""
    if idea != LOTS:
        return attempt(IDEAS[idea], model, tokenizer, windows)
    n = len(hard_prompt(tokenizer, SENTENCES["code"]))
    return read_behind(meaningless(tokenizer, n, torch.Generator().manual_seed(seed)), model, windows)


def stored(rows: list[dict], model: str) -> dict[str, Attempt]:
    """What was measured on a model, from the table of a result; "" is the model without a sentence."""
    return {
        row["idea"]: Attempt(row["n_tokens"], torch.tensor(row["losses"], dtype=torch.float64))
        for row in rows
        if row["model"] == model
    }


def gains(made: Mapping[str, Attempt]) -> dict[str, tuple[float, float]]:
    """By how many nats each sentence lowers the loss, and the standard error of that, window by window."""
    effects = {idea: of_samples(made[""].losses - each.losses) for idea, each in made.items() if idea}
    return {idea: (effect.value, effect.error) for idea, effect in effects.items()}


def against_alone(made: Attempt, alone: Float[Tensor, "N T"]) -> str:
    """What a sentence won on windows whose losses without one are known, and what can be said of it."""
    base = alone.double().mean(dim=1)
    won = of_samples(base - made.losses)
    ratio = (made.losses - base).mean().exp()
    return (
        f"{made.n_tokens} tokens: perplexity {made.losses.mean().exp():.1f}, {ratio:.3f} of that without, "
        f"{won.value:+.3f} ± {won.error:.3f} nats won\n"
        f"Claim: the sentence helps: {verdict(won)}"
    )


def table_of_ideas(rows: list[dict]) -> Table:
    """Every sentence on the pruned model and, as a control, on the dense one."""
    pruned, dense = (stored(rows, model) for model in MODELS)
    of_pruned, of_dense = gains(pruned), gains(dense)
    frame = []
    for idea, (value, error) in of_pruned.items():
        row = {"before the text": idea, "tokens": pruned[idea].n_tokens, "pruned: nats gained": value, "error": error}
        frame.append(row | dict(zip(("dense: nats gained", "error, dense"), of_dense[idea], strict=True)))
    return Table(
        frame,
        caption="Sentences before the text",
        formats={
            ("pruned: nats gained", "error"): plus_minus(3, sign=True),
            ("dense: nats gained", "error, dense"): plus_minus(3, sign=True),
        },
        note="Nats per token ± one standard error over the windows.",
    )


def verdict_on_ideas(rows: list[dict]) -> str:
    """Whether each sentence helps the pruned model."""
    pruned = stored(rows, MODELS[0])
    every = [of_samples(pruned[""].losses - each.losses) for idea, each in pruned.items() if idea]
    return f"Claim: each of these sentences lowers the pruned model's perplexity: {verdict(every)}"
