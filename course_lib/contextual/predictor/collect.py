"""What predictors learn from, held in a buffer of fixed size: x of each block, and which of its neurons are active.

Dimension key: n windows of N tokens, T tokens held, D width, F neurons, L blocks.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.predictor.labels import Label
from course_lib.contextual.seen import Seen, look_through
from course_lib.contextual.sizes import Sizes, sizes_of
from course_lib.repetition import evaluated


@dataclass(frozen=True, eq=False)
class Collected:
    """The same T tokens at every block.

    Args:
        read: what the MLP of each block reads, behind its norm.
        active: the labels of each block.
        lookahead: how many blocks before its own a predictor reads.
    """

    read: list[Float[Tensor, "T D"]]
    active: list[Bool[Tensor, "T F"]]
    lookahead: int = 0

    @property
    def n_blocks(self) -> int:
        return len(self.read)

    @property
    def n_tokens(self) -> int:
        return len(self.read[0])

    def inputs(self, block: int) -> Float[Tensor, "T D"]:
        """What a block's predictor reads: x of the block `lookahead` earlier, or of block 0 where there is none."""
        return self.read[max(block - self.lookahead, 0)]

    def labels(self, block: int) -> Bool[Tensor, "T F"]:
        """What the predictor of a block should say."""
        return self.active[block]


@evaluated
def collect(
    model: PreTrainedModel,
    windows: Int[Tensor, "n N"],
    label: Label,
    most: int = 16384,
    lookahead: int = 0,
    seed: int = 0,
) -> Collected:
    """Run the dense model over windows in evaluation mode; hold x and labels of `most` tokens at most, a random choice.

    Raises:
        ValueError: sequences of one token, whose x is that of a first token and of no other; no room for a token; a
            lookahead that is no number of earlier blocks.
    """
    sizes = sizes_of(model)
    _check(windows, most, lookahead, sizes)
    chosen = torch.randperm(windows.numel(), generator=torch.Generator().manual_seed(seed))[:most].sort().values
    of_window, place = chosen // windows.shape[1], chosen % windows.shape[1]
    starts = torch.searchsorted(of_window, torch.arange(len(windows) + 1)).tolist()
    read = [torch.empty(len(chosen), sizes.width) for _ in range(sizes.n_blocks)]
    active = [torch.empty(len(chosen), sizes.n_neurons, dtype=torch.bool) for _ in range(sizes.n_blocks)]
    for window, ids in enumerate(windows):
        held = slice(starts[window], starts[window + 1])
        rows = place[held]

        def look(block: int, seen: Seen, held: slice = held, rows: Tensor = rows) -> None:
            read[block][held] = seen.x[rows].float().cpu()
            active[block][held] = label(seen.hidden[rows], seen.neurons).cpu()

        if len(rows):
            look_through(model, ids[None], look)
    return Collected(read, active, lookahead)


def _check(windows: Tensor, most: int, lookahead: int, sizes: Sizes) -> None:
    if windows.ndim != 2 or len(windows) == 0 or windows.shape[1] < 2:
        raise ValueError(
            f"got windows of shape {tuple(windows.shape)}; expected (n, tokens) with at least two tokens each: the "
            "first token of a text is read alone and is like no other."
        )
    if most < 1:
        raise ValueError(f"got room for most={most} tokens; expected 1 or more.")
    if isinstance(lookahead, bool) or not 0 <= lookahead < sizes.n_blocks:
        raise ValueError(f"got lookahead {lookahead!r}; expected 0 to {sizes.n_blocks - 1}, blocks before the own.")
