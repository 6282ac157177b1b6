"""Simple ideas for the open task of lesson 10: words before the texts of a pruned model, and of the dense one.

One table, sentences: the loss of every window, without a sentence ("") and with each of them before it.

Dimension key: N windows, L tokens of a window, P tokens of a sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.lessons.common.verdicts import Effect, of_samples
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import load_model
from course_lib.prompts.hard import SENTENCES, hard_prompt, meaningless
from course_lib.prompts.initial import from_ids
from course_lib.prompts.losses import prompted_window_losses
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import Unstructured

CALIBRATION = (4, 128)  # windows and tokens of each, for the norms of Wanda's inputs
MOST = 40  # tokens of a sentence: each takes a position before every text
MODELS = ("Wanda 50 %", "dense")
RANDOM = "as many random tokens"

IDEAS: dict[str, str] = {
    "the authors' sentence (code)": SENTENCES["code"],
    "the authors' sentence (slides)": SENTENCES["slides"],
    RANDOM: "",
    "a line break": "\n",
    "From Wikipedia": "From Wikipedia, the free encyclopedia\n\n",
    "words of an encyclopedia": "This article is about the history, geography and people of a place in the world. ",
    "the start of an article": "The town was founded in 1842 and is the seat of the county. It has a population of",
}


@dataclass(frozen=True)
class Attempt:
    """The loss of every window after a sentence, and the number of its tokens."""

    n_tokens: int
    losses: Float[Tensor, "N"]


@dataclass(frozen=True)
class Sizes:
    """The amount of text, and the measured ideas."""

    evaluation: int = 24
    length: int = 64
    ideas: tuple[str, ...] = tuple(IDEAS)


def half_pruned(tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Return the default model with half of the weights of every row pruned by Wanda."""
    model, _ = load_model()
    calibration = windows("wikipedia", *CALIBRATION, tokenizer, split="calibration", seed=0)
    prune_model(model, Wanda(Unstructured(0.5, per="row")), calibration)
    return model


def measure(
    sentence: object, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Int[Tensor, "N L"]
) -> Attempt:
    """Measure the losses of the windows after a sentence, at the same tokens as without one.

    Raises:
        ValueError: for something that is no sentence, or has more than MOST tokens.
    """
    if not isinstance(sentence, str):
        raise ValueError(f"got {type(sentence).__name__}; expected words, such as 'Once upon a time'.")
    ids = torch.tensor(tokenizer(sentence, add_special_tokens=False).input_ids, dtype=torch.long)
    if not 1 <= len(ids) <= MOST:
        raise ValueError(f"got a sentence of {len(ids)} tokens; expected 1 to {MOST}.")
    return _after(ids, model, texts)


def _after(ids: Int[Tensor, "P"], model: PreTrainedModel, texts: Int[Tensor, "N L"]) -> Attempt:
    return Attempt(len(ids), prompted_window_losses(model, from_ids(model, ids), texts, progress=False))


def measure_idea(
    idea: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Int[Tensor, "N L"],
    seed: int = 0,
) -> Attempt:
    """Measure an idea by its name; random tokens depend on the seed."""
    if idea != RANDOM:
        return measure(IDEAS[idea], model, tokenizer, texts)
    n = len(hard_prompt(tokenizer, SENTENCES["code"]))
    return _after(meaningless(tokenizer, n, torch.Generator().manual_seed(seed)), model, texts)


def stored(rows: list[dict], model: str) -> dict[str, Attempt]:
    """Return the measured ideas on one model, from the table of a result; "" is the model without a sentence."""
    return {
        row["idea"]: Attempt(row["n_tokens"], torch.tensor(row["losses"], dtype=torch.float64))
        for row in rows
        if row["model"] == model
    }


def gains(attempts: Mapping[str, Attempt]) -> dict[str, Effect]:
    """Return by how many nats per token each sentence lowers the loss, window by window."""
    return {idea: of_samples(attempts[""].losses - each.losses) for idea, each in attempts.items() if idea}


def steps(sizes: Sizes) -> list[Step]:
    """List the steps, one per model: the pruned one is made once."""
    return [Step(name, partial(model_rows, sizes, name)) for name in MODELS]


def model_rows(sizes: Sizes, name: str, seed: int) -> Tables:
    """Measure the model without a sentence, and with each of them."""
    model, tokenizer = load_model()
    model = model if name == MODELS[1] else half_pruned(tokenizer)
    texts = windows("wikipedia", sizes.evaluation, sizes.length, tokenizer, split="evaluation", seed=seed)
    attempts = {"": Attempt(0, prompted_window_losses(model, None, texts, progress=False))}
    attempts |= {idea: measure_idea(idea, model, tokenizer, texts, seed) for idea in sizes.ideas}
    rows = [
        {
            "model": name,
            "idea": idea,
            "n_tokens": each.n_tokens,
            "losses": [round(loss, 5) for loss in each.losses.tolist()],
        }
        for idea, each in attempts.items()
    ]
    return {"sentences": rows}


EXPERIMENT = Experiment("Sentences before a pruned model", Sizes(), Sizes(2, 16, tuple(IDEAS)[:1]), steps)
