"""`with contextual(model, selector, density=0.5) as watch:` — each token uses only the neurons that the selector keeps.

Neurons that are not kept are computed and then multiplied by zero: this measures the loss in quality, not the time
saved. On a GPU, a pass of few tokens computes only the neurons that are kept (execute/on_kernels.py). For the time
saved on a CPU see course_lib/contextual/execute.

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

from course_lib.contextual.execute.on_kernels import few_tokens
from course_lib.contextual.seen import Seen, look_through, looking
from course_lib.contextual.selector import NeuronSelector
from course_lib.contextual.sizes import refuse_mixture, sizes_of

_inside: WeakSet = WeakSet()  # models in such a block now


class Watch:
    """Count the kept neurons of all passes so far. Padding is not counted if there is an attention mask.

    Replays of a step that is recorded as a CUDA graph are not counted.

    Attributes:
        bytes: what the selector stores in addition to the model's own weights.
    """

    def __init__(self, n_blocks: int, n_neurons: int, n_bytes: int) -> None:
        self.bytes, self._n_neurons = n_bytes, n_neurons
        # Numbers, or tensors on a GPU: we wait for it only when a count is read.
        self._n_tokens: int | Tensor = 0
        self._n_real: int | Tensor = 0  # of the present pass
        self._kept: list[int | Tensor] = [0] * n_blocks

    def count(self, block: int, keep: Bool[Tensor, "T F"], real: Bool[Tensor, "T"]) -> None:
        """Add the kept neurons of one block in one pass."""
        self._begin(block, real.sum())
        self._kept[block] += (keep & real[:, None]).sum() if keep.is_cuda else int(keep[real].sum())

    def count_exactly(self, block: int, n_kept: int, seen: Seen) -> None:
        """Add the same for a pass in which each token kept `n_kept` neurons."""
        self._begin(block, seen.real.sum() if seen.is_masked else len(seen.x))
        self._kept[block] = self._kept[block] + n_kept * self._n_real

    def _begin(self, block: int, n_real: int | Tensor) -> None:
        if block == 0:
            self._n_real = n_real if isinstance(n_real, int) or n_real.is_cuda else int(n_real)
            self._n_tokens = self._n_tokens + self._n_real

    @property
    def n_tokens(self) -> int:
        """The number of tokens so far, without padding."""
        return int(self._n_tokens)

    @property
    def density(self) -> tuple[float, ...]:
        """The fraction of its neurons that each block kept, over all tokens; NaN before the first token."""
        computed = self.n_tokens * self._n_neurons
        return tuple((int(kept) / computed if computed else math.nan) for kept in self._kept)

    @property
    def mean_density(self) -> float:
        return sum(self.density) / len(self.density)


@contextmanager
def contextual(model: PreTrainedModel, selector: NeuronSelector, density: float | None = None) -> Iterator[Watch]:
    """Compute every token with the neurons that the selector keeps for it, inside the `with` block; restore on exit.

    It works with any call, including `generate()`. A compiled model runs eagerly. Weights must not change inside.

    Args:
        density: replaces the selector's density in every block.

    Raises:
        ValueError: a density outside (0, 1]; a selector of another model; a model with experts or of an unknown
            family, or one that is already inside such a `with` block.
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
        with few_tokens(model, selector) as few:

            def compute(block: int, seen: Seen) -> Tensor | None:
                found = few(block, seen)
                if found is not None:
                    watch.count_exactly(block, few.counts[block], seen)
                return found

            with looking(model, drop, selector.lookahead, few and compute):
                yield watch
    finally:
        _inside.discard(model)


def choices(
    model: PreTrainedModel, selector: NeuronSelector, ids: Int[Tensor, "N"], density: float | None = None
) -> Bool[Tensor, "L N F"]:
    """Return the neurons that each token of a text would keep. The model stays dense, so choices are independent."""
    selector = selector if density is None else replace(selector, density=density, by_block=())
    selector.check_sizes(sizes_of(model))
    by_block: list[Tensor] = []

    def note(block: int, seen: Seen) -> None:
        by_block.append(selector.keep(seen, block))

    look_through(model, ids[None], note, selector.lookahead)
    return torch.stack(by_block)
