"""An answer beside the expected one: models over their cost, with errors, and which of them stay.

Whoever grades draws nothing: matplotlib is imported by what draws.

Dimension key: M models, N windows.
"""

from jaxtyping import Bool, Float
from torch import Tensor


def compare_fronts(
    cost: Float[Tensor, "M"], losses: Float[Tensor, "M N"], got: Bool[Tensor, "M"], expected: Bool[Tensor, "M"]
) -> "matplotlib.figure.Figure":
    """Full where a model stays, hollow where it leaves; a ring around those about which the two differ."""
    from course_lib.lessons.common.style import COLOURS, figure, label

    fig, axes = figure(2, width=3.8, height=3.0)
    mean, wrong = losses.double().mean(dim=1), got != expected
    for panel, stays, who in zip(axes, (got, expected), ("yours", "expected"), strict=True):
        panel.scatter(cost[stays], mean[stays], color=COLOURS[0], s=36, label="stays")
        panel.scatter(cost[~stays], mean[~stays], facecolors="white", edgecolors=COLOURS[0], s=36, label="leaves")
        panel.scatter(cost[wrong], mean[wrong], facecolors="none", edgecolors=COLOURS[1], s=150, linewidths=1.5)
        title = f"{who}: {int(stays.sum())} of {len(stays)} stay"
        label(panel, title, "cost", "mean loss" if panel is axes[0] else "")
    axes[1].legend(frameon=False)
    return fig
