"""Simple ideas for the open task of lesson 11: three tenths of the causal blocks, chosen in several ways.

One table, scores: the loss of every window with dense attention, and with the blocks that each idea chooses.
"""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.common.subject import article_windows, loaded
from course_lib.lessons.sparse_attention.live.own_blocks import DENSE, IDEAS, attempt
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.measure.perplexity import window_losses


@dataclass(frozen=True)
class Sizes:
    """Windows that are read, and their tokens."""

    evaluation: int = 8
    length: int = 1024


def steps(sizes: Sizes) -> list[Step]:
    return [Step(idea, partial(read, sizes, idea)) for idea in (DENSE, *IDEAS)]


def read(sizes: Sizes, idea: str, seed: int) -> Tables:
    """All windows with the blocks of one idea."""
    model, _ = loaded()
    windows = article_windows(sizes.evaluation, sizes.length, seed)
    dense = idea == DENSE
    losses = window_losses(model, windows, progress=False) if dense else attempt(IDEAS[idea], model, windows)
    return {"scores": [{"idea": idea, "losses": [round(loss, 5) for loss in losses.tolist()]}]}


EXPERIMENT = Experiment("Which blocks to read", Sizes(), Sizes(2, 256), steps)
