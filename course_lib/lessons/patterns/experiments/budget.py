"""The open task of lesson 01: choose the weights to keep within a budget of bytes, for the lowest perplexity.

Dimension key: O outputs, I inputs of a matrix, N windows.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.lessons.common.ideas import by_idea
from course_lib.measure.experiment import Tables
from course_lib.measure.perplexity import window_losses
from course_lib.models import Layer, Part, layers_of, load_model, weight_of
from course_lib.sparsity.choice import bytes_by_format, cheapest
from course_lib.sparsity.patterns import Block, Columns, NofM, Unstructured

BUDGET = 0.7  # bytes of the blocks' matrices, as a fraction of the dense ones
VALUE_BYTES = 2  # float16
EVALUATION = (16, 128)  # windows, tokens of each

# (name of the matrix in its block, such as "mlp.up_proj"; depth, 0 for the first block and 1 for the last; weight)
# -> which of its weights are kept.
Rule = Callable[[str, float, Float[Tensor, "O I"]], Bool[Tensor, "O I"]]


@dataclass(frozen=True)
class Attempt:
    """The result of a rule: its bytes over the dense ones, weights kept, matrices by format, loss of each window."""

    size: float
    density: float
    formats: dict[str, int] = field(default_factory=dict)
    losses: Float[Tensor, "N"] | None = None


def attempt(rule: Rule, model: nn.Module, tokenizer: PreTrainedTokenizerBase, seed: int = 0) -> Attempt:
    """Prune the model by a rule, count every matrix in its cheapest format, and evaluate it if it is within the budget.

    Afterwards the model has its original weights.

    Raises:
        ValueError: if the rule returns anything except a mask of each matrix.
    """
    masks = masks_of(rule, model)
    sizes = [bytes_by_format(mask, VALUE_BYTES) for _, mask in masks]
    n_weights = sum(mask.numel() for _, mask in masks)
    counted = Attempt(
        size=sum(min(each.values()) for each in sizes) / (VALUE_BYTES * n_weights),
        density=sum(int(mask.sum()) for _, mask in masks) / n_weights,
        formats=dict(Counter(cheapest(each) for each in sizes).most_common()),
    )
    if counted.size > BUDGET:
        return counted
    evaluation = windows("wikipedia", *EVALUATION, tokenizer, split="evaluation", seed=seed)
    with _masked(masks):
        return replace(counted, losses=window_losses(model, evaluation, progress=False))


def masks_of(rule: Rule, model: nn.Module) -> list[tuple[Tensor, Bool[Tensor, "O I"]]]:
    """Return every matrix of the blocks with the mask that a rule chooses for it. The rule receives a copy."""
    layers = layers_of(model)
    index = {id(block): number for number, block in enumerate(dict.fromkeys(layer.block for layer in layers))}
    last = max(len(index) - 1, 1)
    masks = []
    for layer in layers:
        weight = weight_of(layer.module)
        masks.append((weight, _checked(rule(layer.part, index[id(layer.block)] / last, weight.clone()), layer, weight)))
    return masks


def _checked(mask: object, layer: Layer, weight: Tensor) -> Bool[Tensor, "O I"]:
    if not isinstance(mask, Tensor) or mask.shape != weight.shape:
        got = f"a tensor of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"got {got} for {layer.name}; expected a mask of its shape {tuple(weight.shape)}.")
    if mask.dtype != torch.bool and not ((mask == 0) | (mask == 1)).all():
        raise ValueError(f"got {mask.dtype} values for {layer.name}; expected True where a weight is kept, else False.")
    return mask.bool()


@contextmanager
def _masked(masks: list[tuple[Tensor, Tensor]]) -> Iterator[None]:
    saved = [weight.clone() for weight, _ in masks]
    try:
        for weight, mask in masks:
            weight.mul_(mask)
        yield
    finally:
        for (weight, _), dense in zip(masks, saved, strict=True):
            weight.copy_(dense)


def stored(table: list[dict]) -> dict[str, Attempt]:
    """Return the measured ideas, from the table of a result."""
    return {
        row["idea"]: Attempt(row["size"], row["density"], row["formats"], torch.tensor(row["losses"])) for row in table
    }


def _bitmap(density: float) -> Callable[[Tensor], Tensor]:
    return lambda weight: Unstructured(1 - density).keep(weight.abs())


def _relative_importance(weight: Tensor) -> Tensor:
    """|W_ij| / sum over row i + |W_ij| / sum over column j: relative importance (Zhang and others, 2024)."""
    size = weight.abs()
    return size / size.sum(1, keepdim=True) + size / size.sum(0, keepdim=True)


def _all(weight: Tensor) -> Tensor:
    return torch.ones_like(weight, dtype=torch.bool)


EQUAL, WITHOUT_ENDS, MLP_ONLY = 0.633, 0.612, 0.534  # densities at which a bitmap uses up the budget
TWO_OF_FOUR = NofM(2, 4)
IDEAS: dict[str, Rule] = {
    "single weights, in each row": lambda part, depth, weight: _bitmap(EQUAL)(weight),
    "single weights, in each matrix": lambda part, depth, weight: Unstructured(1 - EQUAL, per="layer").keep(
        weight.abs()
    ),
    "single weights, by relative size": lambda part, depth, weight: Unstructured(1 - EQUAL).keep(
        _relative_importance(weight)
    ),
    "first and last block spared": lambda part, depth, weight: (
        _bitmap(WITHOUT_ENDS)(weight) if 0 < depth < 1 else _all(weight)
    ),
    "the MLP alone": lambda part, depth, weight: _bitmap(MLP_ONLY)(weight) if part.startswith("mlp") else _all(weight),
    "2:4 in the MLP": lambda part, depth, weight: (
        TWO_OF_FOUR.keep(weight.abs()) if part.startswith("mlp") else _all(weight)
    ),
    "2:4 in the first 21 blocks": lambda part, depth, weight: (
        TWO_OF_FOUR.keep(weight.abs()) if depth < 0.7 else _all(weight)
    ),
    "2:4 in the last 21 blocks": lambda part, depth, weight: (
        TWO_OF_FOUR.keep(weight.abs()) if depth > 0.3 else _all(weight)
    ),
    "tiles of 4 × 4": lambda part, depth, weight: Block(4, 4, 0.38).keep(weight.abs()),
    "whole columns": lambda part, depth, weight: Columns(0.305).keep(weight.abs()),
}


def row(idea: str, seed: int) -> Tables:
    """Measure one idea."""
    result = attempt(IDEAS[idea], *load_model(), seed)
    numbers = {"size": result.size, "density": result.density, "formats": result.formats}
    return {"ideas": [{"idea": idea} | numbers | {"losses": [round(loss, 5) for loss in result.losses.tolist()]}]}


# Whole matrices: the densities of the ideas use up the budget where rows are as long as the model's.
EXPERIMENT = replace(
    by_idea("A budget of bytes", IDEAS, tuple(IDEAS)[:2], row), quick_part=Part(n_neurons=1536, width=None)
)
