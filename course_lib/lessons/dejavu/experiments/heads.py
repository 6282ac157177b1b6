"""How many heads does a token need? Heads by the length of their contributions, or static; heads with neurons.

Dimension key: L blocks, n windows of N tokens.
"""

from functools import lru_cache

from course_lib.contextual.apply import Watch, contextual
from course_lib.contextual.attention.heads import HeadScore, HeadWatch, contextual_heads, part_norms, static_heads
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.lessons.dejavu.experiments.ground import Row, Sizes, Subject, loss_row, subject
from course_lib.measure.experiment import Tables
from course_lib.models import architecture, blocks, heads, weight_of

OUTPUT, STATIC = "output", "static"
CHOICES = (OUTPUT, STATIC)


def kept(sizes: Sizes, name: str, n_kept: int, chosen_by: str, seed: int) -> Tables:
    """Measure perplexity with this many query heads per block, and the fraction of key-value groups that is read."""
    row = heads_row(subject(sizes, name, seed), score(sizes, name, chosen_by, seed), n_kept)
    return {"heads": [row | {"chosen_by": chosen_by}]}


def heads_row(of: Subject, ordered: HeadScore, n_kept: int) -> Row:
    """Measure perplexity with the n_kept heads of the highest scores, and the fraction of groups with any of them."""
    with contextual_heads(of.model, ordered, keep=n_kept) as watch:
        row = loss_row(of)
    row |= {"kept": n_kept, "of": heads(of.model).n_query}
    return row | {"groups": round(watch.group_share.mean().item(), 4)}


def together(sizes: Sizes, name: str, n_kept: int, density: float, seed: int) -> Tables:
    """Measure perplexity with heads and neurons by oracle, and the fraction of the blocks' weights that is read."""
    of = subject(sizes, name, seed)
    with contextual(of.model, Oracle(), density) as neurons, contextual_heads(of.model, part_norms, n_kept) as those:
        row = loss_row(of)
    row |= {"kept": n_kept, "of": heads(of.model).n_query, "density": density}
    return {"together": [row | {"left": round(weights_read(of.model, those, neurons), 4)}]}


@lru_cache(maxsize=1)
def score(sizes: Sizes, name: str, chosen_by: str, seed: int) -> HeadScore:
    """Return the score of the heads; a static one is computed once from the calibration windows."""
    of = subject(sizes, name, seed)
    return part_norms if chosen_by == OUTPUT else static_heads(of.model, of.calibration)


def weights_read(model: object, of_heads: HeadWatch, of_neurons: Watch) -> float:
    """Rows of the query and columns of the output matrix by head; keys and values by group, which is read if any of its
    heads is; neurons by their density. The mean over tokens.
    """
    read = whole = 0.0
    by_block = zip(blocks(model), of_heads.share, of_heads.group_share, of_neurons.density, strict=True)
    for block, share, group_share, density in by_block:
        family = architecture(block)
        query, key, value, output = (weight_of(block.get_submodule(part)).numel() for part in family.attention)
        neurons = sum(weight_of(block.get_submodule(part)).numel() for part in family.mlp)
        read += share.mean().item() * (query + output) + group_share.mean().item() * (key + value) + density * neurons
        whole += query + output + key + value + neurons
    return read / whole
