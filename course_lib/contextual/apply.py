"""`with contextual(model, selector, density=0.5) as watch:` — each token uses the neurons that the selector gives it.

What is not kept is multiplied by zero, after it was computed: this measures what is lost, not what is saved. For the
time saved see course_lib/contextual/execute.

Dimension key: L blocks, N tokens of a text, F neurons, T tokens of a pass in one row.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from weakref import WeakSet

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.seen import Seen, look_through, looking
from course_lib.contextual.selector import NeuronSelector
from course_lib.contextual.sizes import refuse_mixture, sizes_of

_inside: WeakSet = WeakSet()  # models in such a block now


class Watch:
    """How dense the passes since the beginning were. Padding is not counted where an attention mask tells of it.

    Attributes:
        bytes: what the selector holds beside the model's own weights.
        n_tokens: real tokens so far.
    """

    def __init__(self, n_blocks: int, n_neurons: int, n_bytes: int) -> None:
        self.bytes, self.n_tokens = n_bytes, 0
        self._n_neurons, self._kept = n_neurons, torch.zeros(n_blocks, dtype=torch.long)

    def count(self, block: int, keep: Bool[Tensor, "T F"], real: Bool[Tensor, "T"]) -> None:
        """Add what one block kept in one pass."""
        self.n_tokens += int(real.sum()) if block == 0 else 0
        self._kept[block] += int(keep[real].sum())

    @property
    def density(self) -> tuple[float, ...]:
        """The share of its neurons that each block kept, over all tokens; NaN before the first."""
        computed = self.n_tokens * self._n_neurons
        return tuple((int(kept) / computed if computed else math.nan) for kept in self._kept)

    @property
    def mean_density(self) -> float:
        return sum(self.density) / len(self.density)


@contextmanager
def contextual(model: PreTrainedModel, selector: NeuronSelector, density: float | None = None) -> Iterator[Watch]:
    """Inside, every token computes with the neurons that the selector keeps for it; on exit the model is as before.

    Works with any call, `generate()` among them: hooks are all there is. A model that was compiled runs eagerly.

    Args:
        density: in place of the selector's own, in every block.

    Raises:
        ValueError: a density outside (0, 1], a selector of another model, a model with experts or of no known family,
            or one that is inside such a block already.
    """
    if not isinstance(selector, NeuronSelector):
        raise ValueError(f"got selector {selector!r}; expected a NeuronSelector, such as Oracle(density=0.5).")
    selector = selector if density is None else replace(selector, density=density, by_block=())
    refuse_mixture(model)
    selector.check_sizes(sizes := sizes_of(model))
    if model in _inside:
        raise ValueError("got a model whose neurons are chosen already; leave its `with contextual(...)` first.")
    watch = Watch(sizes.n_blocks, sizes.n_neurons, selector.n_bytes)

    def drop(block: int, seen: Seen) -> Tensor:
        with torch.no_grad():
            keep = selector.keep(seen, block)
        watch.count(block, keep, seen.real)
        return seen.hidden.masked_fill(~keep, 0)

    _inside.add(model)
    try:
        with looking(model, drop, selector.lookahead):
            yield watch
    finally:
        _inside.discard(model)


def choices(
    model: PreTrainedModel, selector: NeuronSelector, ids: Int[Tensor, "N"], density: float | None = None
) -> Bool[Tensor, "L N F"]:
    """Which neurons each token of a text would keep; the model itself stays dense, so no choice changes a later one."""
    selector = selector if density is None else replace(selector, density=density, by_block=())
    selector.check_sizes(sizes_of(model))
    by_block: list[Tensor] = []

    def note(block: int, seen: Seen) -> None:
        by_block.append(selector.keep(seen, block))

    look_through(model, ids[None], note, selector.lookahead)
    return torch.stack(by_block)
