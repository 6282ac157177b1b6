"""The residents and questions on which steering is tested, and others on which its heads are chosen."""

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
    """Questions of the test and of the development set, and how heads are searched."""

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
    """n residents whom the model finds from the key sentence alone, and how many were tried for them."""
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
    """Residents of another seed, none of whom is in the test."""
    taken = {item.key for item in test(sizes, RESIDENTS, seed)}
    return tuple(item for item in gated(sizes.developed, seed + 1)[0] if item.key not in taken)


@cache
def named_of(sizes: Sizes, data: str, seed: int) -> tuple[str, ...]:
    """The sentence of each text that is nearest to what the model writes when it is asked for the key."""
    items = test(sizes, data, seed)
    said = asked.written(asked.as_prompts(items, NAME_IT), sizes.n_new)
    return tuple(nearest_sentence(text, item.sentences).sentence for text, item in zip(said, items, strict=True))


def nothing(columns: Tensor) -> AbstractContextManager:
    """The model as it is."""
    return nullcontext()


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
