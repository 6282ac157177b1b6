"""The open task of lesson 11: which three tenths of the causal blocks should each head read?

Dimension key: heads, T tokens in N blocks of S, D size of a head, W windows.
"""

from collections.abc import Callable
from dataclasses import dataclass

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
from course_lib.lessons.common.tables import load_measured, percent
from course_lib.lessons.common.verdicts import claim, of_samples, said
from course_lib.lessons.sparse_attention.live.heads import BLOCK
from course_lib.measure.perplexity import window_losses

Score = Callable[[Tensor, Tensor, float], Tensor]  # (query, keys, scaling) -> (heads, N, N)
DENSITY = 0.3
DENSE = "dense"


@dataclass(frozen=True, kw_only=True)
class ByFunction(OfDensity):
    """As many blocks of every head, those that a function finds worth most."""

    function: Score

    def _score(
        self, query: Float[Tensor, "heads T D"], keys: Float[Tensor, "H T D"], scaling: float, layer: int
    ) -> Float[Tensor, "heads N N"]:
        repeated = keys.repeat_interleave(len(query) // len(keys), dim=0)
        found, n = self.function(query, repeated, scaling), n_blocks(query.shape[1], self.block_size)
        if not isinstance(found, Tensor) or found.shape != (len(query), n, n) or bool(found.isnan().any()):
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"got {what}; expected a number for each block, ({len(query)}, {n}, {n}), none of it NaN.")
        return found.float()


def attempt(function: Score, model: PreTrainedModel, windows: Int[Tensor, "W T"]) -> Float[Tensor, "W"]:
    """The loss of each window, of which each head reads DENSITY of the causal blocks.

    Raises:
        ValueError: for a function that gives anything else than a number for each block.
    """
    with prefilling(model, ByFunction(density=DENSITY, block_size=BLOCK, function=function), measured="none"):
        return window_losses(model, windows, progress=False)


def nearest(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """The nearest blocks, whatever the text."""
    n = n_blocks(query.shape[1], BLOCK)
    return -block_distance(n).float().expand(len(query), -1, -1)


def by_lot(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Any blocks."""
    n = n_blocks(query.shape[1], BLOCK)
    return torch.rand(len(query), n, n, generator=torch.Generator().manual_seed(0))


def of_means(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """What the mean query of a block makes of the mean keys, as shares of its row."""
    logits = block_means(query, BLOCK) @ block_means(keys, BLOCK).mT * scaling
    return logits.masked_fill(~causal_blocks(logits.shape[1]), -torch.inf).softmax(dim=-1)


def of_lines(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """The better of the column and the diagonal, as the last block of queries sees them."""
    weights = last_weights(query, keys, scaling, BLOCK)
    columns, diagonals = on_columns(weights, BLOCK), on_block_diagonals(slashes(weights), BLOCK)
    return torch.maximum(columns[:, None, :], diagonals[:, block_distance(columns.shape[1]).clamp(min=0)])


def of_attention(query: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """The attention itself, block by block: it costs all that dense attention costs, and shows what can be reached."""
    weights = last_weights(query, keys, scaling, query.shape[1])
    n, n_tokens = n_blocks(query.shape[1], BLOCK), query.shape[1]
    filled = torch.nn.functional.pad(weights, (0, n * BLOCK - n_tokens, 0, n * BLOCK - n_tokens))
    return filled.view(len(query), n, BLOCK, n, BLOCK).sum(dim=(2, 4))


IDEAS: dict[str, Score] = {
    "the nearest": nearest,
    "by lot": by_lot,
    "means of queries and keys": of_means,
    "columns and diagonals": of_lines,
    "the attention itself (dear)": of_attention,
}


def against_dense(made: Float[Tensor, "W"], dense: Float[Tensor, "W"]) -> str:
    """What a score lost on the windows, beside dense attention and beside the nearest blocks' place in the table."""
    lost = of_samples(made - dense)
    perplexity = float(made.mean().exp())
    return f"{percent(DENSITY)} of the blocks: perplexity {perplexity:.1f}, {said(lost)} nats a token above dense"


def table_of_ideas() -> str:
    """What simple ideas lose on the windows of `course reproduce block_scores`."""
    result = load_measured("sparse_attention", "block_scores")
    losses = {row["idea"]: row["losses"] for row in result["tables"]["scores"]}
    gaps = {
        idea: of_samples([a - b for a, b in zip(each, losses[DENSE], strict=True)])
        for idea, each in losses.items()
        if idea != DENSE
    }
    lines = [f"{'score':<30}nats a token above dense"]
    lines += [f"{idea:<30}{said(gap)}" for idea, gap in gaps.items()]
    best = min((idea for idea in gaps if "dear" not in idea), key=lambda idea: gaps[idea].value)
    gain = of_samples([a - b for a, b in zip(losses["the nearest"], losses[best], strict=True)])
    return "\n".join([*lines, claim(f"{best} lose less than the nearest", gain)])
