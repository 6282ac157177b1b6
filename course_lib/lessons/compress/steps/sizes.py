"""What a pruned and rounded model takes on a disk, its prompt included.

Dimension key, of each layer: O outputs (rows), I inputs (columns).
"""

from course_lib.quantization.storage import sparse_bytes

BYTES = 2  # of a number in 16 bits


def stored(
    layers: tuple[tuple[int, int, int], ...], others: int, prompt: int, bits: int, group: int
) -> tuple[int, float]:
    """Bytes of codes, bitmap, grids, other numbers and prompt; how many times fewer than all in 16 bits.

    Args:
        layers: rows, columns and the number of weights that are not zero, of each.
        others: numbers that are neither pruned nor rounded; prompt: numbers of the prompt.
    """
    if others < 0 or prompt < 0 or not layers:
        raise ValueError(
            f"got {len(layers)} layers, {others} other numbers and {prompt} of the prompt; expected at least one layer "
            "and no count below zero."
        )
    packed = sum(sparse_bytes(rows, columns, n_stored, bits, group) for rows, columns, n_stored in layers)
    n_bytes = packed + BYTES * (others + prompt)
    n_weights = others + sum(rows * columns for rows, columns, _ in layers)
    return n_bytes, BYTES * n_weights / n_bytes
