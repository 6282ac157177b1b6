"""Figures of deck 11: three heads of the model, their masks, and what was measured, each without arguments."""

from functools import lru_cache

from matplotlib.figure import Figure
from torch import Tensor

from course_lib.attention.prefill.cumulative import smallest_set
from course_lib.attention.prefill.lines import on_columns, slashes
from course_lib.lessons.sparse_attention.drawings import clock as clock_plots
from course_lib.lessons.sparse_attention.drawings import delta as delta_plots
from course_lib.lessons.sparse_attention.drawings import drafts as draft_plots
from course_lib.lessons.sparse_attention.drawings import ideas
from course_lib.lessons.sparse_attention.drawings import prefill as prefill_plots
from course_lib.lessons.sparse_attention.drawings import steering as steering_plots
from course_lib.lessons.sparse_attention.drawings import visual as visual_plots
from course_lib.lessons.sparse_attention.experiments.experiment_steering import ON_BOTH
from course_lib.lessons.sparse_attention.live import heads, plots
from course_lib.lessons.sparse_attention.measuring.ground import loaded, text
from course_lib.lessons.sparse_attention.measuring.items import READING
from course_lib.lessons.sparse_attention.steps.mask import token_mask
from course_lib.lessons.sparse_attention.tables import clock as clock_claims
from course_lib.lessons.sparse_attention.tables import delta as delta_claims
from course_lib.lessons.sparse_attention.tables import drafts as draft_claims
from course_lib.lessons.sparse_attention.tables import prefill as prefill_claims
from course_lib.lessons.sparse_attention.tables import steering as steering_claims
from course_lib.lessons.sparse_attention.tables import visual as visual_claims

SHOWN = ((17, 4), (2, 2), (11, 6))  # a head that rests on the sink, one that looks near, one that block means foretell
LENGTH = 1024  # tokens


@lru_cache(maxsize=1)
def _seen() -> heads.Heads:
    return heads.heads_of_text(loaded()[0], text(1, LENGTH, seed=0)[0])


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


def over_gamma() -> Figure:
    return prefill_plots.over_gamma(prefill_claims.results())


def rivals() -> Figure:
    return prefill_plots.rivals(prefill_claims.results())


def on_the_clock() -> Figure:
    return clock_plots.over_density(clock_claims.results())


def by_head() -> Figure:
    return prefill_plots.by_head(prefill_claims.results())


def over_threshold() -> Figure:
    return delta_plots.over_threshold(delta_claims.results())


def steered() -> Figure:
    return steering_plots.steered(steering_claims.results(), only=ON_BOTH)


def steered_reading() -> Figure:
    return steering_plots.steered(steering_claims.results(), READING)


def by_layer() -> Figure:
    return steering_plots.by_layer(steering_claims.results())


def kept_tokens() -> Figure:
    return visual_plots.kept_tokens(visual_claims.results())


def accuracy_over_share() -> Figure:
    return visual_plots.accuracy_over_share(visual_claims.results())


def what_parts_add() -> Figure:
    return visual_plots.what_parts_add(visual_claims.results())


def passes() -> Figure:
    return draft_plots.passes(draft_claims.results())
