"""Round the sparsity of each layer to one that is possible: only whole weights are pruned, and some patterns prune an
equal number in every row.

Dimension key: O outputs of a layer, I its inputs, K steps from dense to empty that a pattern can take.
"""

from course_lib.sparsity.patterns import Block, Columns, Pattern, Rows, Unstructured
from course_lib.sparsity.ranking import n_pruned


def whole_weights(
    wanted: dict[str, float], shapes: dict[str, tuple[int, int]], pattern: Pattern, total: float
) -> dict[str, float]:
    """Return sparsities that the pattern can meet exactly, as close as possible to the wanted ones and to the total.

    A layer's count moves in steps: one weight for per="layer", one weight of each row for per="row". First, all counts
    are rounded down. Then the missing steps are added one at a time to the layers that lost most by rounding, as long
    as the total is not exceeded. So per="layer" meets the total exactly, and other patterns miss it by less than the
    smallest step.
    """
    sizes = {layer: rows * columns for layer, (rows, columns) in shapes.items()}
    steps = {layer: n_steps(pattern, shape) for layer, shape in shapes.items()}
    counts = {layer: n_pruned(steps[layer], wanted[layer]) for layer in shapes}
    missing = n_pruned(sum(sizes.values()), total) - sum(
        counts[layer] * sizes[layer] // steps[layer] for layer in shapes
    )
    for layer in sorted(shapes, key=lambda x: counts[x] - wanted[x] * steps[x]):
        step = sizes[layer] // steps[layer]
        if step <= missing and counts[layer] + 1 < steps[layer]:
            counts[layer] += 1
            missing -= step
    return {layer: counts[layer] / steps[layer] for layer in shapes}


def n_steps(pattern: Pattern, shape: tuple[int, int]) -> int:
    """Return K, the number of steps in which the pattern takes a layer of this shape from dense to empty."""
    rows, columns = shape
    if isinstance(pattern, Rows):
        return rows
    if isinstance(pattern, Columns):
        return columns
    if isinstance(pattern, Block):
        return (rows // pattern.rows) * (columns // pattern.columns)
    if isinstance(pattern, Unstructured) and pattern.per != "layer":
        across, along = (rows, columns) if pattern.per == "row" else (columns, rows)
        return min(pattern.size, across) * along
    return rows * columns
