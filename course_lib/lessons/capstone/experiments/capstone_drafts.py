"""The capstone's own models as drafts: passes of the dense model for 100 tokens, on running text and on copying.

Lesson 11 measures prompt lookup, an early exit, Wanda at 50 %, a structurally pruned model and an oracle's neurons as
drafts at temperature 1 (`course reproduce drafts`). Here the drafts are recipes, the bytes read per pass are counted
from tensors, and the text is the model's greedy continuation: after a text that it has just read, the model copies.

Tables:

    drafts   by draft and kind: new tokens and passes of each text, tokens drafted, tried, accepted; bytes that a pass
             of the draft reads, as a fraction of the dense model's

Greedy drafting returns the greedy text of the dense model, whatever the draft, so that all drafts write the same.
Minutes planned on one idle core: 9.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product

import torch
from jaxtyping import Int
from torch import Tensor

from course_lib.attention.speculative.decode import speculate
from course_lib.attention.speculative.draft import Draft, Lookup
from course_lib.compose.build import Built
from course_lib.compose.counting.account import account
from course_lib.compose.draft import drafting
from course_lib.data.corpora import windows
from course_lib.lessons.capstone.experiments import ground
from course_lib.lessons.capstone.experiments.recipes import CHOSEN, WEIGHTS, Parts
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.subject import loaded
from course_lib.measure.experiment import Experiment, Step, Tables

RUNNING, COPYING = "running text", "copying"
LOOKUP = "lookup"
MADE = ground.Sizes()  # like the recipes of the other experiments
DRAFTS: dict[str, Parts] = {
    "CATS 50 %": {"neurons": CHOSEN["CATS 50 %"]},
    "3 bits, 64": {"weights": WEIGHTS["3 bits, 64"]},
    "SparseGPT 50 %, 4 bits": {"weights": WEIGHTS["SparseGPT 50 %, 4 bits"]},
    "SparseGPT 50 %, 3 bits": {"weights": WEIGHTS["SparseGPT 50 %, 3 bits"]},
}


@dataclass(frozen=True)
class Sizes:
    """Write `n_new` tokens after `begin`, with at most k drafted per pass; a text to copy is read once before."""

    texts: int = 4
    begin: int = 48
    n_new: int = 100
    k: int = 4
    drafts: tuple[str, ...] = (LOOKUP, *DRAFTS)
    of_recipes: ground.Sizes = MADE


QUICK = Sizes(texts=2, begin=8, n_new=4, k=2, drafts=(LOOKUP, "CATS 50 %"), of_recipes=ground.QUICK)


def steps(sizes: Sizes) -> list[Step]:
    """List the steps; both kinds of text are consecutive, so that a draft is made once."""
    pairs = product(sizes.drafts, (RUNNING, COPYING))
    return [Step(f"{name}: {kind}", partial(drafted, sizes, name, kind)) for name, kind in pairs]


def texts(sizes: Sizes, kind: str, seed: int) -> Iterator[Int[Tensor, "N"]]:
    """Yield the prompts. A text to copy is as long as the written one, and is followed by its own first tokens."""
    length = sizes.begin + sizes.n_new
    for window in windows("wikipedia", sizes.texts, length, loaded()[1], "evaluation", seed):
        yield window[: sizes.begin] if kind == RUNNING else torch.cat([window, window[: sizes.begin]])


def drafted(sizes: Sizes, name: str, kind: str, seed: int) -> Tables:
    """Measure one draft on one kind of text."""
    with draft_of(name, sizes, seed) as draft:
        runs = [speculate(loaded()[0], text, sizes.n_new, draft, sizes.k) for text in texts(sizes, kind, seed)]
    rounds = [each for run in runs for each in run.rounds]
    row: Row = {"draft": name, "kind": kind, "new": [len(run.new) for run in runs]}
    row |= {"passes": [len(run.rounds) for run in runs], "k": sizes.k}
    row |= {"tried": sum(each.n_tried for each in rounds), "stayed": sum(each.n_stayed for each in rounds)}
    return {
        "drafts": [row | {"drafted": sum(each.n_drafted for each in rounds), "read": read_share(name, sizes, seed)}]
    }


@contextmanager
def draft_of(name: str, sizes: Sizes, seed: int) -> Iterator[Draft]:
    """Make a prompt-lookup draft, or the model of a recipe with its parts active."""
    if name == LOOKUP:
        yield Lookup(loaded()[0].config.vocab_size)
    else:
        with drafting(built(name, sizes, seed)) as draft:
            yield draft


@lru_cache(maxsize=1)
def built(name: str, sizes: Sizes, seed: int) -> Built:
    """Build the model of a draft's recipe."""
    return ground.made(DRAFTS[name], sizes.of_recipes, seed)


def read_share(name: str, sizes: Sizes, seed: int) -> float:
    """Return the bytes that a pass of the draft reads after a text, as a fraction of the dense model's."""
    if name == LOOKUP:
        return 0.0
    (text,) = windows("wikipedia", 1, sizes.begin + sizes.n_new, loaded()[1], "evaluation", seed)
    dense = ground.made({}, sizes.of_recipes, seed)
    return round(account(built(name, sizes, seed), text).read / account(dense, text).read, 4)


EXPERIMENT = Experiment("Compressed models as drafts", Sizes(), QUICK, steps)
