"""The open task of lesson 04: give layers different sparsities, so that the model loses 40 % of its block weights.

Dimension key: N windows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.data.corpora import windows
from course_lib.lessons.common.ideas import by_idea
from course_lib.lessons.common.results import percent
from course_lib.measure.experiment import Tables
from course_lib.measure.perplexity import window_losses
from course_lib.models import Layer, Part, layers_of, load_model, weight_of
from course_lib.pruning.allocation.base import UNIFORM, Allocation, Scan
from course_lib.pruning.allocation.exact_counts import whole_weights
from course_lib.pruning.allocation.owl import OWL
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import Unstructured

TOTAL = 0.4
MOST = 0.95  # of one layer, so that no layer is emptied
CALIBRATION, EVALUATION = (8, 256), (8, 512)  # windows, tokens of each

# (name of the matrix in its block, such as "mlp.up_proj"; depth, 0 for the first block and 1 for the last) -> how much
# sparsity the layer gets relative to the others: 2 is twice as much as 1.
Rule = Callable[[str, float], float]


@dataclass(frozen=True)
class ByRule(Allocation):
    """Sparsities in the proportions of a rule, scaled so that the model as a whole meets the pattern's sparsity."""

    rule: Rule
    layers: tuple[Layer, ...]

    def sparsities(self, pruner: LayerPruner, scan: Scan) -> dict[str, float]:
        shapes = {layer.name: tuple(weight_of(layer.module).shape) for layer in self.layers}
        n_blocks = len({id(layer.block) for layer in self.layers})
        relative = {}
        for number, layer in enumerate(self.layers):
            depth = number * n_blocks // len(self.layers) / max(n_blocks - 1, 1)
            relative[layer.name] = _checked(self.rule(layer.part, depth), layer.name)
        sizes = {name: rows * columns for name, (rows, columns) in shapes.items()}
        total = pruner.pattern.sparsity
        return whole_weights(scaled(relative, sizes, total), shapes, pruner.pattern, total)


def _checked(value: object, layer: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError(
            f"got {value!r} for {layer}; expected a number from 0 on, its sparsity relative to other layers."
        )
    return number


def scaled(relative: dict[str, float], sizes: dict[str, int], total: float) -> dict[str, float]:
    """Return relative · c, with c such that the layers together lose `total`, and none more than MOST of its weights.

    Raises:
        ValueError: when the layers that may lose weights are too few.
    """
    possible = sum(MOST * size for name, size in sizes.items() if relative[name] > 0) / sum(sizes.values())
    if possible < total:
        raise ValueError(
            f"got a rule that allows at most {percent(possible)} of the weights to be pruned; expected room for "
            f"{percent(total)}. Return a number above 0 for more layers."
        )
    low, high = 0.0, MOST / min(value for value in relative.values() if value > 0)
    for _ in range(100):
        middle = (low + high) / 2
        pruned = sum(min(MOST, relative[name] * middle) * size for name, size in sizes.items()) / sum(sizes.values())
        low, high = (middle, high) if pruned <= total else (low, middle)
    return {name: min(MOST, value * low) for name, value in relative.items()}


@dataclass(frozen=True)
class Attempt:
    """The result of a rule: the fraction of the block weights that are zero, and the loss of every window."""

    sparsity: float
    losses: Float[Tensor, "N"]


def measure(rule: Rule | Allocation | None = None, seed: int = 0) -> Attempt:
    """Prune the default model with Wanda within rows, 40 % in all, by a rule (None: equal sparsity), and evaluate it.

    Raises:
        ValueError: when the rule returns anything but numbers from 0 on, or 0 for too many layers.
    """
    model, tokenizer = load_model()
    calibration = windows("wikipedia", *CALIBRATION, tokenizer, split="calibration", seed=seed)
    evaluation = windows("wikipedia", *EVALUATION, tokenizer, split="evaluation", seed=seed)
    layers = tuple(layers_of(model))
    if rule is None:
        rule = UNIFORM
    allocation = rule if isinstance(rule, Allocation) else ByRule(rule, layers)
    prune_model(model, Wanda(Unstructured(TOTAL)), calibration, allocation=allocation)
    n_zero, n_all = (sum(f(weight_of(layer.module)) for layer in layers) for f in (_n_zero, Tensor.numel))
    return Attempt(n_zero / n_all, window_losses(model, evaluation))


def stored(table: list[dict]) -> dict[str, Attempt]:
    """Return the measured ideas, from the table of a result."""
    return {row["idea"]: Attempt(row["sparsity"], torch.tensor(row["losses"])) for row in table}


def _n_zero(weight: Tensor) -> int:
    return int((weight == 0).sum())


EQUAL, OWL_RULE = "equal sparsity", "by outliers (OWL)"
IDEAS: dict[str, Rule | Allocation | None] = {
    EQUAL: None,
    "the MLP alone": lambda part, depth: float(part.startswith("mlp")),
    "attention twice the MLP": lambda part, depth: 1.0 if part.startswith("mlp") else 2.0,
    "the first and the last block spared": lambda part, depth: float(0 < depth < 1),
    "late blocks more": lambda part, depth: 0.5 + depth,
    "early blocks more": lambda part, depth: 1.5 - depth,
    OWL_RULE: OWL(),
}


def row(idea: str, seed: int) -> Tables:
    """Measure one model, pruned by one idea."""
    attempt = measure(IDEAS[idea], seed)
    return {"ideas": [{"idea": idea, "sparsity": attempt.sparsity, "losses": attempt.losses.tolist()}]}


# The quick run keeps all neurons: with fewer, "the MLP alone" could not reach 40 %.
EXPERIMENT = replace(
    by_idea("Sparsity by layer", tuple(IDEAS), (EQUAL, "the MLP alone"), row),
    quick_part=Part(n_neurons=1536),
)
