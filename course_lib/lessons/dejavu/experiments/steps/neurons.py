"""Does each token need its own neurons? Chosen in its place, by the token alone, or once for all, equally many."""

from dataclasses import replace
from functools import lru_cache

from course_lib.contextual.selector import NeuronSelector
from course_lib.contextual.selectors.alone import TokenAlone
from course_lib.contextual.selectors.embedding import FromEmbedding
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.contextual.selectors.recorded import Recorded
from course_lib.contextual.selectors.static import Static
from course_lib.lessons.dejavu.experiments.steps.ground import Row, joined, selected_row, subject
from course_lib.lessons.dejavu.experiments.steps.sizes import Sizes
from course_lib.measure.experiment import Tables

ORACLE, RECORDED, STATIC = "oracle", "oracle, two passes", "static"
ALONE, EMBEDDING = "token alone", "map of the embedding"  # the paper's non-contextual choice, and one that was fitted
CHOICES = (ORACLE, RECORDED, ALONE, EMBEDDING, STATIC)
AT_ONCE = 4  # windows of a recording: 190 MB of the default model's neurons


def wanted(sizes: Sizes) -> list[tuple[str, float]]:
    """(choice, density): the oracle at all densities, the others at few."""
    return [(by, share) for by in CHOICES for share in (sizes.densities if by == ORACLE else sizes.few)]


@lru_cache(maxsize=1)
def fitted(sizes: Sizes, name: str, chosen_by: str, seed: int) -> NeuronSelector:
    """What needs text has read the calibration windows; densities in a row share it."""
    of = subject(sizes, name, seed)
    selectors = {ORACLE: Oracle, ALONE: TokenAlone, EMBEDDING: FromEmbedding, STATIC: Static}
    return selectors[chosen_by]().fit(of.model, of.calibration)


def kept(sizes: Sizes, name: str, chosen_by: str, density: float, seed: int) -> Tables:
    """Perplexity with this share of every block's neurons."""
    if chosen_by == RECORDED:
        row = recorded(sizes, name, density, seed)
    else:
        row = selected_row(subject(sizes, name, seed), fitted(sizes, name, chosen_by, seed), density)
    return {"neurons": [row | {"chosen_by": chosen_by}]}


def recorded(sizes: Sizes, name: str, density: float, seed: int) -> Row:
    """As the paper tests it: what mattered in a dense pass is all that the second pass has. A few windows at a time."""
    of = subject(sizes, name, seed)
    rows = []
    for some in of.evaluation.split(AT_ONCE):
        rows.append(selected_row(replace(of, evaluation=some), Recorded().fit(of.model, some), density))
    return joined(rows)
