"""Does the residual change slowly? Its cosine before and behind each block, the lengths of what is added; and what a
model loses that takes its blocks for slow: computed side by side, or left out.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from transformers import PreTrainedModel

from course_lib.contextual.altered import halves_in_parallel, pairs_in_parallel, skipping
from course_lib.contextual.slow_change import slow_change
from course_lib.lessons.dejavu.experiments.steps.ground import loss_row, subject
from course_lib.lessons.dejavu.experiments.steps.sizes import Sizes
from course_lib.measure.experiment import Tables
from course_lib.models import blocks


def every(n: int) -> Callable[[PreTrainedModel], AbstractContextManager]:
    """Every n-th block left out: the n-th, the 2n-th, ..."""
    return lambda model: skipping(model, range(n - 1, len(blocks(model)), n))


WAYS = {
    "attention and MLP in parallel": halves_in_parallel,
    "two blocks in parallel": pairs_in_parallel,
    "every fourth block skipped": every(4),
    "every second block skipped": every(2),
}


def change(sizes: Sizes, name: str, seed: int) -> Tables:
    """A row a block of the dense model, medians over the tokens of all evaluation windows."""
    of = subject(sizes, name, seed)
    found = slow_change(of.model, of.evaluation)
    medians = {
        "cosine": found.cosine.median(1).values,
        "size_ratio_attention": found.attention.median(1).values,
        "size_ratio_mlp": found.mlp.median(1).values,
    }
    rows = []
    for block in range(len(found.cosine)):
        row = {"model": name, "block": block}
        rows.append(row | {key: round(values[block].item(), 4) for key, values in medians.items()})
    return {"slow_change": rows}


def changed(sizes: Sizes, name: str, way: str, seed: int) -> Tables:
    """Perplexity of the model altered in one of the WAYS, without training."""
    of = subject(sizes, name, seed)
    with WAYS[way](of.model):
        return {"depth": [loss_row(of) | {"way": way}]}
