"""Search the heads to steer from coarse to fine. Zhang and others, Model tells itself where to attend, 2024,
https://arxiv.org/abs/2409.10790

Steering every head of a model is too much, and testing each head needs one pass over the development set per head. So
the search first steers whole layers, then single heads of the best layers, and then a few sets of the best heads.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from course_lib.attention.steering.steer import Head
from course_lib.settings import is_real

# The score of steering these heads on a development set, such as the log-probability of right answers: high = good.
Worth = Callable[[Collection[Head]], float]


@dataclass(frozen=True)
class HeadSearch:
    """The sets of heads that a search tried, and the best set; if several are best, the one that was tried first.

    The best of many sets has a biased score on the development set, so evaluate it on other items.
    """

    by_layer: tuple[float, ...]
    by_head: dict[Head, float]
    candidates: dict[str, tuple[tuple[Head, ...], float]]

    @property
    def name(self) -> str:
        return max(self.candidates, key=lambda name: self.candidates[name][1])

    @property
    def heads(self) -> tuple[Head, ...]:
        return self.candidates[self.name][0]

    @property
    def n_tried(self) -> int:
        """The number of passes over the development set."""
        return len(self.by_layer) + len(self.by_head) + len(self.candidates)


def search_heads(
    worth: Worth,
    n_layers: int,
    n_heads: int,
    best_layers: int = 3,
    per_layer: Sequence[int] = (4, 6),
    pooled: Sequence[int] = (8, 16),
) -> HeadSearch:
    """Try layers, then the heads of the `best_layers`, then sets: whole layers, the best per layer, the best of all.

    Args:
        per_layer: sizes of sets with this number of heads of each layer; larger ones than a layer's heads are skipped.
        pooled: sizes of sets with the best heads of all layers together.

    Raises:
        ValueError: `best_layers` is below 1 or above the number of layers, or the score is NaN.
    """
    worth = _checked(worth)
    if not 1 <= best_layers <= n_layers:
        raise ValueError(f"got best_layers={best_layers}; expected 1 to {n_layers}.")
    by_layer = tuple(worth(_layer(layer, n_heads)) for layer in range(n_layers))
    best = sorted(range(n_layers), key=lambda layer: -by_layer[layer])[:best_layers]
    by_head = {head: worth([head]) for layer in best for head in _layer(layer, n_heads)}
    sets = _sets(best, by_head, n_heads, per_layer, pooled)
    return HeadSearch(by_layer, by_head, {name: (heads, worth(heads)) for name, heads in sets})


def _checked(worth: Worth) -> Worth:
    """Return the same function with a check for NaN, which cannot be compared."""

    def number(heads: Collection[Head]) -> float:
        value = worth(heads)
        if not is_real(value):
            raise ValueError(
                f"got worth {value!r} of steering {len(heads)} heads, {list(heads)[:3]} among them; expected a number. "
                "Look for NaN in the model, or for an empty development set."
            )
        return value

    return number


def _layer(layer: int, n_heads: int) -> tuple[Head, ...]:
    return tuple((layer, head) for head in range(n_heads))


def _sets(
    best: list[int], by_head: dict[Head, float], n_heads: int, per_layer: Sequence[int], pooled: Sequence[int]
) -> Iterator[tuple[str, tuple[Head, ...]]]:
    """Yield the sets to choose from, with readable names; small sets of a kind come first."""
    ranked = sorted(by_head, key=lambda head: -by_head[head])
    for n in range(1, len(best) + 1):
        yield f"best {n} layers", tuple(head for layer in best[:n] for head in _layer(layer, n_heads))
    for n in (n for n in per_layer if n < n_heads):
        of_each = ([head for head in ranked if head[0] == layer][:n] for layer in best)
        yield f"{n} heads of each", tuple(head for heads in of_each for head in heads)
    for n in (n for n in pooled if n < len(ranked)):
        yield f"{n} heads of all", tuple(ranked[:n])
