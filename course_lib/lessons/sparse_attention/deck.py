"""Figures for deck 11: three heads of the model, their masks, and plots of the lesson with other arguments."""

from functools import lru_cache

from matplotlib.figure import Figure
from torch import Tensor

from course_lib.attention.prefill.cumulative import smallest_set
from course_lib.attention.prefill.lines import on_columns, slashes
from course_lib.lessons.common.subject import article_windows, loaded
from course_lib.lessons.sparse_attention.drawings import ideas
from course_lib.lessons.sparse_attention.drawings import steering as steering_plots
from course_lib.lessons.sparse_attention.experiments.experiment_steering import ON_BOTH
from course_lib.lessons.sparse_attention.live import heads, plots
from course_lib.lessons.sparse_attention.measuring.items import READING
from course_lib.lessons.sparse_attention.steps.mask import token_mask
from course_lib.lessons.sparse_attention.tables import steering as steering_claims

SHOWN = ((17, 4), (2, 2), (11, 6))  # a head that rests on the sink, one that looks near, one that block means foretell
LENGTH = 1024  # tokens


@lru_cache(maxsize=1)
def _seen() -> heads.Heads:
    return heads.heads_of_text(loaded()[0], article_windows(1, LENGTH, seed=0)[0])


def four_ways() -> Figure:
    """Two by two, as it stands beside the title."""
    return ideas.four_ways(n_columns=2)


def three_heads() -> Figure:
    """What three heads of the course's model attend to."""
    return plots.maps({head: _seen().weights(head) for head in SHOWN})


def lines_of_heads() -> Figure:
    """The vertical and slash sums of the three."""
    return plots.lines({head: _lines(_seen().weights(head, heads.BLOCK)) for head in SHOWN})


def mask_of_a_head() -> Figure:
    """The blocks that hold nine tenths of what the last queries of a head attend to."""
    chosen = heads.Chosen(_seen().weights(SHOWN[2]), _lines, smallest_set, token_mask)
    return plots.mask(chosen, 0.9, SHOWN[2])


def _lines(weights: Tensor) -> tuple[Tensor, Tensor]:
    return on_columns(weights[None], block_size=1)[0], slashes(weights[None])[0]


def steered() -> Figure:
    return steering_plots.steered(steering_claims.results(), only=ON_BOTH)


def steered_reading() -> Figure:
    return steering_plots.steered(steering_claims.results(), READING)
