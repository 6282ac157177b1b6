"""Architecture search for pruned models. Minitron, Muralidharan and others, 2024, https://arxiv.org/abs/2407.14679
(section 2.3)

We list all shapes with about the same number of parameters, prune the model to each of them, and rank them by their
loss after a few steps of distillation. The candidate with the lowest loss right after pruning is not always the one
with the lowest loss after distillation.

Dimension key: K candidates, N held-out windows of T tokens, M training windows of L tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.measure.perplexity import window_losses
from course_lib.measure.ranks import kendall
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.distillation import distil
from course_lib.pruning.structured.recipe import Recipe
from course_lib.pruning.structured.shape import Shape, counter, shape_of
from course_lib.pruning.structured.surgery import check_family, cut
from course_lib.settings import check_count

TOLERANCE = 0.05  # largest deviation from the budget, as a fraction


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The sizes that the search combines. `heads` holds pairs (query heads, key-value groups)."""

    width: tuple[int, ...]
    blocks: tuple[int, ...]
    neurons: tuple[int, ...]
    heads: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        for name in ("width", "blocks", "neurons", "heads"):
            sizes = getattr(self, name)
            if not isinstance(sizes, tuple) or not sizes:
                raise ValueError(f"got {name} {sizes!r}; expected a tuple of at least one size.")
            for size in sizes:
                if name == "heads" and not (isinstance(size, tuple) and len(size) == 2):
                    raise ValueError(f"got heads {size!r}; expected pairs of query heads and key-value groups.")
                for count in size if name == "heads" else (size,):
                    check_count(name, count)


def grid_of(now: Shape) -> Grid:
    """Return the default grid for a model of this shape.

    Width falls in steps of 1/16 to 2/3, the number of blocks in steps of 1/10 to 2/3. Neurons absorb the rest of the
    reduction and fall in steps of 1/32 to 1/3. Heads: all, one fewer in every group, or one group fewer.
    """
    heads_per_group = now.heads // now.groups
    heads = [(now.heads, now.groups)]
    heads += [(now.heads - now.groups, now.groups)] if heads_per_group > 1 else []
    heads += [(now.heads - heads_per_group, now.groups - 1)] if now.groups > 1 else []
    return Grid(
        width=_down(now.width, now.width / 16, 2 / 3),
        blocks=_down(now.blocks, max(1.0, now.blocks / 10), 2 / 3),
        neurons=_down(now.neurons, max(1.0, now.neurons / 32), 1 / 3),
        heads=tuple(heads),
    )


def _down(size: int, step: float, share: float) -> tuple[int, ...]:
    """Return sizes from `size` downwards in equal steps, none below `share` · `size`."""
    # 1e-9: a quotient such as 5.999… in binary still counts as 6 steps
    n = int(size * (1 - share) / step + 1e-9)
    return tuple(dict.fromkeys(round(size - index * step) for index in range(n + 1)))


def candidates(
    model: PreTrainedModel, budget: int, grid: Grid | None = None, tolerance: float = TOLERANCE
) -> list[Shape]:
    """Return the shapes whose number of parameters is within a tolerance of the budget, the nearest first.

    For each combination of width, blocks and heads, only the number of neurons that is nearest to the budget is listed.

    Args:
        budget: number of parameters.
        tolerance: largest deviation, as a fraction of the budget.

    Raises:
        ValueError: when no shape is within the tolerance.
    """
    full, grid, size = shape_of(model), grid or grid_of(shape_of(model)), counter(model)
    nearest = []
    for width, n_blocks, (n_heads, n_groups) in product(grid.width, grid.blocks, grid.heads):
        shape = replace(full, width=width, blocks=n_blocks, heads=n_heads, groups=n_groups)
        if possible(model, shape):
            shapes = [replace(shape, neurons=neurons) for neurons in grid.neurons]
            nearest.append(min(shapes, key=lambda candidate: abs(size(candidate) - budget)))
    distance = {shape: abs(size(shape) - budget) for shape in nearest}
    in_range = sorted((shape for shape in nearest if distance[shape] <= tolerance * budget), key=lambda s: distance[s])
    if not in_range:
        raise ValueError(
            f"got a budget of {budget:,} parameters; no shape of the grid is within {tolerance:.0%} of it. The model "
            f"has {size(full):,}. Choose a budget nearer to that, or a grid that goes further down."
        )
    return in_range


def possible(model: PreTrainedModel, shape: Shape) -> bool:
    """Return whether this model family's configuration can describe the shape."""
    try:
        check_family(model, shape_of(model), shape)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranking:
    """Candidates with their held-out losses in nats per token, right after pruning and after distillation."""

    shapes: list[Shape]
    parameters: list[int]
    before: Float[Tensor, "K N"] = field(repr=False)
    after: Float[Tensor, "K N"] = field(repr=False)

    @property
    def order_before(self) -> list[int]:
        """Candidates by their mean loss right after pruning, the lowest first."""
        return self.before.mean(1).argsort(stable=True).tolist()

    @property
    def order_after(self) -> list[int]:
        return self.after.mean(1).argsort(stable=True).tolist()

    @property
    def tau(self) -> float:
        """Kendall's τ between both orders: 1 for equal orders, −1 for reversed ones."""
        return kendall(self.before.mean(1).tolist(), self.after.mean(1).tolist())

    @property
    def agrees(self) -> bool:
        """Whether both orders are the same."""
        return self.order_before == self.order_after


def search(
    model: PreTrainedModel,
    shapes: Sequence[Shape],
    scores: Scores,
    held_out: Int[Tensor, "N T"],
    windows: Int[Tensor, "M L"],
    recipe: Recipe,
    progress: bool = True,
) -> Ranking:
    """Prune the model to each shape, measure the loss, distil, and measure it again. The model itself is unchanged.

    Args:
        scores: importance scores of every kind of part that a candidate reduces.
        held_out: token ids (N, T) on which the losses are measured.
        windows: token ids (M, L) from which the students learn.

    Raises:
        ValueError: without shapes, and as in `cut` and `distil`.
    """
    if not shapes:
        raise ValueError("got no shapes; expected at least one. Use candidates(model, budget).")
    losses_before, losses_after, parameters = [], [], []
    for shape in shapes:
        student = cut(model, shape, scores)
        parameters.append(sum(weight.numel() for weight in student.parameters()))
        losses_before.append(window_losses(student, held_out, progress=False))
        distil(student, model, windows, recipe, progress=progress)
        losses_after.append(window_losses(student, held_out, progress=False))
    return Ranking(
        shapes=list(shapes),
        parameters=parameters,
        before=torch.stack(losses_before),
        after=torch.stack(losses_after),
    )
