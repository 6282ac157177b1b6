"""Scores for the open task of lesson 11: every head reads the 30 % of the causal blocks with the highest scores.

One table, scores: the loss of every window with dense attention, and with the blocks that each score chooses.

Dimension key: heads, T tokens in N blocks of S, D size of a head, W windows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.attention.prefill.apply import prefilling
from course_lib.attention.prefill.baselines import OfDensity
from course_lib.attention.prefill.index import causal_blocks, n_blocks
from course_lib.attention.prefill.lines import (
    block_distance,
    block_means,
    last_weights,
    on_block_diagonals,
    on_columns,
    slashes,
)
from course_lib.lessons.common.subject import article_windows, loaded
from course_lib.lessons.sparse_attention.heads import BLOCK
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.measure.perplexity import window_losses

Score = Callable[[Tensor, Tensor, float], Tensor]  # (query, keys, scaling) -> (heads, N, N)
DENSITY = 0.3
DENSE = "dense"


@dataclass(frozen=True)
class Sizes:
    """Windows that are read, and their tokens."""

    evaluation: int = 8
    length: int = 1024


def steps(sizes: Sizes) -> list[Step]:
    return [Step(idea, partial(read, sizes, idea)) for idea in (DENSE, *IDEAS)]


def read(sizes: Sizes, idea: str, seed: int) -> Tables:
    """Read all windows with the blocks that one score chooses."""
    model, _ = loaded()
    windows = article_windows(sizes.evaluation, sizes.length, seed)
    losses = window_losses(model, windows, progress=False) if idea == DENSE else measure(IDEAS[idea], model, windows)
    return {"scores": [{"idea": idea, "losses": [round(loss, 5) for loss in losses.tolist()]}]}


@dataclass(frozen=True, kw_only=True)
class ByFunction(OfDensity):
    """The same number of blocks for every head: those to which a function gives the highest scores."""

    function: Score

    def _score(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, layer: int
    ) -> Float[Tensor, "heads N N"]:
        repeated = keys.repeat_interleave(len(query) // len(keys), dim=0)
        scores, n = self.function(query, repeated, scaling), n_blocks(query.shape[1], self.block_size)
        if not isinstance(scores, Tensor) or scores.shape != (len(query), n, n) or bool(scores.isnan().any()):
            what = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(f"got {what}; expected a number for each block, ({len(query)}, {n}, {n}), without NaN.")
        return scores.float()


def measure(
    function: Score, model: PreTrainedModel | None = None, windows: Int[Tensor, "W T"] | None = None
) -> Float[Tensor, "W"]:
    """Return the loss of each window when every head reads DENSITY of the causal blocks.

    Args:
        function: gives each block a score; blocks with a high score are read.
        model, windows: the default model and the windows of the experiment, if not given.

    Raises:
        ValueError: the function does not return a number for each block.
    """
    model = model or loaded()[0]
    windows = article_windows(Sizes.evaluation, Sizes.length, 0) if windows is None else windows
    with prefilling(model, ByFunction(density=DENSITY, block_size=BLOCK, function=function), measured="none"):
        return window_losses(model, windows, progress=False)


def nearest(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Score the nearest blocks highest, whatever the text."""
    n = n_blocks(query.shape[1], BLOCK)
    return -block_distance(n).float().expand(len(query), -1, -1)


def random(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Score blocks at random."""
    n = n_blocks(query.shape[1], BLOCK)
    return torch.rand(len(query), n, n, generator=torch.Generator().manual_seed(0))


def of_means(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Score a block by the attention of the mean query to the mean key."""
    logits = block_means(query, BLOCK) @ block_means(keys, BLOCK).mT * scaling
    return logits.masked_fill(~causal_blocks(logits.shape[1]), -torch.inf).softmax(dim=-1)


def of_lines(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Score a block by its column or its diagonal in the attention of the last block of queries, the larger of both."""
    weights = last_weights(query, keys, scaling, BLOCK)
    columns, diagonals = on_columns(weights, BLOCK), on_block_diagonals(slashes(weights), BLOCK)
    return torch.maximum(columns[:, None, :], diagonals[:, block_distance(columns.shape[1]).clamp(min=0)])


def of_attention(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Score a block by its attention. This oracle costs as much as dense attention; it shows what can be reached."""
    weights = last_weights(query, keys, scaling, query.shape[1])
    n, n_tokens = n_blocks(query.shape[1], BLOCK), query.shape[1]
    filled = torch.nn.functional.pad(weights, (0, n * BLOCK - n_tokens, 0, n * BLOCK - n_tokens))
    return filled.view(len(query), n, BLOCK, n, BLOCK).sum(dim=(2, 4))


IDEAS: dict[str, Score] = {
    "the nearest": nearest,
    "random": random,
    "means of queries and keys": of_means,
    "columns and diagonals": of_lines,
    "the attention itself (oracle)": of_attention,
}
EXPERIMENT = Experiment("Which blocks to read", Sizes(), Sizes(2, 256), steps)
