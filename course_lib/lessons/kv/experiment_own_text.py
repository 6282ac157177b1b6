"""Simple ideas for the open task of lesson 07: kinds of text, read through a window with sinks and through H2O."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from transformers import PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.lessons.kv.running.own_text import MOST, contest
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import load_model

NAMES = ("Ada", "Bruno", "Chiara", "Dmitri", "Elif", "Farid", "Greta", "Hugo")
THINGS = ("the ladder", "a kettle", "two maps", "the green coat", "an old radio", "the lamp", "a rope", "the keys")
FILLER = (
    "The morning was cold and the road was empty. A few birds sat on the wire and nobody spoke for a while. "
    "Later the rain came from the sea, and the windows of the small station were grey. "
)


def an_article(tokenizer: PreTrainedTokenizerBase, seed: int) -> str:
    """Running text."""
    return tokenizer.decode(windows("wikipedia", 1, MOST, tokenizer, split="evaluation", seed=seed)[0])


def said_twice(tokenizer: PreTrainedTokenizerBase, seed: int) -> str:
    """Half of an article, and the same half again: the second is known, if it is remembered."""
    half = an_article(tokenizer, seed)
    half = half[: len(half) // 2]
    return f"{half}\n\nAgain, word for word:\n\n{half}"


def who_has_what(tokenizer: PreTrainedTokenizerBase, seed: int) -> str:
    """A few facts, some filler, and the facts again in another order."""
    random = Random(seed)
    facts = [f"{name} has {thing}." for name, thing in zip(NAMES, THINGS, strict=True)]
    parts = []
    for _ in range(8):
        parts += [" ".join(random.sample(facts, len(facts))), FILLER]
    return "\n".join(parts)


def a_name_throughout(tokenizer: PreTrainedTokenizerBase, seed: int) -> str:
    """One rare name, said once in every few sentences."""
    return "This is the story of Xanthippe Okonkwo. " + "\n".join(
        f"{FILLER}Then Xanthippe Okonkwo said:" for _ in range(14)
    )


def numbers(tokenizer: PreTrainedTokenizerBase, seed: int) -> str:
    """Random digits, which nothing foretells."""
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
    """Which texts."""

    texts: tuple[str, ...] = tuple(TEXTS)


def steps(sizes: Sizes) -> list[Step]:
    return [Step(text, partial(row, text)) for text in sizes.texts]


def row(text: str, seed: int) -> Tables:
    """One text through both caches."""
    model, tokenizer = load_model()
    found = contest(model, tokenizer, TEXTS[text](tokenizer, seed))
    losses = {"window": found.window.tolist(), "heavy": found.heavy.tolist()}
    return {"texts": [{"text": text, "n_tokens": found.n_tokens} | losses]}


EXPERIMENT = Experiment("A text for H2O", Sizes(), Sizes(("random numbers",)), steps)
