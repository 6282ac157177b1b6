"""SparseGPT's loop over the columns of one block in a kernel, against the loop in torch and the library's solver.

Dimension key: O outputs (rows), W columns of the block.
"""

from collections.abc import Iterator

import torch
from course_lib.kernels.timing.contest import Contest, Place, Side
from course_lib.kernels.weights import sparsegpt_columns
from torch import Tensor

from course_lib.measure.roofline import Work
from course_lib.pruning.layerwise.cholesky import Factor
from course_lib.pruning.layerwise.solver import solve
from course_lib.sparsity.patterns import NofM
from course_lib.sparsity.ranking import keep_highest

# The widest layer of a 7B model. Fewer on a CPU: among a million near ties of 2:4, rounding would turn one.
ROWS = {"cpu": 1024, "cuda": 14336}
DTYPE = torch.float32  # the solver's weights have to take in many small corrections


def contests(place: Place) -> Iterator[Contest]:
    shape = (12, 32) if place.quick else (ROWS[place.device.type], sparsegpt_columns.WIDEST)
    for name, n, m in (("half, mask given", None, None), ("2:4", 2, 4)):
        arguments = sparsegpt_columns.example(place.generator, DTYPE, str(place.device), shape, n, m)
        yield _contest(name, arguments)
    yield _choice(place, shape)


def _contest(name: str, arguments: tuple[Tensor, Tensor, Tensor | None, int, int, Tensor | None]) -> Contest:
    weight, upper, keep, n, m, _ = arguments
    rows, width = weight.shape
    work = Work(rows * width * (width - 1), sparsegpt_columns.bytes_moved(*arguments))
    expected = sparsegpt_columns.reference(*arguments).weight
    anchor = Side("torch, column loop", lambda: sparsegpt_columns.reference(*arguments).weight, work)
    contest = Contest(name, (rows, width), [anchor], expected)
    if keep is None:
        factor = Factor(upper, torch.zeros(width, dtype=torch.bool, device=weight.device), 0.0)
        contest.sides.append(Side("solver", lambda: solve(weight, factor, NofM(n, m), width).weight, work))
    else:
        contest.sides.append(Side("torch, transposed", lambda: _transposed(weight, upper, keep), work))
    if weight.is_cuda:
        contest.sides.append(Side("on chip", lambda: sparsegpt_columns.enqueue(*arguments)[0].weight, work))
    return contest


def _transposed(weight: Tensor, upper: Tensor, keep: Tensor) -> Tensor:
    """Run the same loop on the transposed weight, in which a column is contiguous in memory."""
    work, leaves = weight.T.contiguous(), (~keep).T.to(weight.dtype).contiguous()
    owed = upper / upper.diagonal()[:, None]
    for i in range(len(work)):
        error = work[i] * leaves[i]
        work[i + 1 :].addr_(owed[i, i + 1 :], error, alpha=-1)
    return (work * (1 - leaves)).T


def _choice(place: Place, shape: tuple[int, int]) -> Contest:
    """Choose the mask before the columns (not for N:M): the lower half of the block's scores, in ties the first."""
    score = place.randn(*shape).to(DTYPE).abs().reshape(1, -1)
    n_leaving = score.numel() // 2

    def by_topk() -> Tensor:
        edge = score.topk(n_leaving, largest=False, sorted=False).values.amax(1, keepdim=True)
        below, tied = score < edge, score == edge
        return ~(below | (tied & (tied.cumsum(1) <= n_leaving - below.sum(1, keepdim=True))))

    work = Work(score.numel(), score.nbytes + score.numel())
    sides = [Side("library", lambda: keep_highest(score, n_leaving), work), Side("topk for the edge", by_topk, work)]
    return Contest("half of a block", shape, sides, keep_highest(score, n_leaving))
