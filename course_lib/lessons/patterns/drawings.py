"""Schematic drawings of lesson 01, on small matrices whose encodings come from the library's own formats."""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.common.style import COLOURS, figure
from course_lib.sparsity.formats import CSR, Bitmap, NofMPacked
from course_lib.sparsity.patterns import Block, Columns, NofM, Pattern, Rows, Unstructured

SMALL = torch.tensor(
    [[0, 5, 0, -6, 7, 8, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0], [0, -2, 9, 0, 0, 0, 0, 4]], dtype=torch.float32
)  # seven values in 3 × 8: fits 2:4
_KEPT, _INK = "#cfd9e6", COLOURS[0]


def cells(
    axes: Axes, numbers: Tensor, shade: Tensor | None = None, left: float | int = 0, top: float | int = 0
) -> None:
    """A table of small numbers as boxes; shaded where they are kept, zeros left out."""
    for row in range(numbers.shape[0]):
        for column in range(numbers.shape[1]):
            value = numbers[row, column].item()
            kept = bool(shade[row, column]) if shade is not None else value != 0
            spot = (left + column, -top - row - 1)
            axes.add_patch(Rectangle(spot, 1, 1, facecolor=_KEPT if kept else "white", edgecolor=_INK, linewidth=0.8))
            if value != 0:
                axes.text(spot[0] + 0.5, spot[1] + 0.5, f"{value:g}".replace("-", "−"), ha="center", va="center")


def listed(axes: Axes, values: list, left: float | int, top: float | int, name: str, width: float | int = 1) -> None:
    """A list of numbers as boxes in a row, with its name above."""
    axes.text(left, -top + 0.25, name, fontsize=9, color="#5c6773")
    for place, value in enumerate(values):
        spot = (left + width * place, -top - 1)
        axes.add_patch(Rectangle(spot, width, 1, facecolor="#f3ead7", edgecolor=_INK, linewidth=0.8))
        text = str(value).replace("-", "−")
        axes.text(spot[0] + width / 2, spot[1] + 0.5, text, ha="center", va="center", fontsize=9)


def blank(axes: Axes, width: float | int, height: float | int, title: str) -> None:
    axes.set_xlim(-0.3, width)
    axes.set_ylim(-height, 0.9)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_title(title, loc="left", fontsize=11)


def formats() -> Figure:
    """A 3 × 8 matrix as CSR, as a bitmap and as 2:4: every number that is stored."""
    csr, bitmap, packed = CSR.encode(SMALL), Bitmap.encode(SMALL), NofMPacked.encode(SMALL)
    fig, (axes,) = figure(width=9.0, height=4.6)
    whole = [f"{value:g}" for value in csr.values.tolist()]
    cells(axes, SMALL, top=0.4)
    axes.text(0, -0.15, "dense: every entry", fontsize=9, color="#5c6773")
    listed(axes, whole, 9.5, 0.4, "CSR: values")
    listed(axes, csr.columns.tolist(), 9.5, 2.1, "their columns, 4 bytes each")
    listed(axes, csr.row_start.tolist(), 18, 0.4, "row starts, 4 bytes each")
    listed(axes, whole, 9.5, 4.4, "bitmap: values")
    listed(axes, _bits(bitmap.bitmap), 9.5, 6.1, "a bit an entry, lowest first: one byte for each row here", 3.2)
    listed(axes, bitmap.row_start.tolist(), 18, 4.4, "row starts, 4 bytes each")
    two = [f"{value:g}" for value in packed.values.flatten().tolist()]
    listed(axes, two, 0, 8.4, "2:4: two values of every four neighbours, filled up with zeros")
    listed(axes, packed.columns.remainder(4).flatten().tolist(), 0, 10.1, "places in their groups, two bits each")
    listed(axes, _bits(packed.positions), 13, 10.1, "four places in a byte, first in the lowest bits", 3.2)
    counted = f"{csr.n_bytes}, {bitmap.n_bytes} and {packed.n_bytes}"
    blank(axes, 23.2, 11.4, f"In float32: dense {4 * SMALL.numel()} bytes; CSR, bitmap and 2:4 {counted}")
    return fig


def _bits(packed: Tensor) -> list[str]:
    """Bytes as they are written, the highest bit first."""
    return [f"{byte:08b}" for byte in packed.flatten().tolist()]


