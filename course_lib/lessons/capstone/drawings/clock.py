"""Bytes beside time."""

from matplotlib.figure import Figure

from course_lib.lessons.capstone.tables.clock import FEWER, WAYS, OfRecipe, timed, whole_recipes
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale

FILLED = ("full", "none", "left")  # one for every five ways, which share markers and colours


def bytes_and_time() -> Figure:
    """How many times as fast a token is over the bytes that are read; on the line bytes are time."""
    fig, (axes,) = figure(width=8.6, height=4.2)
    found = {way.name: timed(way) for way in WAYS}
    for index, (name, points) in enumerate(found.items()):
        look = line_style(index % 5) | {"fillstyle": FILLED[index // 5], "linestyle": ":"}
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


def recipes_on_the_clock() -> Figure:
    """How many times as fast recipes and drafts are, beside how many times fewer bytes they read."""
    fig, panels = figure(n_columns=2, width=4.3, height=3.6)
    steps, drafts = whole_recipes()[1:], [each for each in whole_recipes(True) if each.side != "no draft"]
    dense = whole_recipes()[0].a_second
    lighter = [each for each in steps if each.fewer > 1 / FEWER]
    n = sum(each.faster.holds for each in lighter)
    first = (
        f"Of {len(lighter)} ways with fewer bytes {n or 'none'} clearly faster\nthan dense, {dense:.0f} tokens a second"
    )
    for axes, found, title in zip(panels, (steps, drafts), (first, _of_drafts(drafts)), strict=True):
        for place, each in enumerate(found):
            low, high = each.between
            axes.plot((low, high), (-place, -place), color=COLOURS[0], linewidth=2)
            axes.plot(each.times, -place, "o", color=COLOURS[0], label="measured, 10 to 90 %" if not place else None)
            promised = {"markerfacecolor": "white", "label": "as the bytes promise" if not place else None}
            axes.plot(each.fewer, -place, "s", color=COLOURS[1], **promised)
        axes.set_yticks([-place for place in range(len(found))], [_named(each) for each in found], fontsize=9)
        axes.set_ylim(-len(found) + 0.4, 0.6)
        axes.axvline(1, color="black", linewidth=0.8, linestyle="--")
        label(log_scale(axes, "x"), title, "times as fast (log scale)")
    fig.legend(*panels[0].get_legend_handles_labels(), frameon=False, fontsize=8.5, loc="outside lower left", ncols=2)
    return fig


def _named(each: OfRecipe) -> str:
    kind = each.contest.partition(", ")[2]
    return (f"{each.side},\n{kind}" if kind else each.side).replace(" + ", "\n+ ").replace(", from", ",\nfrom")


def _of_drafts(found: list[OfRecipe]) -> str:
    names = {each.side for each in found if each.faster.holds}
    return f"Drafts that clearly pay: {', '.join(sorted(names)) or 'none'}"
