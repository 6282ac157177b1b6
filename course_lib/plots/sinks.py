"""The figures of lesson 08. Each takes data, and returns a figure whose title says what the data show.

Dimension key: L layers, H heads, Q queries, N tokens in the cache, T tokens of a text.
"""

from collections.abc import Sequence

import torch
from matplotlib.figure import Figure

from course_lib.plots.style import COLOURS, figure


def compare_slots(n_tokens: int, got: Sequence[int], expected: Sequence[int]) -> Figure:
    """Which tokens of a text are kept, dark, in both answers; those that differ are outlined."""
    drawn, (axes,) = figure(width=7.2, height=1.5)
    sets = [set(torch.as_tensor(each).long().tolist()) for each in (got, expected)]
    shown = max([n_tokens, *(token + 1 for each in sets for token in each)])
    rows = torch.tensor([[float(token in each) for token in range(shown)] for each in sets])
    axes.imshow(rows, cmap="Greys", vmin=0, vmax=1.3, aspect="auto", interpolation="nearest")
    for token in sets[0] ^ sets[1]:
        axes.plot([token, token], [-0.5, 1.5], color=COLOURS[1], linewidth=1)
    axes.grid(visible=False)
    axes.set_yticks((0, 1), ("yours", "expected"))
    axes.set_xlabel("token of the text")
    axes.set_title(f"{len(sets[0] ^ sets[1])} tokens differ", loc="left", fontsize=10)
    return drawn
