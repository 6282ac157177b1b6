"""What a pruned and rounded layer takes, in three ways of storing it.

Dimension key: O outputs (rows), I inputs (columns).
"""

from jaxtyping import Float
from torch import Tensor

from course_lib.quantization.storage import code_bytes, dense_bytes, grid_bytes, sparse_bytes

COLUMN_BYTES, START_BYTES = 2, 4  # of a column's number, and of where a row begins


def ways_to_store(weight: Float[Tensor, "O I"], bits: int, group: int) -> dict[str, int]:
    """Bytes with a code for every weight; with a bitmap, or with column numbers, for those that are not zero.

    Args:
        bits: of a code: 2, 4 or 8. group: columns that share a scale of 16 bits and a zero point of `bits`.
    """
    (rows, columns), n_stored = weight.shape, int(weight.count_nonzero())
    starts = START_BYTES * (rows + 1)
    return {
        "all codes": dense_bytes(rows, columns, bits, group),
        "bitmap": sparse_bytes(rows, columns, n_stored, bits, group),
        "index": code_bytes(n_stored, bits) + COLUMN_BYTES * n_stored + starts + grid_bytes(rows, columns, bits, group),
    }
