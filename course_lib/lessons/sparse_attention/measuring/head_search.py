"""Which heads to steer: the search on the development set, each set of heads tried once."""

from functools import cache, partial
from statistics import fmean

from course_lib.attention.steering.auto import ANSWER_IT
from course_lib.attention.steering.heads import HeadSearch, search_heads
from course_lib.attention.steering.steer import Head, steering
from course_lib.lessons.common.subject import loaded
from course_lib.lessons.sparse_attention.measuring import items as asked
from course_lib.lessons.sparse_attention.measuring.steering_sets import Sizes, development, nothing
from course_lib.models import blocks
from course_lib.models import heads as heads_of


def shape() -> tuple[int, int]:
    """Layers of the model, and query heads of each."""
    return len(blocks(loaded()[0])), heads_of(loaded()[0]).n_query


def whole_layer(layer: int) -> tuple[Head, ...]:
    return tuple((layer, head) for head in range(shape()[1]))


@cache
def worth(sizes: Sizes, heads: tuple[Head, ...], seed: int) -> float:
    """The mean log-probability of the right answers of the development set, its key sentences steered."""
    items = development(sizes, seed)
    prompts, right = asked.as_prompts(items, ANSWER_IT), [item.choices[:1] for item in items]
    inside = partial(steering, loaded()[0], heads=heads, alpha=sizes.alpha) if heads else nothing
    answers = asked.answered(prompts, right, [[item.key] for item in items], inside)
    return fmean(answer.log_probability for answer in answers)


@cache
def searched(sizes: Sizes, seed: int) -> HeadSearch:
    settings = (sizes.best_layers, sizes.per_layer, sizes.pooled)
    return search_heads(lambda heads: worth(sizes, tuple(heads), seed), *shape(), *settings)


def best_layer(sizes: Sizes, seed: int) -> tuple[Head, ...]:
    """All heads of the layer that is worth most as a whole."""
    by_layer = searched(sizes, seed).by_layer
    return whole_layer(by_layer.index(max(by_layer)))
