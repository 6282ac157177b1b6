"""Training data of predictors in a buffer of fixed size: inputs x of each block, and which of its neurons are active.

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
    """Inputs and labels of the same T tokens in every transformer block.

    Args:
        read: input of each block's MLP, after its norm.
        active: labels of each block.
        lookahead: number of blocks between a predictor's input and the block that it predicts.
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
        """Return the input of a block's predictor: x of the block `lookahead` blocks earlier, or of block 0."""
        return self.read[max(block - self.lookahead, 0)]

    def labels(self, block: int) -> Bool[Tensor, "T F"]:
        """Return the target of a block's predictor."""
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
    """Run the dense model over windows in evaluation mode; store x and labels of a random sample of the tokens.

    Args:
        most: the largest number of tokens to store.

    Raises:
        ValueError: the windows have only one token (the first token of a text is an outlier), `most` leaves no room for
            a token, or the lookahead is larger than the number of blocks before the last one.
    """
    sizes = sizes_of(model)
    _check(windows, most, lookahead, sizes)
    # A sorted sample of all tokens: those of one window are the slice starts[w]:starts[w + 1] of the buffer.
    sample = torch.randperm(windows.numel(), generator=torch.Generator().manual_seed(seed))[:most].sort().values
    window_index, position = sample // windows.shape[1], sample % windows.shape[1]
    starts = torch.searchsorted(window_index, torch.arange(len(windows) + 1)).tolist()
    inputs = [torch.empty(len(sample), sizes.width) for _ in range(sizes.n_blocks)]
    active = [torch.empty(len(sample), sizes.n_neurons, dtype=torch.bool) for _ in range(sizes.n_blocks)]
    for window, ids in enumerate(windows):
        held = slice(starts[window], starts[window + 1])
        rows = position[held]

        def look(block: int, seen: Seen, held: slice = held, rows: Tensor = rows) -> None:
            inputs[block][held] = seen.x[rows].float().cpu()
            active[block][held] = label(seen.hidden[rows], seen.neurons).cpu()

        if len(rows):
            look_through(model, ids[None], look)
    return Collected(inputs, active, lookahead)


def _check(windows: Tensor, most: int, lookahead: int, sizes: Sizes) -> None:
    if windows.ndim != 2 or len(windows) == 0 or windows.shape[1] < 2:
        raise ValueError(
            f"got windows of shape {tuple(windows.shape)}; expected (n, tokens) with at least two tokens each: the "
            "first token of a text has no context and is an outlier."
        )
    if most < 1:
        raise ValueError(f"got room for most={most} tokens; expected 1 or more.")
    if isinstance(lookahead, bool) or not 0 <= lookahead < sizes.n_blocks:
        raise ValueError(f"got lookahead {lookahead!r}; expected 0 to {sizes.n_blocks - 1} earlier blocks.")
