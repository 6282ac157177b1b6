"""The open task of lesson 04: let layers lose different shares, so that the model loses 40 % and as little as it can.

Dimension key: N windows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.data.corpora import windows
from course_lib.lessons.common.ideas import beside_the_first, perplexity_beside
from course_lib.lessons.common.tables import percent
from course_lib.measure.perplexity import window_losses
from course_lib.models import Layer, layers_of, load_model, weight_of
from course_lib.pruning.allocation.base import UNIFORM, Allocation, Scan
from course_lib.pruning.allocation.exact_counts import whole_weights
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.sequential import prune_model
from course_lib.sparsity.patterns import Unstructured

TOTAL = 0.4
MOST = 0.95  # of a layer: none is emptied
CALIBRATION, HELD_OUT = (8, 256), (8, 512)  # windows, tokens of each

# (name of the matrix in its block, such as "mlp.up_proj"; depth, 0 for the first block and 1 for the last) -> how much
# it is to lose, beside the others: 2 is twice as much as 1.
Rule = Callable[[str, float], float]


@dataclass(frozen=True)
class ByRule(Allocation):
    """Shares in the proportions of a rule, scaled so that the model as a whole meets the pattern's sparsity."""

    rule: Rule
    layers: tuple[Layer, ...]

    def sparsities(self, pruner: LayerPruner, scan: Scan) -> dict[str, float]:
        shapes = {layer.name: tuple(weight_of(layer.module).shape) for layer in self.layers}
        n_blocks = len({id(layer.block) for layer in self.layers})
        wanted = {}
        for number, layer in enumerate(self.layers):
            depth = number * n_blocks // len(self.layers) / max(n_blocks - 1, 1)
            wanted[layer.name] = _checked(self.rule(layer.part, depth), layer.name)
        sizes = {name: rows * columns for name, (rows, columns) in shapes.items()}
        total = pruner.pattern.sparsity
        return whole_weights(scaled(wanted, sizes, total), shapes, pruner.pattern, total)


def _checked(value: object, layer: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError(f"got {value!r} for {layer}; expected a number from 0, how much it loses beside the others.")
    return number


def scaled(wanted: dict[str, float], sizes: dict[str, int], total: float) -> dict[str, float]:
    """wanted · c for the c at which the layers together lose `total`; no layer loses more than MOST of its weights.

    Raises:
        ValueError: where layers that may lose something are too few for it.
    """
    can_lose = sum(MOST * size for name, size in sizes.items() if wanted[name] > 0) / sum(sizes.values())
    if can_lose < total:
        raise ValueError(
            f"got a rule by which only {percent(can_lose)} of the weights may leave; expected room for "
            f"{percent(total)}. Give more layers a share above 0."
        )
    low, high = 0.0, MOST / min(value for value in wanted.values() if value > 0)
    for _ in range(100):
        middle = (low + high) / 2
        lost = sum(min(MOST, wanted[name] * middle) * size for name, size in sizes.items()) / sum(sizes.values())
        low, high = (middle, high) if lost <= total else (low, middle)
    return {name: min(MOST, value * low) for name, value in wanted.items()}


@dataclass(frozen=True)
class Attempt:
    """What came of a rule: the share of the block weights that are zero, and the log-perplexity of every window."""

    sparsity: float
    losses: Float[Tensor, "N"]


def attempt(rule: Rule | Allocation | None = None, seed: int = 0) -> Attempt:
    """Prune the default model by Wanda within rows, 40 % in all, shares by a rule (None: all the same), and read.

    Raises:
        ValueError: for a rule that gives something else than numbers from 0, or hardly any layer something to lose.
    """
    model, tokenizer = load_model()
    calibration = windows("wikipedia", *CALIBRATION, tokenizer, split="calibration", seed=seed)
    held_out = windows("wikipedia", *HELD_OUT, tokenizer, split="evaluation", seed=seed)
    layers = tuple(layers_of(model))
    if rule is None:
        rule = UNIFORM
    allocation = rule if isinstance(rule, Allocation) else ByRule(rule, layers)
    prune_model(model, Wanda(Unstructured(TOTAL)), calibration, allocation=allocation)
    n_zero, n_all = (sum(f(weight_of(layer.module)) for layer in layers) for f in (_n_zero, Tensor.numel))
    return Attempt(n_zero / n_all, window_losses(model, held_out))


def _n_zero(weight: Tensor) -> int:
    return int((weight == 0).sum())


IDEAS: dict[str, Rule] = {
    "the MLP alone": lambda part, depth: float(part.startswith("mlp")),
    "attention twice the MLP": lambda part, depth: 1.0 if part.startswith("mlp") else 2.0,
    "the first and the last block spared": lambda part, depth: float(0 < depth < 1),
    "late blocks more": lambda part, depth: 0.5 + depth,
    "early blocks more": lambda part, depth: 1.5 - depth,
}


def table(ideas: dict[str, Attempt], mine: Attempt | None = None) -> str:
    """Every idea beside equal shares, the first of them; yours last."""
    rows = {**ideas, **({"yours": mine} if mine else {})}
    same = next(iter(ideas.values()))
    lines = [f"{'shares':<38}{'lost':>9}{'perplexity':>12}   log-perplexity below equal shares"]
    for name, made in rows.items():
        lines.append(f"{name:<38}{percent(made.sparsity, 2):>9}{perplexity_beside(made.losses, same.losses)}")
    return "\n".join(lines)


def stored(rows: list[dict]) -> dict[str, Attempt]:
    """The ideas that were measured, from the table of a result."""
    return {row["idea"]: Attempt(row["sparsity"], torch.tensor(row["losses"])) for row in rows}


def compared(ideas: dict[str, Attempt]) -> Figure:
    """By how much each idea's log-perplexity is lower than the first's, and two errors of it."""
    return beside_the_first({name: made.losses for name, made in ideas.items()})
