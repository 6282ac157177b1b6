"""What a pattern leaves of a matrix, what it costs a model, and patterns that change with the input.

Dimension key: O outputs (rows), I inputs (columns), B windows, N tokens.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear

from course_lib.models import blocks, linears, weight_of
from course_lib.sparsity.patterns import Block, Columns, NofM, Pattern, Rows, Unstructured
from course_lib.sparsity.ranking import n_pruned


def square_kept(weight: Float[Tensor, "O I"], pattern: Pattern) -> float:
    """The share of the sum of squared weights that stays when a pattern keeps the largest."""
    squares = weight.square()
    return (squares[pattern.keep(squares)].sum(dtype=torch.float64) / squares.sum(dtype=torch.float64)).item()


def bits_of_freedom(pattern: Pattern, rows: int, columns: int) -> float:
    """log2 of the number of masks of this pattern and sparsity, for each weight: the least that an index can take."""
    match pattern:
        case Unstructured(sparsity, "row"):
            return _bits(columns, n_pruned(columns, sparsity)) / columns
        case NofM(n, m):
            return _bits(m, n) / m
        case Block(r, c, sparsity):
            units = (rows // r) * (columns // c)
        case Columns(sparsity):
            units = columns
        case Rows(sparsity):
            units = rows
        case _:
            raise ValueError(f"got {pattern}; expected one of the patterns of one_of_each.")
    return _bits(units, n_pruned(units, sparsity)) / (rows * columns)


def _bits(units: int, chosen: int) -> float:
    """log2 of n over k."""
    return (math.lgamma(units + 1) - math.lgamma(chosen + 1) - math.lgamma(units - chosen + 1)) / math.log(2)


@contextmanager
def pruned_by_magnitude(model: nn.Module, pattern: Pattern) -> Iterator[None]:
    """Within the block, every linear of the model has the pattern; afterwards it has its weights back."""
    weights = [weight_of(layer) for block in blocks(model) for layer in linears(block).values()]
    saved = [weight.clone() for weight in weights]
    try:
        for weight in weights:
            weight.mul_(pattern.keep(weight.square()))
        yield
    finally:
        for weight, dense in zip(weights, saved, strict=True):
            weight.copy_(dense)


def stored_in_each_group(keep: Bool[Tensor, "O I"], m: int = 4) -> Float[Tensor, "bins"]:
    """Of all groups of m neighbouring inputs, the share that keeps 0, 1, ..., m of them."""
    kept = keep.unflatten(1, (-1, m)).sum(2).flatten()
    return torch.bincount(kept, minlength=m + 1) / len(kept)


def keep_most_active(inputs: Float[Tensor, "N I"], n_kept: int) -> Bool[Tensor, "N I"]:
    """Dynamic: each token keeps the inputs that are largest for it."""
    return Unstructured(1 - n_kept / inputs.shape[1], per="row").keep(inputs.abs())


def keep_active_on_average(inputs: Float[Tensor, "N I"], n_kept: int) -> Bool[Tensor, "N I"]:
    """Static: all tokens keep the same inputs, those that are largest on average."""
    average = inputs.abs().mean(dim=0, keepdim=True)
    return Unstructured(1 - n_kept / inputs.shape[1], per="row").keep(average).expand(inputs.shape)


def output_error(weight: Float[Tensor, "O I"], inputs: Float[Tensor, "N I"], keep: Bool[Tensor, "N I"]) -> float:
    """Mean over tokens of the squared relative error of a linear layer that sees only the inputs kept."""
    expected = linear(inputs, weight)
    error = linear(inputs * keep, weight) - expected
    return (error.square().sum(1) / expected.square().sum(1)).mean().item()


def dynamic_and_static(
    weight: Float[Tensor, "O I"], inputs: Float[Tensor, "N I"], shares: Sequence[float]
) -> dict[str, dict[float, float]]:
    """Error of a layer's output by the share of inputs kept, chosen for each token or once for all."""
    choices = {"chosen for each token": keep_most_active, "chosen once for all": keep_active_on_average}
    n = inputs.shape[1]
    return {
        name: {share: output_error(weight, inputs, choose(inputs, int(share * n))) for share in shares}
        for name, choose in choices.items()
    }


def inputs_of(model: nn.Module, layer: nn.Module, tokens: Int[Tensor, "B N"]) -> Float[Tensor, "T I"]:
    """What reaches one layer when the model reads tokens, without the first token of each window, a special case."""
    seen = []
    hook = layer.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].detach()))
    try:
        with torch.no_grad():
            model(tokens)
    finally:
        hook.remove()
    return seen[0][:, 1:].flatten(0, 1)


def one_of_each(sparsity: float) -> dict[str, Pattern]:
    """One pattern of each kind at the same sparsity, a multiple of a quarter, from the freest to the most regular."""
    n_kept = 4 * (1 - sparsity)
    if n_kept not in (1, 2, 3):
        raise ValueError(f"sparsity={sparsity}: expected 0.25, 0.5 or 0.75, so that n of 4 can have it too")
    return {
        "unstructured": Unstructured(sparsity),
        f"{n_kept:.0f}:4": NofM(int(n_kept), 4),
        "blocks 4 × 4": Block(4, 4, sparsity),
        "blocks 16 × 16": Block(16, 16, sparsity),
        "columns": Columns(sparsity),
        "rows": Rows(sparsity),
    }
