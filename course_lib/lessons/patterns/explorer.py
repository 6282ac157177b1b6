"""The mask explorer of lesson 01: choose a matrix and a pattern, see the zeros and what they save.

Without a browser, as when a notebook is executed in a terminal, the picture of the first choice stays.
"""

from collections.abc import Callable
from functools import partial

import ipywidgets as widgets
from matplotlib.figure import Figure
from torch import nn

from course_lib.lessons.common.views import show_view
from course_lib.lessons.patterns.figures import explored
from course_lib.models import blocks, linears, weight_of
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


def picture(model: nn.Module, block: int, matrix: str, pattern: str, sparsity: float) -> Figure:
    """The explorer's picture for one choice."""
    chosen = PATTERNS[pattern](sparsity)
    said = f"{chosen.n} of {chosen.m}" if isinstance(chosen, NofM) else pattern
    return explored(weight_of(linears(blocks(model)[block])[matrix]), chosen, f"block {block}, {matrix}: {said}")


def explore(model: nn.Module) -> widgets.VBox:
    """Show the controls and, below them, the picture; a new choice replaces the picture. Returns the controls."""
    n_blocks, names = len(blocks(model)), list(linears(blocks(model)[0]))
    slide = {"continuous_update": False}  # a picture takes a moment: draw one when the slider is let go
    choice = {
        "block": widgets.IntSlider(n_blocks // 2, 0, n_blocks - 1, description="block", **slide),
        "matrix": widgets.Dropdown(options=names, description="matrix"),
        "pattern": widgets.Dropdown(options=list(PATTERNS), value="n of 4", description="pattern"),
        "sparsity": widgets.FloatSlider(0.5, min=0, max=0.95, step=0.05, description="sparsity", **slide),
    }
    refused = widgets.Label()  # a pattern does not divide every matrix
    controls = widgets.VBox([widgets.HBox(list(choice.values())[:2]), widgets.HBox(list(choice.values())[2:]), refused])
    return show_view(partial(picture, model), choice, controls, refused)
