"""Measure the texts of lesson 07's open task: each is streamed through a window with sinks and through H2O."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

import torch
from transformers import PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.lessons.kv.steps import MOST, Contest, contest
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import load_model

NAMES = ("Ada", "Bruno", "Chiara", "Dmitri", "Elif", "Farid", "Greta", "Hugo")
THINGS = ("the ladder", "a kettle", "two maps", "the green coat", "an old radio", "the lamp", "a rope", "the keys")
# The stored results were measured on these sentences: another wording needs another measurement.
FILLER = (
    "The morning was cold and the road was empty. A few birds sat on the wire and nobody spoke for a while. "
    "Later the rain came from the sea, and the windows of the small station were grey. "
)


def an_article(tokenizer: PreTrainedTokenizerBase, seed: int) -> str:
    """Return running text."""
    return tokenizer.decode(windows("wikipedia", 1, MOST, tokenizer, split="evaluation", seed=seed)[0])


def said_twice(tokenizer: PreTrainedTokenizerBase, seed: int) -> str:
    """Return half of an article twice: the second copy is predictable while the first is still in the cache."""
    half = an_article(tokenizer, seed)
    half = half[: len(half) // 2]
    return f"{half}\n\nAgain, word for word:\n\n{half}"


def who_has_what(tokenizer: PreTrainedTokenizerBase, seed: int) -> str:
    """Return eight repetitions of the same facts, each in a random order and followed by filler."""
    random = Random(seed)
    facts = [f"{name} has {thing}." for name, thing in zip(NAMES, THINGS, strict=True)]
    parts = []
    for _ in range(8):
        parts += [" ".join(random.sample(facts, len(facts))), FILLER]
    return "\n".join(parts)


def a_name_throughout(tokenizer: PreTrainedTokenizerBase, seed: int) -> str:
    """Return a text that repeats one rare name every few sentences."""
    return "This is the story of Xanthippe Okonkwo. " + "\n".join(
        f"{FILLER}Then Xanthippe Okonkwo said:" for _ in range(14)
    )


def numbers(tokenizer: PreTrainedTokenizerBase, seed: int) -> str:
    """Return random digits, which nothing can predict."""
    random = Random(seed)
    return " ".join(str(random.randrange(100)) for _ in range(MOST))


TEXTS: dict[str, Callable[[PreTrainedTokenizerBase, int], str]] = {
    "an article": an_article,
    "half an article, said twice": said_twice,
    "who has what, in changing order": who_has_what,
    "a rare name throughout": a_name_throughout,
    "random numbers": numbers,
}


@dataclass(frozen=True)
class Sizes:
    """The names of the texts to measure."""

    texts: tuple[str, ...] = tuple(TEXTS)


def steps(sizes: Sizes) -> list[Step]:
    return [Step(text, partial(row, text)) for text in sizes.texts]


def stored(table: list[dict]) -> dict[str, Contest]:
    """Read the measured contests, by text, from the table of a result."""
    return {
        row["text"]: Contest(row["n_tokens"], torch.tensor(row["window"]), torch.tensor(row["heavy"])) for row in table
    }


def row(text: str, seed: int) -> Tables:
    """Stream one text through both caches and return the loss of each token in both (nats)."""
    model, tokenizer = load_model()
    result = contest(model, tokenizer, TEXTS[text](tokenizer, seed))
    losses = {"window": result.window.tolist(), "heavy": result.h2o.tolist()}
    return {"texts": [{"text": text, "n_tokens": result.n_tokens} | losses]}


EXPERIMENT = Experiment("A text for H2O", Sizes(), Sizes(("random numbers",)), steps)