def two_of_four() -> Figure:
    """Eight weights, of which 2:4 keeps four, and what is stored of them."""
    row = torch.tensor([[1.0, 5, -2, -6, 7, 8, 3, 0]])
    keep = NofM(2, 4).keep(row.abs())
    packed = NofMPacked.encode(row * keep)
    fig, (axes,) = figure(width=5.0, height=3.6)
    cells(axes, row, keep, top=0.4)
    axes.plot([4, 4], [-1.6, -0.2], color=COLOURS[1], linewidth=2)
    axes.text(0, -0.15, "two of every four are kept", fontsize=9, color="#5c6773")
    listed(axes, [f"{v:g}" for v in packed.values[0].tolist()], 0, 2.4, "values")
    listed(axes, packed.columns[0].remainder(4).tolist(), 5, 2.4, "places, 2 bits each")
    bits = _bits(packed.positions)[0]
    listed(
        axes, [bits[at : at + 2] for at in range(0, 8, 2)], 0, 4.5, "one byte: the first place in the lowest bits", 1.2
    )
    blank(axes, 9.4, 6, f"{row.numel()} weights become {packed.values.numel()} values and one byte")
    return fig


def tiles() -> Figure:
    """Absolute sums of 2 × 2 tiles, of which the larger half is kept."""
    matrix = torch.tensor([[3.0, -1, 0, 1, 4, -2], [2, 2, 1, 0, -1, 1], [1, 0, -5, 2, 0, 1], [0, 1, 3, -1, 2, 0]])
    keep = Block(2, 2, 0.5).keep(matrix.abs())
    total = matrix.abs().unflatten(1, (-1, 2)).unflatten(0, (-1, 2)).sum((1, 3))
    fig, (axes,) = figure(width=5.0, height=2.7)
    cells(axes, matrix, keep, top=0.3)
    cells(axes, total, keep[::2, ::2], left=8.2, top=1.3)
    axes.text(8.2, -1.0, "sums", fontsize=9, color="#5c6773")
    axes.annotate("", (8.0, -2.3), (6.2, -2.3), arrowprops={"arrowstyle": "->", "color": "#5c6773"})
    for edge in (2, 4):
        axes.plot([edge, edge], [-4.3, -0.3], color=COLOURS[1], linewidth=2)
    axes.plot([0, 6], [-2.3, -2.3], color=COLOURS[1], linewidth=2)
    kept = int(keep.sum() / 4)
    blank(axes, 12, 4.6, f"The {kept} tiles of 2 × 2 with the largest sums are kept")
    return fig


def columns() -> Figure:
    """Four of eight columns are removed, and with them four inputs: a smaller product of the same shape."""
    keep = Columns(0.5).keep(torch.tensor([[2.0, 8, 5, 1, 7, 3, 4, 6]]).repeat(3, 1))
    kept = keep[0].nonzero().flatten()
    fig, (axes,) = figure(width=7.2, height=3.2)
    cells(axes, torch.zeros(3, 8), keep, top=0.6)
    cells(axes, torch.zeros(8, 1), keep[:1].T, left=8.5, top=0.6)
    axes.text(10.1, -2.2, "≈", fontsize=18)
    cells(axes, torch.zeros(3, len(kept)), torch.ones(3, len(kept)), left=11.5, top=0.6)
    cells(axes, torch.zeros(len(kept), 1), torch.ones(len(kept), 1), left=16.0, top=0.6)
    for left, name in ((3.8, "W"), (8.9, "x"), (13.0, "W of S"), (15.9, "x of S")):
        axes.text(left, -0.3, name, fontsize=10)
    blank(axes, 18, 9, "What is kept is an ordinary smaller product, without an index inside")
    return fig


def six() -> Figure:
    """One drawn 16 × 16 matrix under six patterns at half: dark is kept."""
    score = torch.rand(16, 16, generator=torch.Generator().manual_seed(0))
    kinds: dict[str, Pattern] = {
        "single weights": Unstructured(0.5),
        "2:4": NofM(2, 4),
        "4 × 4": Block(4, 4, 0.5),
        "8 × 8": Block(8, 8, 0.5),
        "columns": Columns(0.5),
        "rows": Rows(0.5),
    }
    fig, panels = figure(2, 3, width=2.3, height=2.3)
    for axes, (name, pattern) in zip(panels, kinds.items(), strict=True):
        axes.imshow(pattern.keep(score), cmap="Greys", vmin=0, vmax=1.25, interpolation="nearest")
        axes.axis("off")
        axes.set_title(name, loc="left", fontsize=12)
    return fig
