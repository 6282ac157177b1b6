"""A matrix times a vector whose small entries count as zero, over sparsity, against the dense product.

Dimension key: O outputs, I inputs.
"""

from collections.abc import Iterator

from course_lib.kernels.per_token import threshold_matvec
from course_lib.kernels.timing.contest import Contest, Place, Side
from torch import Tensor
from torch.nn.functional import linear

from course_lib.measure.roofline import Work, linear_work

SHAPE = {"cpu": (4096, 8192), "cuda": (14336, 4096)}  # O, I: beyond the last-level cache; the MLP of a model of 8B
SPARSITIES = (0.0, 0.25, 0.4, 0.5, 0.65, 0.9)


def contests(place: Place) -> Iterator[Contest]:
    shape = (96, 64) if place.quick else SHAPE[place.device.type]
    inputs, columns, _ = threshold_matvec.example(place.generator, place.dtype, str(place.device), shape)
    weight, ranked = columns.T.contiguous(), inputs.abs().float().sort().values
    for sparsity in (0.5, 0.9) if place.quick else SPARSITIES:
        n_zero = round(sparsity * len(inputs))
        threshold = float(ranked[n_zero - 1]) if n_zero else 0.0
        yield _contest(f"inputs at zero: {100 * sparsity:g} %", inputs, weight, columns, threshold)


def _contest(name: str, inputs: Tensor, weight: Tensor, columns: Tensor, threshold: float) -> Contest:
    (n_inputs, n_outputs), width = columns.shape, inputs.element_size()
    kept = int(threshold_matvec.kept_inputs(inputs, threshold).sum())
    dense = linear_work(n_outputs, n_inputs, 1, width)
    sparse = Work(2 * kept * n_outputs, threshold_matvec.bytes_moved(inputs, columns, threshold))
    sides = [
        Side("dense", lambda: linear(inputs, weight), dense, weight.float() @ inputs.float()),
        Side("torch, gathered columns", lambda: _gathered(inputs, columns, threshold), sparse),
    ]
    if inputs.is_cuda:
        sides.append(Side("kernel", lambda: threshold_matvec.launch(inputs, columns, threshold), sparse))
    return Contest(name, tuple(weight.shape), sides, threshold_matvec.reference(inputs, columns, threshold))


def _gathered(inputs: Tensor, columns: Tensor, threshold: float) -> Tensor:
    """Find the indices, for which the host waits for the GPU, then copy the columns and compute a dense product."""
    kept = threshold_matvec.kept_inputs(inputs, threshold).nonzero()[:, 0]
    return inputs[kept] @ columns.index_select(0, kept)
