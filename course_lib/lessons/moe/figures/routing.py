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
    """How far one draw of the noise is from the mean of many, by expert: counted, and as the smooth load says."""
    fig, (axes,) = figure(width=6.4, height=2.8)
    places = range(len(many))
    axes.axhline(0, color=COLOURS[4], linestyle=":", label=f"mean count of {n_draws} draws")
    off = []
    for index, (name, values) in enumerate({"one draw, counted": counted, "the same draw, smooth": expected}.items()):
        look = line_style(index) | {"linestyle": "none"}
        axes.plot(places, (values - many).tolist(), label=name, **look)
        off.append(float((values - many).abs().mean() / many.mean()))
    axes.legend(frameon=False, fontsize=9)
    axes.set_xticks(places)
    title = f"Off the mean of many draws:\none count by {100 * off[0]:.1f} %, one smooth load by {100 * off[1]:.1f} %"
    label(axes, title, "expert", f"tokens more than\nthe mean, {many.mean():.0f}")
    return fig
