"""The size of a matrix in each format, by formula, and the density where one format overtakes another.

Dimension key: O outputs (rows), I inputs (columns), Z values stored.
`value_bytes` is the width of one weight: 4 for float32, 2 for float16 and bfloat16.
"""

from collections.abc import Callable

from course_lib.sparsity.bitpacking import packed_width
from course_lib.sparsity.patterns import NofM

INDEX_BYTES = 4  # int32


def dense_bytes(rows: int, columns: int, value_bytes: int) -> int:
    """O * I * v"""
    return rows * columns * value_bytes


def csr_bytes(rows: int, n_stored: int, value_bytes: int) -> int:
    """Z * (v + 4) + 4 * (O + 1)"""
    return n_stored * (value_bytes + INDEX_BYTES) + INDEX_BYTES * (rows + 1)


def bitmap_bytes(rows: int, columns: int, n_stored: int, value_bytes: int) -> int:
    """Z * v + O * ceil(I / 8) + 4 * (O + 1)"""
    return n_stored * value_bytes + rows * packed_width(columns, bits=1) + INDEX_BYTES * (rows + 1)


def nofm_bytes(rows: int, columns: int, value_bytes: int, n: int = 2, m: int = 4) -> int:
    """O * (K * v + ceil(K / 4)), K = I * n / m kept in a row"""
    if m > 4 or columns % NofM(n, m).m:
        raise ValueError(f"{columns} inputs do not pack as {n}:{m}: expected m of at most 4 that divides the inputs")
    kept = columns // m * n
    return rows * (kept * value_bytes + packed_width(kept, bits=2))


def block_bytes(rows: int, block_rows: int, block_columns: int, n_stored: int, value_bytes: int) -> int:
    """B * (R * C * v + 4) + 4 * (O / R + 1), B = Z / (R * C) blocks of R x C"""
    if rows % block_rows or n_stored % (block_rows * block_columns):
        raise ValueError(
            f"{rows} rows with {n_stored} stored values do not divide into {block_rows} x {block_columns} blocks; "
            "expected whole blocks: stored values count the zeros inside a block too"
        )
    n_blocks = n_stored // (block_rows * block_columns)
    return n_blocks * (block_rows * block_columns * value_bytes + INDEX_BYTES) + INDEX_BYTES * (rows // block_rows + 1)


def break_even_density(a: Callable[[int], float], b: Callable[[int], float], rows: int, columns: int) -> float | None:
    """Return the density where formats a and b take the same bytes; both map the number of stored values to bytes.

    Every size here is a linear function of the number of stored values, so two points determine it. The result is None
    for parallel lines. It may be outside [0, 1]; then one format is smaller at every density.
    """
    n = rows * columns
    slope = (b(n) - b(0)) - (a(n) - a(0))
    return (a(0) - b(0)) / slope if slope else None
