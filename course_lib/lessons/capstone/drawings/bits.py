"""What a weight takes in a combined layer: its code, its bit of the bitmap, its part of a scale."""

from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.quantization.storage import code_bytes, dense_bytes, grid_bytes, sparse_bytes
from course_lib.sparsity.sizes import bitmap_bytes

ROWS, COLUMNS, GROUP = 1536, 576, 64  # a matrix of an MLP of SmolLM2-135M
WEIGHTS = ROWS * COLUMNS
KEPT = {  # share of the weights, bits of a code; 16 without a grid
    "4 bits": (1.0, 4),
    "3 bits": (1.0, 3),
    "2 bits": (1.0, 2),
    "50 %, 16 bits": (0.5, 16),
    "50 %, 4 bits": (0.5, 4),
    "50 %, 3 bits": (0.5, 3),
    "75 %, 4 bits": (0.25, 4),
}
LOOKS = {"values": COLOURS[0], "bitmap, row starts": COLOURS[3], "scales, zero points": COLOURS[4]}


def bits_a_weight(share: float, bits: int) -> dict[str, float]:
    """Of each weight, zero or not; groups of GROUP columns share a scale."""
    n_stored = int(share * WEIGHTS)
    if bits == 16:
        values, grids, whole = 2 * n_stored, 0, bitmap_bytes(ROWS, COLUMNS, n_stored, 2)
    elif share == 1:
        grids, whole = grid_bytes(ROWS, COLUMNS, bits, GROUP), dense_bytes(ROWS, COLUMNS, bits, GROUP)
        values = whole - grids
    else:
        grids, whole = grid_bytes(ROWS, COLUMNS, bits, GROUP), sparse_bytes(ROWS, COLUMNS, n_stored, bits, GROUP)
        values = code_bytes(n_stored, bits)
    parts = {"values": values, "bitmap, row starts": whole - values - grids, "scales, zero points": grids}
    return {name: 8 * n_bytes / WEIGHTS for name, n_bytes in parts.items()}


def bits() -> Figure:
    """Stacked, by sparsity and bits."""
    _fig, (axes,) = figure(width=8.6, height=3.4)
    found = {name: bits_a_weight(*kept) for name, kept in KEPT.items()}
    for place, (_name, parts) in enumerate(found.items()):
        low = 0.0
        for what, size in parts.items():
            look = {"color": LOOKS[what], "edgecolor": "black", "linewidth": 0.7}
            axes.bar(place, size, 0.62, low, label="" if place else what, **look)
            low += size
        axes.text(place, low + 0.12, f"{low:.2f}", ha="center", fontsize=10)
    axes.set_xticks(range(len(found)), list(found))
    axes.set_ylim(0, 10)
    axes.legend(frameon=False, fontsize=10)
    half, three = (sum(found[name].values()) for name in ("50 %, 4 bits", "3 bits"))
    title = f"Half of the weights in 4 bits take {half:.2f} bits a weight, all of them in 3 bits {three:.2f}"
    return label(axes, title, "zeros and bits of a code, groups of 64", "bits a weight").figure
