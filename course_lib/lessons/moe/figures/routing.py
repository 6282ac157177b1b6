"""What a gate does with a layer's tokens: places that are too few or too many, and loads that are counted or expected.

Dimension key: E experts.
"""

from collections.abc import Mapping

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.style import COLOURS, figure, label, line_style


def overflow(kept: Mapping[float, float], n_experts: int) -> Figure:
    """By capacity factor: the share of tokens without a place, and of places without a token."""
    fig, (axes,) = figure(width=6.4, height=3.2)
    factors = list(kept)
    dropped = [100 * (1 - kept[factor]) for factor in factors]
    empty = [100 * (1 - kept[factor] / factor) for factor in factors]
    axes.plot(factors, dropped, label="tokens without a place", **line_style(0))
    axes.plot(factors, empty, label="places without a token", **line_style(1))
    axes.axvline(n_experts, color=COLOURS[4], linestyle=":", label="as many places as tokens")
    axes.set_ylim(-3, 103)
    axes.legend(frameon=False, fontsize=9)
    one = factors.index(1.0)
    title = f"At an equal share of places {dropped[one]:.0f} % of the tokens find none"
    label(axes, title, "capacity factor", "share (%)")
    return fig


def smooth(counted: Float[Tensor, "E"], expected: Float[Tensor, "E"], many: Float[Tensor, "E"], n_draws: int) -> Figure:
    """Load of each expert from one draw of the noise, counted and expected, beside the mean of many draws' counts."""
    fig, (axes,) = figure(width=6.8, height=3.0)
    places = range(len(many))
    axes.bar(places, many, width=0.6, color=COLOURS[4], alpha=0.5, label=f"mean count of {n_draws} draws")
    for index, (name, values) in enumerate({"one draw, counted": counted, "the same draw, smooth": expected}.items()):
        look = line_style(index) | {"linestyle": "none"}
        axes.plot(places, values, label=name, **look)
    axes.legend(frameon=False, fontsize=9, ncols=3, loc="upper left")
    axes.set_ylim(0, 1.35 * float(max(many.max(), counted.max(), expected.max())))
    off = [float((values - many).abs().mean() / many.mean()) for values in (counted, expected)]
    title = f"Off the mean of many draws: one count by {100 * off[0]:.1f} %, one smooth load by {100 * off[1]:.1f} %"
    label(axes, title, "expert", "tokens")
    return fig
