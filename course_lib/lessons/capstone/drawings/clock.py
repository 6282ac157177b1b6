"""Bytes beside time."""

from matplotlib.figure import Figure

from course_lib.lessons.capstone.tables.clock import WAYS, timed
from course_lib.lessons.common.style import figure, label, line_style, log_scale


def bytes_and_time() -> Figure:
    """How many times as fast a token is over the bytes that are read; on the line bytes are time."""
    fig, (axes,) = figure(width=8.6, height=4.2)
    found = {way.name: timed(way) for way in WAYS}
    for index, (name, points) in enumerate(found.items()):
        look = line_style(index % 5) | {"fillstyle": "full" if index < 5 else "none", "linestyle": ":"}
        axes.plot([100 * each.of_bytes for each in points], [each.times for each in points], label=name, **look)
    shares = (2, 100)
    axes.plot(shares, [100 / share for share in shares], color="black", linewidth=1, label="as the bytes promise")
    axes.axhline(1, color="black", linewidth=0.8, linestyle="--")
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    every = [each for points in found.values() for each in points]
    pays, loses = sum(each.faster.holds for each in every), sum(each.faster.fails for each in every)
    title = f"Of {len(every)} ways to read fewer bytes {pays} are clearly faster than dense, {loses} clearly slower"
    label(axes, title, "bytes read, per cent of dense (log scale)", "times as fast as dense (log scale)")
    return fig
