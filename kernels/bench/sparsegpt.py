"""SparseGPT's solver against the plain loop over blocks of 128 columns, on the seven matrices of a SmolLM2 block.

Dimension key: O outputs (rows), I inputs (columns).
Both sides get the same factor of the inverse Hessian, so only the loop that prunes and updates is timed.
"""

import statistics
from collections.abc import Iterator
from typing import Any

import torch
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor

from course_lib.measure.roofline import Work
from course_lib.pruning.layerwise.cholesky import Factor, factorise
from course_lib.pruning.layerwise.solver import solve
from course_lib.sparsity.patterns import NofM, Pattern, Unstructured
from course_lib.sparsity.ranking import keep_highest, n_pruned

MATRICES = {  # outputs, inputs
    "q": (576, 576),
    "k": (192, 576),
    "v": (192, 576),
    "o": (576, 576),
    "gate": (1536, 576),
    "up": (1536, 576),
    "down": (576, 1536),
}
ON_A_GPU = ("q", "down")  # two are enough: there, kernels/bench/end_to_end/pruning.py times whole models
QUICK = {"q": (12, 160), "down": (10, 264)}
PATTERNS = {"50 %": Unstructured(0.5, per="layer"), "2:4": NofM(2, 4)}
BLOCK = 128
DTYPE = torch.float32  # the solver's weights have to take in many small corrections


def contests(place: Place) -> Iterator[Contest]:
    for pattern_name, pattern in PATTERNS.items():
        for name, (rows, columns) in (QUICK if place.quick else MATRICES).items():
            if place.device.type == "cuda" and name not in ON_A_GPU:
                continue
            weight = place.randn(rows, columns).to(DTYPE)
            factor = factorise(_gram(place, columns), damping=0.01)
            yield _contest(f"{name}, {pattern_name}", weight, factor, pattern)


def summary(rows: list[dict[str, Any]]) -> str:
    """Report the median of the ratios over the matrices of the block, per pattern."""
    medians = []
    for name in PATTERNS:
        ratios = [
            row["times_anchor"]
            for row in rows
            if row["side"] == "solver" and row["repetitions"] and row["contest"].endswith(name)
        ]
        if ratios:
            medians.append(f"{statistics.median(ratios):.2f}x at {name}")
    return f"Median over the matrices of a block: 'solver' runs at {', '.join(medians)} of the speed of 'plain loop'."


def _gram(place: Place, columns: int) -> Tensor:
    """Make correlated inputs, some of them large: twice as many tokens as inputs."""
    inputs = place.randn(2 * columns, columns).to(DTYPE) @ (place.randn(columns, columns).to(DTYPE) / columns**0.5)
    inputs[:, :: columns // 8] *= 10
    return inputs.T @ inputs


def _contest(name: str, weight: Tensor, factor: Factor, pattern: Pattern) -> Contest:
    rows, columns = weight.shape
    # Each column sends its error to those right of it; weight and factor are read, the weight is written.
    work = Work(rows * columns * (columns - 1), 4 * (2 * rows * columns + columns * columns // 2))
    expected = plain_loop(weight, factor.upper, pattern)
    sides = [
        Side("plain loop", lambda: plain_loop(weight, factor.upper, pattern), work),
        Side("solver", lambda: solve(weight, factor, pattern, BLOCK).weight, work),
    ]
    return Contest(name, (rows, columns), sides, expected)


def plain_loop(weight: Tensor, upper: Tensor, pattern: Pattern) -> Tensor:
    """Run algorithm 1 of the paper as it is usually written: every column updates the rest of its block at once."""
    weight = weight.clone()
    for start in range(0, weight.shape[1], BLOCK):
        end = min(start + BLOCK, weight.shape[1])
        block, factor = weight[:, start:end].clone(), upper[start:end, start:end]
        settled, errors = torch.zeros_like(block), torch.zeros_like(block)
        diagonal = factor.diagonal()
        if isinstance(pattern, Unstructured):
            score = block.square() / diagonal.square()
            n = n_pruned(len(block) * end, pattern.sparsity) - n_pruned(len(block) * start, pattern.sparsity)
            keep = keep_highest(score.reshape(1, -1), n).reshape(block.shape)
        else:
            keep = torch.ones_like(block, dtype=torch.bool)
        for i in range(end - start):
            if isinstance(pattern, NofM) and i % pattern.m == 0:
                score = block[:, i : i + pattern.m].square() / diagonal[i : i + pattern.m].square()
                lowest = score.topk(pattern.m - pattern.n, dim=1, largest=False).indices
                keep.scatter_(1, i + lowest, False)
            column = block[:, i].clone()
            settled[:, i] = column * keep[:, i]
            errors[:, i] = (column - settled[:, i]) / diagonal[i]
            block[:, i:] -= errors[:, i : i + 1] @ factor[i : i + 1, i:]
        weight[:, start:end] = settled
        weight[:, end:] -= errors @ upper[start:end, end:]
    return weight
