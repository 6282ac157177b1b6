"""Does the residual change slowly? Its cosine before and behind each block, the lengths of what is added; and what a
model loses that takes its blocks for slow: computed side by side, or left out.
"""

from functools import partial

from course_lib.contextual.residual.altered import attention_beside_mlp, blocks_in_pairs, blocks_skipped
from course_lib.contextual.residual.changes import changes_of
from course_lib.lessons.dejavu.claims.ground import loss_row, subject
from course_lib.lessons.dejavu.claims.sizes import Sizes
from course_lib.measure.experiment import Tables

WAYS = {
    "attention and MLP in parallel": attention_beside_mlp,
    "two blocks in parallel": blocks_in_pairs,
    "every fourth block skipped": partial(blocks_skipped, every=4),
    "every second block skipped": partial(blocks_skipped, every=2),
}


def change(sizes: Sizes, name: str, seed: int) -> Tables:
    """A row a block of the dense model, medians over the tokens of all evaluation windows."""
    of = subject(sizes, name, seed)
    rows = []
    for block, found in enumerate(changes_of(of.model, of.evaluation)):
        row = {"model": name, "block": block, "cosine": round(found.cosine, 4)}
        row |= {"size_ratio_attention": round(found.attention, 4), "size_ratio_mlp": round(found.mlp, 4)}
        rows.append(row)
    return {"slow_change": rows}


def changed(sizes: Sizes, name: str, way: str, seed: int) -> Tables:
    """Perplexity of the model altered in one of the WAYS, without training."""
    of = subject(sizes, name, seed)
    with WAYS[way](of.model):
        return {"depth": [loss_row(of) | {"way": way}]}
