"""What is worth keeping of one canvas, by the function of the exercise.

Dimension key: N visual tokens, C cells.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.attention.visual.canvas import CLUTTER, NOTHING, PATCH, Canvases, draw
from course_lib.attention.visual.importance import look, looked_to
from course_lib.attention.visual.model import GRID, SmallVLM, patches
from course_lib.attention.visual.recycle import cells
from course_lib.lessons.common.style import figure, label

SIDE = 3  # of a cell, in patches
KEPT = 36  # tokens that stay as they are


def worth(
    model: SmallVLM, canvas: Canvases, recycle: Callable, alpha: float
) -> tuple[Float[Tensor, "N"], Bool[Tensor, "N"], Float[Tensor, "N"]]:
    """Importance, which tokens stay, and at which places fused ones stand with how many of them.

    `recycle` is asked twice: for the importance, and then for the tokens that the least important ones become.
    """
    evidence, grey = look(model, canvas.images), patches(canvas.images)[0].long()
    attention = (looked_to(evidence.attention, 1.0).float() @ evidence.attention)[0, 0]
    tokens = model.visual(canvas.images)[0].detach()
    importance, _, _ = recycle(grey, attention, alpha, tokens, cells(SIDE))
    stays = torch.zeros(len(grey), dtype=torch.bool)
    stays[importance.topk(KEPT).indices] = True
    present = cells(SIDE)[~stays].unique(return_inverse=True)[1]
    number = torch.full((len(grey),), -1).masked_scatter(~stays, present)
    _, fused, place = recycle(grey, attention, alpha, tokens, number)
    made_of = torch.zeros(len(grey))
    made_of[place] = torch.bincount(present, minlength=len(fused)).float()
    return importance, stays, made_of


def canvas_of(seed: int) -> Canvases:
    return draw(1, "test", seed)


def picture(canvas: Canvases, of: dict[str, tuple[Tensor, Tensor, Tensor]]) -> Figure:
    """The canvas, the importance of its patches, and what is left, for two weights of the entropy."""
    fig, panels = figure(n_columns=1 + len(of), width=3.3, height=3.5)
    belongs = canvas.belongs[0]
    n_digits = int((belongs < NOTHING).sum())
    n_clutter = int((belongs == CLUTTER).sum())
    extent = (0, GRID * PATCH, GRID * PATCH, 0)
    panels[0].imshow(canvas.images[0], cmap="Greys", vmin=0, vmax=255, extent=extent)
    label(panels[0], f"{n_digits} of {GRID**2} patches\nhold digits, {n_clutter} clutter")
    for axes, (name, (importance, stays, made_of)) in zip(panels[1:], of.items(), strict=True):
        axes.imshow(importance.view(GRID, GRID), cmap="Greys", extent=extent)
        for mark, where, size in (("s", stays, 60.0), ("o", made_of > 0, 40.0)):
            at = where.nonzero()[:, 0]
            x, y = (at % GRID + 0.5) * PATCH, (at // GRID + 0.5) * PATCH
            axes.scatter(x, y, s=size, marker=mark, facecolors="none", edgecolors="#c8553d", linewidths=1.2)
        kept = int((stays & (belongs < NOTHING)).sum())
        n_fused = int((made_of > 0).sum())
        label(
            axes,
            f"{name}: {KEPT} stay,\n{kept} of {n_digits} with digits; {n_fused} fused",
            "square: stays; ring: fused",
        )
    for axes in panels:
        axes.grid(visible=False)
        axes.set_xticks([])
        axes.set_yticks([])
    return fig
