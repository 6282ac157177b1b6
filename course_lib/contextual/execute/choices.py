"""Ways to choose the neurons that are computed: all of them, an oracle, or trained predictors.

Dimension key: N tokens, D width, r rank, F neurons, K chosen neurons.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.contextual.execute.decode import Choice, Decoder
from course_lib.contextual.execute.on_kernels import highest
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.contextual.selector import check_density, n_kept


def everything(block: int, position: int, x: Float[Tensor, "D"]) -> None:
    """All neurons, without an index."""


def predicted(predictors: Sequence[Predictor], density: float | Sequence[float]) -> Choice:
    """Exactly max(1, round(density · F)) neurons, the highest logits; finding them is part of a step's time.

    Args:
        density: the share of every block, or one for each.

    Raises:
        ValueError: for a density that is none, or another number of them than of predictors.
    """
    pairs = [(each.into.weight.detach(), long_columns(each.out.weight.detach())) for each in predictors]
    shares = _by_block(density, len(pairs))
    counts = [n_kept(share, len(out)) for share, (_, out) in zip(shares, pairs, strict=True)]

    def choose(block: int, position: int, x: Float[Tensor, "D"]) -> Int[Tensor, "K"]:
        into, out = pairs[block]
        return highest(torch.mv(out, torch.mv(into, x)), counts[block])

    return choose


def long_columns(weight: Float[Tensor, "F r"]) -> Float[Tensor, "F r"]:
    """The same matrix with its columns in one stretch each: a product runs along F in place of r, which is short."""
    return weight.T.contiguous().T


def known(sets: Sequence[Sequence[Tensor]]) -> Choice:
    """Sets that were found before, one a position and block, so that finding them takes no time."""
    return lambda block, position, x: sets[position][block]


@torch.inference_mode()
def oracle_sets(
    decoder: Decoder, ids: Int[Tensor, "N"], density: float | Sequence[float]
) -> list[list[Int[Tensor, "K"]]]:
    """For each token and block the neurons that matter most, at most max(1, round(density · F)), none that is zero.

    They are chosen as the text is read with chosen neurons alone, so that a later block sees what it will see.

    Raises:
        ValueError: for a density that is none, or another number of them than of blocks.
    """
    shares = _by_block(density, len(decoder.blocks))
    norms = [block.mlp.weights.down.norm(dim=1) for block in decoder.blocks]
    sets: list[list[Tensor]] = [[] for _ in ids]

    def choose(block: int, position: int, x: Float[Tensor, "D"]) -> Int[Tensor, "K"]:
        weights = decoder.blocks[block].mlp.weights
        importance = weights.values(x).abs() * norms[block]
        best = importance.topk(n_kept(shares[block], weights.n))
        sets[position].append(best.indices[best.values > 0])
        return sets[position][block]

    decoder.read(ids, choose)
    return sets


def _by_block(density: float | Sequence[float], n_blocks: int) -> list[float]:
    shares = [density] * n_blocks if isinstance(density, (int, float)) else list(density)
    for share in shares:
        check_density(share)
    if len(shares) != n_blocks:
        raise ValueError(f"got {len(shares)} densities for {n_blocks} blocks; expected one, or one for each block.")
    return shares
