"""The formats that can store the weights kept by a mask, and the bytes of each.

Dimension key: O outputs (rows), I inputs (columns), Q groups of four in a row.
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from course_lib.sparsity.sizes import INDEX_BYTES, bitmap_bytes, block_bytes, csr_bytes, dense_bytes, nofm_bytes

TILES = (4, 16)  # sides of the square tiles that are tried


def bytes_by_format(keep: Bool[Tensor, "O I"], value_bytes: int) -> dict[str, int]:
    """Compute the bytes of each format that fits the mask; formats may also store pruned entries, as zeros.

    Dense, CSR and bitmap fit any mask. n:4 needs at most n kept entries among each four neighbours. Square tiles are
    stored if they contain any kept entry. The same is true of rows and columns: they form a smaller dense matrix,
    stored with the indices of the kept rows and columns.
    """
    (rows, columns), n_stored = keep.shape, int(keep.sum())
    sizes = {
        "dense": dense_bytes(rows, columns, value_bytes),
        "CSR": csr_bytes(rows, n_stored, value_bytes),
        "bitmap": bitmap_bytes(rows, columns, n_stored, value_bytes),
    }
    if columns % 4 == 0:
        quads = sum(keep.to(torch.uint8)[:, place::4] for place in range(4))  # how many of each four stay, (O, Q)
        fullest = int(quads.max())
        sizes |= {f"{n}:4": nofm_bytes(rows, columns, value_bytes, n) for n in (1, 2, 3) if fullest <= n}
        for side in TILES:
            if rows % side == 0 and columns % side == 0:
                n_tiles = int(_tiles(quads > 0, side).sum())
                sizes[f"tiles of {side}"] = block_bytes(rows, side, side, n_tiles * side**2, value_bytes)
    n_rows, n_columns = int(keep.any(1).sum()), int(keep.any(0).sum())
    numbers = n_rows * (n_rows < rows) + n_columns * (n_columns < columns)  # none where all of them stay
    sizes["rows and columns"] = n_rows * n_columns * value_bytes + INDEX_BYTES * numbers
    return sizes


def _tiles(quads: Bool[Tensor, "O Q"], side: int) -> Bool[Tensor, "tiles_down tiles_across"]:
    """Return which side × side tiles contain a kept entry, from which groups of four neighbours in a row do."""
    across = quads if side == 4 else quads.unflatten(1, (-1, side // 4)).any(2)
    return across.unflatten(0, (-1, side)).any(1)


def cheapest(sizes: dict[str, int]) -> str:
    """Return the format with the fewest bytes; the first one in a tie."""
    return min(sizes, key=sizes.get)
