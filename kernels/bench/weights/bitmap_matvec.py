"""Unstructured sparsity against dense, over density: the formats torch has, and the bitmap.

Dimension key: O outputs (rows), I inputs (columns), Z values stored.
"""

from collections.abc import Iterator

from course_lib.kernels.timing.contest import Contest, Place, Side
from course_lib.kernels.weights import bitmap_matvec
from torch import Tensor

from course_lib.measure.roofline import Work, linear_work
from course_lib.sparsity.formats import CSR, Bitmap

SHAPE = {"cpu": (4096, 8192), "cuda": (4096, 14336)}  # beyond the last-level cache; the MLP of a 7B model
DENSITIES = {
    "cpu": (0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02),
    "cuda": (0.5, 0.4, 0.35, 0.3, 0.2, 0.1, 0.05, 0.02),  # near 0.35 the kernel is as fast as dense
}


def contests(place: Place) -> Iterator[Contest]:
    rows, columns = (64, 256) if place.quick else SHAPE[place.device.type]
    inputs = place.randn(columns)
    for density in (0.5, 0.1) if place.quick else DENSITIES[place.device.type]:
        stored = place.rand(rows, columns) < density
        weight = place.randn(rows, columns) / columns**0.5 * stored
        yield _contest(f"density {density:g}", inputs, weight)


def _contest(name: str, inputs: Tensor, weight: Tensor) -> Contest:
    rows, columns = weight.shape
    width = inputs.element_size()
    bitmap = Bitmap.encode(weight)
    n_stored = bitmap.values.numel()
    sparse = Work(2 * n_stored, bitmap_matvec.bytes_moved(inputs, bitmap))
    dense = Side("dense", lambda: weight @ inputs, linear_work(rows, columns, 1, width))
    contest = Contest(name, (rows, columns), [dense], weight.float() @ inputs.float())
    contest.try_side("CSR", lambda: _csr(inputs, weight))
    if inputs.is_cuda:
        contest.sides.append(Side("bitmap kernel", lambda: bitmap_matvec.launch(inputs, bitmap), sparse))
    else:
        reference = Side("bitmap, decode then dense", lambda: bitmap_matvec.reference(inputs, bitmap), sparse)
        contest.sides.append(reference)
    return contest


def _csr(inputs: Tensor, weight: Tensor) -> Side:
    encoded = CSR.encode(weight)
    work = linear_work(*weight.shape, 1, inputs.element_size(), encoded.values.numel(), encoded.n_bytes)
    return Side("CSR", lambda: encoded.linear(inputs), work)
