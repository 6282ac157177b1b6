"""The mask explorer of lesson 01: choose a matrix and a pattern, and see the zeros and the bytes.

Without a browser, as when a notebook is executed in a terminal, the picture of the first choice stays.
"""

from collections.abc import Callable
from functools import partial

import ipywidgets as widgets
from matplotlib.figure import Figure
from torch import Tensor, nn

from course_lib.lessons.common.style import figure, label
from course_lib.lessons.common.views import show_view
from course_lib.lessons.patterns.experiments.patterns import squares_kept
from course_lib.lessons.patterns.plots import draw_matrix
from course_lib.models import blocks, linears, weight_of
from course_lib.sparsity.formats import CSR, Bitmap, BlockSparse, Dense, Encoded, NofMPacked
from course_lib.sparsity.patterns import Block, Columns, NofM, Pattern, Rows, Unstructured


def _n_of_4(sparsity: float) -> NofM:
    """The n:4 nearest to a sparsity: 3:4, 2:4 or 1:4."""
    return NofM(min(3, max(1, round(4 * (1 - sparsity)))), 4)


PATTERNS: dict[str, Callable[[float], Pattern]] = {
    "unstructured, by row": Unstructured,
    "unstructured, over the layer": lambda sparsity: Unstructured(sparsity, per="layer"),
    "n of 4": _n_of_4,
    "blocks 4 × 4": lambda sparsity: Block(4, 4, sparsity),
    "blocks 16 × 16": lambda sparsity: Block(16, 16, sparsity),
    "columns": Columns,
    "rows": Rows,
}


def explore(model: nn.Module) -> widgets.VBox:
    """Show the controls and, below them, the picture; a new choice replaces the picture. Return the controls."""
    n_blocks, names = len(blocks(model)), list(linears(blocks(model)[0]))
    slide = {"continuous_update": False}  # a picture takes a moment: draw it when the slider is released
    choice = {
        "block": widgets.IntSlider(n_blocks // 2, 0, n_blocks - 1, description="block", **slide),
        "matrix": widgets.Dropdown(options=names, description="matrix"),
        "pattern": widgets.Dropdown(options=list(PATTERNS), value="n of 4", description="pattern"),
        "sparsity": widgets.FloatSlider(0.5, min=0, max=0.95, step=0.05, description="sparsity", **slide),
    }
    refused = widgets.Label()  # a pattern does not divide every matrix
    controls = widgets.VBox([widgets.HBox(list(choice.values())[:2]), widgets.HBox(list(choice.values())[2:]), refused])
    return show_view(partial(plot_choice, model), choice, controls, refused)


def plot_choice(model: nn.Module, block: int, matrix: str, pattern: str, sparsity: float) -> Figure:
    """Plot one choice."""
    chosen = PATTERNS[pattern](sparsity)
    name = f"{chosen.n} of {chosen.m}" if isinstance(chosen, NofM) else pattern
    return plot_pruned(weight_of(linears(blocks(model)[block])[matrix]), chosen, f"block {block}, {matrix}: {name}")


def plot_pruned(weight: Tensor, pattern: Pattern, name: str, corner: int = 64) -> Figure:
    """Plot a corner of a pruned matrix, with what is kept of the whole, and its bytes in each format."""
    fig, axes = figure(2, width=4.4, height=3.9)
    pruned = weight * pattern.keep(weight.square())
    zeros = 1 - pruned.count_nonzero().item() / pruned.numel()
    title = f"{100 * zeros:.1f} % zeros, {100 * squares_kept(weight, pattern):.1f} % of the squares kept"
    draw_matrix(axes[0], pruned[:corner, :corner], title)
    axes[0].set_xlabel(f"input (first {corner} of {weight.shape[1]})")
    axes[0].set_ylabel(f"output (first {corner} of {weight.shape[0]})")
    megabytes = {form: encoded.n_bytes / 1e6 for form, encoded in encodings(pruned, pattern).items()}
    bars = axes[1].barh(list(megabytes), list(megabytes.values()), color="#8d99ae")
    axes[1].bar_label(bars, fmt="%.2f", padding=3)
    axes[1].invert_yaxis()
    axes[1].set_xlim(0, 1.2 * max(megabytes.values()))
    best = min(megabytes, key=megabytes.get)
    saved = megabytes["dense"] / megabytes[best]
    dtype = str(weight.dtype).removeprefix("torch.")
    label(axes[1], f"{best}: {saved:.2f} times smaller" if saved > 1 else "dense is smallest", f"MB, {dtype}")
    fig.suptitle(name, x=0.01, ha="left", fontsize=10)
    return fig


def encodings(pruned: Tensor, pattern: Pattern) -> dict[str, Encoded]:
    """Encode in the formats that fit any zeros, and in the one that fits this pattern.

    Rows and columns are blocks that are as wide or as high as the matrix.
    """
    rows, columns = pruned.shape
    every = {"dense": Dense.encode(pruned), "CSR": CSR.encode(pruned), "bitmap": Bitmap.encode(pruned)}
    match pattern:
        case NofM(n, m) if m <= 4:
            return every | {f"{n}:{m}": NofMPacked.encode(pruned, n, m)}
        case Block(r, c):
            return every | {"blocks": BlockSparse.encode(pruned, r, c)}
        case Rows():
            return every | {"rows": BlockSparse.encode(pruned, 1, columns)}
        case Columns():
            return every | {"columns": BlockSparse.encode(pruned, rows, 1)}
    return every
