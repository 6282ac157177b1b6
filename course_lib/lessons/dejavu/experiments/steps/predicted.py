"""Who can tell which neurons a token needs? Perplexity by what chooses, and the bytes that it holds."""

from functools import lru_cache

from course_lib.contextual.neurons import neurons_of
from course_lib.contextual.selector import NeuronSelector
from course_lib.contextual.selectors.low_bit import LowBit
from course_lib.contextual.selectors.low_rank import LowRank
from course_lib.contextual.selectors.neighbours import Neighbours
from course_lib.contextual.selectors.static import Static
from course_lib.lessons.dejavu.experiments.steps.ground import Row, selected_row, subject
from course_lib.lessons.dejavu.experiments.steps.sizes import Sizes
from course_lib.measure.experiment import Tables

STATIC, COPY, SCAN, PREDICTOR = "one set for all", "a 2-bit copy", "nearest rows", "a trained predictor"
COPIES: dict[str, NeuronSelector] = {
    STATIC: Static(),
    COPY: LowBit(bits=2),
    "a 3-bit copy": LowBit(bits=3),
    "a 4-bit copy": LowBit(bits=4),
    "a copy of rank 31": LowRank(rank=31),
    "a copy of rank 64": LowRank(rank=64),
    SCAN: Neighbours(),
}


ON_BYTES = (STATIC, COPY, "a 4-bit copy")  # also asked on the ReLU model


@lru_cache(maxsize=2)
def fitted(sizes: Sizes, name: str, chosen_by: str, seed: int) -> NeuronSelector:
    """What needs text has read the calibration windows; densities in a row share it."""
    of = subject(sizes, name, seed)
    return COPIES[chosen_by].fit(of.model, of.calibration)


def copied(sizes: Sizes, name: str, chosen_by: str, density: float, seed: int) -> Tables:
    """Chosen by something that nothing was trained for."""
    return {"predicted": [predicted_row(sizes, name, fitted(sizes, name, chosen_by, seed), density, chosen_by, seed)]}


def predicted_row(sizes: Sizes, name: str, selector: NeuronSelector, density: float, chosen_by: str, seed: int) -> Row:
    """Perplexity, what the selector holds, and what the MLPs hold."""
    of = subject(sizes, name, seed)
    row = selected_row(of, selector, density) | {"chosen_by": chosen_by, "lookahead": selector.lookahead}
    return row | {"mlp_bytes": sum(each.n_bytes for each in neurons_of(of.model))}
