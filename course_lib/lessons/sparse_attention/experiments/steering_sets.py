"""Make the residents and questions for testing steering, and others for choosing its heads."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from statistics import fmean

from torch import Tensor

from course_lib.attention.steering.auto import ANSWER_IT, NAME_IT
from course_lib.attention.steering.heads import HeadSearch, search_heads
from course_lib.attention.steering.sentences import nearest_sentence
from course_lib.attention.steering.steer import Head, steering
from course_lib.lessons.common.subject import loaded
from course_lib.lessons.sparse_attention.experiments import items as asked
from course_lib.lessons.sparse_attention.experiments.items import RESIDENTS, Item
from course_lib.models import blocks
from course_lib.models import heads as heads_of


@dataclass(frozen=True)
class Sizes:
    """Numbers of questions in the test and development set, and the search for heads."""

    tested: int = 32
    developed: int = 8
    alpha: float = 0.01
    mild: float = 0.3
    best_layers: int = 2
    per_layer: tuple[int, ...] = (4, 6)
    pooled: tuple[int, ...] = (8,)
    n_new: int = 32  # tokens of a named sentence


QUICK = Sizes(tested=3, developed=2, best_layers=1, per_layer=(2,), pooled=(), n_new=4)


@cache
def gated(n: int, seed: int) -> tuple[tuple[Item, ...], int]:
    """Return n residents that the model answers from the key sentence alone, and the number that was tried."""
    kept, tried = [], 0
    everyone = asked.residents(seed)
    while len(kept) < n:
        some = everyone[tried : tried + asked.BATCH]
        if not some:
            raise ValueError(f"got {len(kept)} of {n} residents through the gate, of {tried}; expected a larger model.")
        alone = [Item((item.key,), item.question, item.key, item.choices) for item in some]
        right = asked.answered(
            asked.as_prompts(alone, ANSWER_IT), [item.choices for item in alone], [[]] * len(alone), nothing
        )
        kept += [item for item, answer in zip(some, right, strict=True) if answer.right]
        tried += len(some)
    return tuple(kept[:n]), tried


def test(sizes: Sizes, data: str, seed: int) -> tuple[Item, ...]:
    return gated(sizes.tested, seed)[0] if data == RESIDENTS else tuple(asked.reading(seed)[: sizes.tested])


def development(sizes: Sizes, seed: int) -> tuple[Item, ...]:
    """Return residents of another seed, none of which is in the test."""
    taken = {item.key for item in test(sizes, RESIDENTS, seed)}
    return tuple(item for item in gated(sizes.developed, seed + 1)[0] if item.key not in taken)


@cache
def named_of(sizes: Sizes, data: str, seed: int) -> tuple[str, ...]:
    """Return the sentence of each text that is nearest to the model's output when it is asked for the key sentence."""
    items = test(sizes, data, seed)
    said = asked.written(asked.as_prompts(items, NAME_IT), sizes.n_new)
    return tuple(nearest_sentence(text, item.sentences).sentence for text, item in zip(said, items, strict=True))


def nothing(columns: Tensor) -> AbstractContextManager:
    """Return a context manager that changes nothing."""
    return nullcontext()


def shape() -> tuple[int, int]:
    """Return the number of layers of the model, and of query heads in each."""
    return len(blocks(loaded()[0])), heads_of(loaded()[0]).n_query


def whole_layer(layer: int) -> tuple[Head, ...]:
    return tuple((layer, head) for head in range(shape()[1]))


@cache
def worth(sizes: Sizes, heads: tuple[Head, ...], seed: int) -> float:
    """Return the mean log-probability of the correct answers of the development set, with its key sentences steered."""
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
    """Return all heads of the layer with the best result when all its heads are steered."""
    by_layer = searched(sizes, seed).by_layer
    return whole_layer(by_layer.index(max(by_layer)))
