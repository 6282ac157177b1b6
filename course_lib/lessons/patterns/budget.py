"""The open task of lesson 01: choose what stays of every matrix, in a budget of bytes, so that the model reads well.

Dimension key: O outputs, I inputs of a matrix, N windows.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from course_lib.data.corpora import windows
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.measure.paired import mean_and_error
from course_lib.measure.perplexity import window_losses
from course_lib.models import Layer, layers_of, weight_of
from course_lib.sparsity.choice import bytes_by_format, cheapest
from course_lib.sparsity.patterns import Block, Columns, NofM, Unstructured

BUDGET = 0.7  # bytes of the blocks' matrices, beside those of the dense ones
VALUE_BYTES = 2  # float16
HELD_OUT = (16, 128)  # windows, tokens of each

# (name of the matrix in its block, such as "mlp.up_proj"; depth, 0 for the first block and 1 for the last; weight)
# -> which of its weights stay.
Rule = Callable[[str, float, Float[Tensor, "O I"]], Bool[Tensor, "O I"]]


@dataclass(frozen=True)
class Attempt:
    """What came of a rule: bytes beside dense, weights kept, matrices by format, and the loss of each window."""

    size: float
    density: float
    formats: dict[str, int] = field(default_factory=dict)
    losses: Float[Tensor, "N"] | None = None


def attempt(rule: Rule, model: nn.Module, tokenizer: PreTrainedTokenizerBase, seed: int = 0) -> Attempt:
    """Zero what a rule drops, count every matrix in its cheapest format, and read held-out text if that is in budget.

    The model has its weights back afterwards.

    Raises:
        ValueError: for a rule that gives anything but a mask of each matrix.
    """
    masks = masks_of(rule, model)
    sizes = [bytes_by_format(mask, VALUE_BYTES) for _, mask in masks]
    n_weights = sum(mask.numel() for _, mask in masks)
    made = Attempt(
        size=sum(min(each.values()) for each in sizes) / (VALUE_BYTES * n_weights),
        density=sum(int(mask.sum()) for _, mask in masks) / n_weights,
        formats=dict(Counter(cheapest(each) for each in sizes).most_common()),
    )
    if made.size > BUDGET:
        return made
    held_out = windows("wikipedia", *HELD_OUT, tokenizer, split="evaluation", seed=seed)
    with _masked(masks):
        losses = window_losses(model, held_out, progress=False)
    return Attempt(made.size, made.density, made.formats, losses)


def masks_of(rule: Rule, model: nn.Module) -> list[tuple[Tensor, Bool[Tensor, "O I"]]]:
    """Every matrix of the blocks, and what a rule keeps of it. The rule sees a copy."""
    layers = layers_of(model)
    index = {id(block): number for number, block in enumerate(dict.fromkeys(layer.block for layer in layers))}
    last = max(len(index) - 1, 1)
    found = []
    for layer in layers:
        weight = weight_of(layer.module)
        found.append((weight, _checked(rule(layer.part, index[id(layer.block)] / last, weight.clone()), layer, weight)))
    return found


def _checked(mask: object, layer: Layer, weight: Tensor) -> Bool[Tensor, "O I"]:
    if not isinstance(mask, Tensor) or mask.shape != weight.shape:
        got = f"a tensor of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"got {got} for {layer.name}; expected a mask of its shape {tuple(weight.shape)}.")
    if mask.dtype != torch.bool and not ((mask == 0) | (mask == 1)).all():
        raise ValueError(f"got {mask.dtype} values for {layer.name}; expected True where a weight stays, else False.")
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


def _in_a_bitmap(density: float) -> Callable[[Tensor], Tensor]:
    return lambda weight: Unstructured(1 - density).keep(weight.abs())


def _relative(weight: Tensor) -> Tensor:
    """|W_ij| / sum over row i + |W_ij| / sum over column j: relative importance (Zhang and others, 2024)."""
    size = weight.abs()
    return size / size.sum(1, keepdim=True) + size / size.sum(0, keepdim=True)


def _all(weight: Tensor) -> Tensor:
    return torch.ones_like(weight, dtype=torch.bool)


ALIKE, SPARED, MLP_ALONE = 0.633, 0.612, 0.534  # densities of a bitmap that use up the budget
TWO_OF_FOUR = NofM(2, 4)
IDEAS: dict[str, Rule] = {
    "single weights, in each row": lambda part, depth, weight: _in_a_bitmap(ALIKE)(weight),
    "single weights, in each matrix": lambda part, depth, weight: Unstructured(1 - ALIKE, per="layer").keep(
        weight.abs()
    ),
    "single weights, by relative size": lambda part, depth, weight: Unstructured(1 - ALIKE).keep(_relative(weight)),
    "first and last block spared": lambda part, depth, weight: (
        _in_a_bitmap(SPARED)(weight) if 0 < depth < 1 else _all(weight)
    ),
    "the MLP alone": lambda part, depth, weight: (
        _in_a_bitmap(MLP_ALONE)(weight) if part.startswith("mlp") else _all(weight)
    ),
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


ABOVE, ERROR = "log-perplexity above the first row", "its standard error"


def table(ideas: Mapping[str, Attempt], mine: Attempt | None = None) -> Table:
    """Every idea compared with the first of them; yours last. A choice over the budget has no perplexity."""
    first = next(iter(ideas.values()))
    rows = []
    for name, made in {**ideas, **({"yours": mine} if mine else {})}.items():
        row = {"what is kept": name, "weights kept": made.density, "bytes": made.size}
        is_compared = made.losses is not None and made is not first
        value, error = mean_and_error(made.losses - first.losses) if is_compared else (None, None)
        perplexity = None if made.losses is None else made.losses.mean().exp().item()
        rows.append(row | {"perplexity": perplexity, ABOVE: value, ERROR: error})
    stored_as = ""
    if mine:
        stored_as = f" Yours is stored as {', '.join(f'{name} ({n})' for name, n in mine.formats.items())}."
    return Table(
        rows,
        caption="What is kept within a budget of bytes",
        formats={
            "weights kept": number(1, "%", 100),
            "bytes": number(1, "%", 100),
            "perplexity": number(1),
            (ABOVE, ERROR): plus_minus(3, sign=True),
        },
        note="bytes: of the matrices of the blocks, compared with the dense ones. A choice over the budget of "
        f"{percent(BUDGET)} is not evaluated.{stored_as}",
    )


def stored(rows: list[dict]) -> dict[str, Attempt]:
    """The ideas that were measured, from the table of a result."""
    return {
        row["idea"]: Attempt(row["size"], row["density"], row["formats"], torch.tensor(row["losses"])) for row in rows
    }
