"""The answers to the exercises of lesson 12, from the library. The notebook calls them until a student's are right.

Dimension key: O outputs (rows), I inputs (columns), M models, N windows, P parts, L levels, k drafted
tokens, V tokens of the vocabulary.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.attention.speculative.accept import expected_tokens, residual
from course_lib.compose.front import ERRORS, Point, front
from course_lib.quantization.storage import code_bytes, dense_bytes, grid_bytes, sparse_bytes

COLUMN_BYTES, START_BYTES = 2, 4  # of a column's number, and of where a row begins
Number = int | float


def ways_to_store(weight: Float[Tensor, "O I"], bits: int, group: int) -> dict[str, int]:
    """Count the bytes of a layer with a code for every weight, with a bitmap, and with column numbers.

    Args:
        bits: of a code: 2, 4 or 8. group: columns that share a scale of 16 bits and a zero point of `bits`.
    """
    (rows, columns), n_stored = weight.shape, int(weight.count_nonzero())
    starts = START_BYTES * (rows + 1)
    return {
        "all codes": dense_bytes(rows, columns, bits, group),
        "bitmap": sparse_bytes(rows, columns, n_stored, bits, group),
        "index": code_bytes(n_stored, bits) + COLUMN_BYTES * n_stored + starts + grid_bytes(rows, columns, bits, group),
    }


def most_kept(rows: int, columns: int, bits: int, group: int) -> tuple[int, int]:
    """Return the largest number of kept weights with which a bitmap, and an index, takes fewer bytes than all codes.

    −1 where even a layer of zeros takes as many bytes. The grids are in all three formats, so `group` does not matter.
    """
    every, starts = rows * -(-columns * bits // 8), START_BYTES * (rows + 1)
    left = every - starts - 1  # bytes for codes and positions
    most = 8 * (left - rows * -(-columns // 8)) // bits, 8 * left // (bits + 8 * COLUMN_BYTES)
    return tuple(max(n, -1) for n in most)


def pruned_and_rounded(
    weight: Float[Tensor, "O I"], norm: Float[Tensor, "I"], n_kept: int, bits: int, group: int
) -> Float[Tensor, "O I"]:
    """Keep the n_kept weights of each row with the largest |w| · norm, and round them to the nearest of 2^bits values.

    The values are evenly spaced from the smallest to the largest kept weight of a group. Such a grid of a minimum and a
    step is what the default model's weights were stored in (Q4_1). It has no code for 0: a mask says where zeros are.

    Args:
        norm: of each input. group: columns that share a grid; it divides I.
    """
    score = norm * weight.abs()
    keep = torch.zeros_like(score, dtype=torch.bool).scatter(1, score.topk(n_kept, dim=1).indices, True)
    low = weight.masked_fill(~keep, torch.inf).unflatten(1, (-1, group)).amin(dim=2, keepdim=True)
    high = weight.masked_fill(~keep, -torch.inf).unflatten(1, (-1, group)).amax(dim=2, keepdim=True)
    n_steps = 2**bits - 1
    step = (high - low) / n_steps
    by_group = weight.unflatten(1, (-1, group))
    # A single kept weight has a step of 0; a group without kept weights has no ends at all.
    codes = torch.where(step > 0, (by_group - low) / step, 0).round().clamp(0, 2**bits - 1)
    return torch.where(keep, (low + codes * step).flatten(1), 0)


def windows_needed(losses: Float[Tensor, "N"], dense: Float[Tensor, "N"], factor: float) -> tuple[int, int]:
    """Return how many windows determine the ratio of two perplexities to within a factor, as pairs and independently.

    The interval of ERRORS standard errors reaches ERRORS · s / √n, which must be at most log(factor). Independent
    windows have the sum of both variances in place of the variance of the differences.
    """
    first, second = losses.double(), dense.double()
    variances = (first - second).var(), first.var() + second.var()
    return tuple(max(2, math.ceil((ERRORS / math.log(factor)) ** 2 * float(variance))) for variance in variances)


def pareto_front(cost: Float[Tensor, "M"], losses: Float[Tensor, "M N"]) -> Bool[Tensor, "M"]:
    """Mark the models that no other beats: no more expensive, and clearly better on the same windows."""
    points = [
        Point(name=str(at), cost=each, losses=tuple(row))
        for at, (each, row) in enumerate(zip(cost.tolist(), losses.tolist(), strict=True))
    ]
    on_front = torch.zeros(len(points), dtype=torch.bool)
    on_front[[int(point.name) for point in front(points)]] = True
    return on_front


def levels_within(sizes: Int[Tensor, "P L"], losses: Float[Tensor, "P L"], budget: int) -> Int[Tensor, "P"]:
    """Raise levels from the lowest, always by the step that saves most loss per byte among those that fit.

    Where each step of a part saves less per byte than the one before it, no choice with as many bytes has a lower loss,
    as long as no step was skipped because it did not fit (Fox, Discrete optimization via marginal analysis, 1966).
    """
    more, saved = sizes.diff(dim=1), -losses.double().diff(dim=1)
    parts, levels = torch.arange(len(sizes)), torch.zeros(len(sizes), dtype=torch.long)
    while True:
        at = levels.clamp(max=more.shape[1] - 1)
        left = budget - sizes[parts, levels].sum()
        fits = (levels < more.shape[1]) & (more[parts, at] <= left)
        if not fits.any():
            return levels
        levels[torch.where(fits, saved[parts, at] / more[parts, at], -torch.inf).argmax()] += 1


def tokens_of_a_pass(
    drafted: Int[Tensor, "k"],
    q: Float[Tensor, "k V"],
    p: Float[Tensor, "k+1 V"],
    uniform: Float[Tensor, "k+1"],
    stop: int,
) -> tuple[int, ...]:
    """Return the accepted draft tokens and one more, up to and including `stop`.

    Args:
        uniform: in [0, 1). Token x at place i is accepted where uniform_i < p_i(x) / q_i(x); the last number samples
            the token that is added.
    """
    at = torch.arange(len(drafted))
    is_accepted = uniform[:-1] < p[at, drafted] / q[at, drafted]
    n = int(is_accepted.long().cumprod(dim=0).sum())
    weights = p[n] if n == len(drafted) else residual(p[n], q[n])
    added = int((weights.double().cumsum(dim=0) <= uniform[-1]).sum().clamp(max=len(weights) - 1))
    tokens = [*drafted[:n].tolist(), added]
    return tuple(tokens[: tokens.index(stop) + 1] if stop in tokens else tokens)


def tokens_and_gain(acceptance: Number, k: int, model: Number, further: Number, draft: Number) -> tuple[Number, Number]:
    """Compute tokens per pass, (1 − α^{k+1}) / (1 − α), and by how much less a token costs than with the model alone.

    Args:
        model: the cost of a pass over one token, in any unit. further: of each additional token in that pass. draft: of
            one drafted token.
    """
    tokens = expected_tokens(float(acceptance), k)
    per_token = (model + k * (further + draft)) / tokens
    return tokens, model - per_token
