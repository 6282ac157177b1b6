"""How slowly the residual stream changes from block to block.

Dimension key: L blocks.
"""

from collections.abc import Mapping

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.style import COLOURS, figure, label, line_style

CLOSE = 0.95


def slow_change(cosine: Float[Tensor, "L"], added: Mapping[str, Float[Tensor, "L"]]) -> Figure:
    """Left: the cosine of the streams before and after each block. Right: what is added, beside what is there.

    Args:
        cosine: of each block, the median over tokens.
        added: by part of the block, ‖F(X)‖ / ‖X‖, the median over tokens.
    """
    fig, (left, right) = figure(n_columns=2, width=4.8, height=3.2)
    numbers = range(len(cosine))
    left.plot(numbers, cosine.tolist(), **(line_style(0) | {"markersize": 4}))
    left.axhline(CLOSE, color=COLOURS[4], linestyle=":")
    left.set_ylim(min(0.0, float(cosine.min())) - 0.03, 1.03)
    n_close = int((cosine > CLOSE).sum())
    label(left, f"Cosine above {CLOSE} in {n_close} of {len(cosine)} blocks", "block", "cosine of before and after")
    for index, (name, ratio) in enumerate(added.items()):
        right.plot(numbers, ratio.tolist(), label=name, **(line_style(index) | {"markersize": 4}))
    right.axhline(1, color=COLOURS[4], linestyle=":")
    right.set_yscale("log")
    right.legend(frameon=False, fontsize=9)
    most = max(float(ratio[1:].max()) for ratio in added.values())
    label(right, f"Behind block 0 a part adds at most\n{most:.2f} of the stream", "block", "‖F(X)‖ / ‖X‖ (log scale)")
    return fig
