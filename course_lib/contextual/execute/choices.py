"""Choose the neurons to compute: all of them, those of an oracle, or those of trained predictors.

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
    """Choose all neurons, by returning no index."""


def predicted(predictors: Sequence[Predictor], density: float | Sequence[float]) -> Choice:
    """Return a choice of exactly max(1, round(density · F)) neurons, those with the highest predicted logits.

    Predicting the logits is part of the time of a decoding step.

    Args:
        density: fraction of neurons to compute, the same in every transformer block or one per block.

    Raises:
        ValueError: a density is outside (0, 1], or there is not one density per predictor.
    """
    pairs = [(predictor.into.weight.detach(), long_columns(predictor.out.weight.detach())) for predictor in predictors]
    densities = _by_block(density, len(pairs))
    counts = [n_kept(fraction, len(w_out)) for fraction, (_, w_out) in zip(densities, pairs, strict=True)]

    def choose(block: int, position: int, x: Float[Tensor, "D"]) -> Int[Tensor, "K"]:
        w_in, w_out = pairs[block]
        # logits = W_out (W_in x): r · D + F · r multiplications, compared with F · D per matrix of the MLP
        return highest(torch.mv(w_out, torch.mv(w_in, x)), counts[block])

    return choose


def long_columns(weight: Float[Tensor, "F r"]) -> Float[Tensor, "F r"]:
    """Store the same matrix column by column, so that a matrix-vector product runs along F, which is longer than r."""
    return weight.T.contiguous().T


def known(sets: Sequence[Sequence[Tensor]]) -> Choice:
    """Return precomputed sets, one per position and transformer block, so that choosing takes no time."""
    return lambda block, position, x: sets[position][block]


@torch.inference_mode()
def oracle_sets(
    decoder: Decoder, ids: Int[Tensor, "N"], density: float | Sequence[float]
) -> list[list[Int[Tensor, "K"]]]:
    """Return the most important neurons of each token and block: max(1, round(density · F)), without those of value 0.

    The decoder computes only these neurons while it reads the text, so later blocks get the inputs that they will get
    when the sets are used.

    Raises:
        ValueError: a density is outside (0, 1], or there is not one density per transformer block.
    """
    densities = _by_block(density, len(decoder.blocks))
    norms = [block.mlp.weights.down.norm(dim=1) for block in decoder.blocks]
    sets: list[list[Tensor]] = [[] for _ in ids]

    def choose(block: int, position: int, x: Float[Tensor, "D"]) -> Int[Tensor, "K"]:
        weights = decoder.blocks[block].mlp.weights
        importance = weights.values(x).abs() * norms[block]  # |h_i| ‖w_i‖
        best = importance.topk(n_kept(densities[block], weights.n))
        sets[position].append(best.indices[best.values > 0])
        return sets[position][block]

    decoder.read(ids, choose)
    return sets


def _by_block(density: float | Sequence[float], n_blocks: int) -> list[float]:
    """Return one density per transformer block, after checking them."""
    densities = [density] * n_blocks if isinstance(density, (int, float)) else list(density)
    for fraction in densities:
        check_density(fraction)
    if len(densities) != n_blocks:
        raise ValueError(f"got {len(densities)} densities for {n_blocks} blocks; expected one, or one for each block.")
    return densities
