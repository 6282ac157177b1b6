"""Two masks side by side: the picture beside a check of which weights, blocks or slots stay."""

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.common.style import figure


def compare_masks(got: Tensor, expected: Tensor, group: int | None = None) -> Figure:
    """Two keep masks side by side (dark stays), the first differing row outlined, groups of inputs ruled off."""
    got, expected = torch.as_tensor(got).bool(), torch.as_tensor(expected).bool()
    drawn, axes = figure(2, width=4.2, height=3.0)
    different = (got != expected).any(dim=1).nonzero().flatten()
    for each, mask, name in zip(axes, (got, expected), ("yours", "expected"), strict=True):
        each.imshow(mask, cmap="Greys", vmin=0, vmax=1.3, aspect="auto", interpolation="nearest")
        each.grid(visible=False)
        each.locator_params(integer=True)
        each.set_title(f"{name}: {int(mask.sum())} of {mask.numel()} stay", loc="left", fontsize=10)
        each.set_xlabel("input")
        for edge in range(group or 0, mask.shape[1], group or mask.shape[1]):
            each.axvline(edge - 0.5, color="#8d99ae", linewidth=0.6)
        if len(different):
            corner = (-0.5, int(different[0]) - 0.5)
            each.add_patch(Rectangle(corner, mask.shape[1], 1, fill=False, edgecolor="#c8553d", linewidth=2))
    axes[0].set_ylabel("output")
    return drawn
