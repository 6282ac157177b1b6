"""Which shape? Minitron (Muralidharan and others, 2024, https://arxiv.org/abs/2407.14679), section 2.3.

All shapes of about one size are listed; each is cut, and ranked by its loss after a few steps of distillation, because
the order right after the cut need not be the order of what can be learnt.

Dimension key: K candidates, N windows of T tokens to look at, M of L to learn from.
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

TOLERANCE = 0.05  # of the budget, either way


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Sizes to combine. `heads` holds pairs (query heads, key-value groups)."""

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
    """All of each, down to about two thirds: a sixteenth of the width at a time, a tenth of the blocks, a 32nd of the
    neurons (which make up the rest, so down to a third); one head out of every group, or one whole group.
    """
    each = now.heads // now.groups
    heads = [(now.heads, now.groups)]
    heads += [(now.heads - now.groups, now.groups)] if each > 1 else []
    heads += [(now.heads - each, now.groups - 1)] if now.groups > 1 else []
    return Grid(
        width=_down(now.width, now.width / 16, 2 / 3),
        blocks=_down(now.blocks, max(1.0, now.blocks / 10), 2 / 3),
        neurons=_down(now.neurons, max(1.0, now.neurons / 32), 1 / 3),
        heads=tuple(heads),
    )


def _down(size: int, step: float, share: float) -> tuple[int, ...]:
    """From the size downwards, not below a share of it."""
    n = int(size * (1 - share) / step + 1e-9)
    return tuple(dict.fromkeys(round(size - index * step) for index in range(n + 1)))


def candidates(
    model: PreTrainedModel, budget: int, grid: Grid | None = None, tolerance: float = TOLERANCE
) -> list[Shape]:
    """The shapes within a tolerance of a budget of parameters, the nearest first.

    Of shapes that differ in their neurons alone only the nearest is there: neurons fill up what the others leave.

    Raises:
        ValueError: when there is none.
    """
    now, grid, size = shape_of(model), grid or grid_of(shape_of(model)), counter(model)
    found = []
    for width, n_blocks, (n_heads, n_groups) in product(grid.width, grid.blocks, grid.heads):
        shape = replace(now, width=width, blocks=n_blocks, heads=n_heads, groups=n_groups)
        if possible(model, shape):
            shapes = [replace(shape, neurons=neurons) for neurons in grid.neurons]
            found.append(min(shapes, key=lambda each: abs(size(each) - budget)))
    distance = {shape: abs(size(shape) - budget) for shape in found}
    near = sorted((shape for shape in found if distance[shape] <= tolerance * budget), key=lambda s: distance[s])
    if not near:
        raise ValueError(
            f"got a budget of {budget:,} parameters; no shape of the grid is within {tolerance:.0%} of it. The model "
            f"has {size(now):,}. Ask for less of it, or give a grid that goes further down."
        )
    return near


def possible(model: PreTrainedModel, shape: Shape) -> bool:
    """Whether this family can have that shape."""
    try:
        check_family(model, shape_of(model), shape)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranking:
    """Candidates with their losses on held-out windows, in nats a token, right after the cut and after some steps."""

    shapes: list[Shape]
    parameters: list[int]
    before: Float[Tensor, "K N"] = field(repr=False)
    after: Float[Tensor, "K N"] = field(repr=False)

    @property
    def order_before(self) -> list[int]:
        """Candidates by their mean loss, the best first."""
        return self.before.mean(1).argsort(stable=True).tolist()

    @property
    def order_after(self) -> list[int]:
        return self.after.mean(1).argsort(stable=True).tolist()

    @property
    def tau(self) -> float:
        """Kendall's τ between both: 1 for the same order, −1 for the reverse."""
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
    """Cut the model to each shape, look, distil for as long as the recipe says, and look again. The model stays.

    Args:
        scores: of every kind that some candidate loses.
        held_out: token ids that no student learns from. windows: those that they learn from.

    Raises:
        ValueError: without shapes, and as `cut` and `distil` do.
    """
    if not shapes:
        raise ValueError("got no shapes; expected at least one. Use candidates(model, budget).")
    before, after, parameters = [], [], []
    for shape in shapes:
        student = cut(model, shape, scores)
        parameters.append(sum(weight.numel() for weight in student.parameters()))
        before.append(window_losses(student, held_out, progress=False))
        distil(student, model, windows, recipe, progress=progress)
        after.append(window_losses(student, held_out, progress=False))
    return Ranking(shapes=list(shapes), parameters=parameters, before=torch.stack(before), after=torch.stack(after))
