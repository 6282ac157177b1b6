"""Measure what each sparsity pattern costs the default model: magnitude pruning without calibration.

Dimension key: O outputs (rows), I inputs (columns).
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn

from course_lib.data.corpora import windows
from course_lib.lessons.common.losses import perplexity_row
from course_lib.lessons.common.results import load_measured, rows
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.measure.perplexity import Perplexity
from course_lib.models import blocks, linears, load_model, weight_of
from course_lib.sparsity.patterns import Block, Columns, NofM, Pattern, Rows, Unstructured
from course_lib.sparsity.ranking import n_pruned


def six_patterns(sparsity: float) -> dict[str, Pattern]:
    """Return one pattern of each kind with the same sparsity, from the freest to the most regular.

    Raises:
        ValueError: for a sparsity that is not a multiple of a quarter, which n of 4 cannot have.
    """
    n_kept = 4 * (1 - sparsity)
    if n_kept not in (1, 2, 3):
        raise ValueError(f"got sparsity={sparsity}; expected 0.25, 0.5 or 0.75, so that n of 4 can have it too.")
    return {
        "unstructured": Unstructured(sparsity),
        f"{n_kept:.0f}:4": NofM(int(n_kept), 4),
        "blocks 4 × 4": Block(4, 4, sparsity),
        "blocks 16 × 16": Block(16, 16, sparsity),
        "columns": Columns(sparsity),
        "rows": Rows(sparsity),
    }


def squares_kept(weight: Float[Tensor, "O I"], pattern: Pattern) -> float:
    """Compute the fraction of the sum of squared weights that is kept when a pattern keeps the largest squares."""
    squares = weight.square()
    return (squares[pattern.keep(squares)].double().sum() / squares.double().sum()).item()


def mask_bits(pattern: Pattern, rows: int, columns: int) -> float:
    """Compute log2 of the number of masks of this pattern and sparsity per weight: the least that an index can take."""
    match pattern:
        case Unstructured(sparsity, "row"):
            return _log2_choices(columns, n_pruned(columns, sparsity)) / columns
        case NofM(n, m):
            return _log2_choices(m, n) / m
        case Block(r, c, sparsity):
            units = (rows // r) * (columns // c)
        case Columns(sparsity):
            units = columns
        case Rows(sparsity):
            units = rows
        case _:
            raise ValueError(f"got {pattern}; expected one of six_patterns.")
    return _log2_choices(units, n_pruned(units, sparsity)) / (rows * columns)


def _log2_choices(n: int, k: int) -> float:
    """log2 of n over k."""
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)


@contextmanager
def pruned_by_magnitude(model: nn.Module, pattern: Pattern) -> Iterator[None]:
    """Prune every linear layer of the blocks within the `with` block; afterwards the model has its original weights."""
    weights = [weight_of(layer) for block in blocks(model) for layer in linears(block).values()]
    saved = [weight.clone() for weight in weights]
    try:
        for weight in weights:
            weight.mul_(pattern.keep(weight.square()))
        yield
    finally:
        for weight, dense in zip(weights, saved, strict=True):
            weight.copy_(dense)


@dataclass(frozen=True)
class Sizes:
    """How many windows of how many tokens to evaluate on, at which sparsities (multiples of a quarter)."""

    evaluation: int = 8
    length: int = 512
    sparsities: tuple[float, ...] = (0.25, 0.5)


QUICK = Sizes(2, 32, (0.5,))


def steps(sizes: Sizes) -> list[Step]:
    """List the dense model once, then each pattern at each sparsity."""
    plan = [Step("dense", partial(row, sizes, "dense", 0.0))]
    return plan + [
        Step(f"{name} at {sparsity:.0%}", partial(row, sizes, name, sparsity))
        for sparsity in sizes.sparsities
        for name in six_patterns(sparsity)
    ]


def row(sizes: Sizes, pattern: str, sparsity: float, seed: int) -> Tables:
    """Measure the perplexity with one pattern."""
    model, tokenizer = load_model()
    ids = windows("wikipedia", sizes.evaluation, sizes.length, tokenizer, "evaluation", seed)
    chosen = Unstructured(0.0) if pattern == "dense" else six_patterns(sparsity)[pattern]
    with pruned_by_magnitude(model, chosen):
        numbers = perplexity_row(model, ids)
    return {"perplexity": [{"pattern": pattern, "sparsity": sparsity} | numbers]}


def stored_perplexities() -> dict[float, dict[str, Perplexity]]:
    """Load the committed result by sparsity and pattern; each sparsity has the dense model among its patterns."""
    perplexities: dict[float, dict[str, Perplexity]] = {}
    for record in rows(load_measured("patterns"), "perplexity"):
        value = Perplexity(
            record["perplexity"], record["standard_error"], record["n_tokens"], tuple(record.get("losses", ()))
        )
        perplexities.setdefault(record["sparsity"], {})[record["pattern"]] = value
    dense = perplexities.pop(0.0)
    return {sparsity: dense | by_pattern for sparsity, by_pattern in perplexities.items()}


EXPERIMENT = Experiment("Magnitude pruning by pattern", Sizes(), QUICK, steps)
