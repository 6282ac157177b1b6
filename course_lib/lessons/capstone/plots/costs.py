"""Figures on sizes, bytes and wall-clock time: published sizes, drafts, and which ways with fewer bytes are faster."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from course_lib.lessons.capstone import comparisons, estimates
from course_lib.lessons.capstone.comparisons import COPYING, GREEDY, RUNNING, Drafted
from course_lib.lessons.capstone.methods import Number
from course_lib.lessons.capstone.timings import FEWER, WAYS, TimedRecipe, timed, timed_recipes
from course_lib.lessons.common.claim import NO_LOSS
from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.results import Measured, listed
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS, said
from course_lib.measure.paired import mean_and_error

FILLED = ("full", "none", "left")  # one for every five ways, which share markers and colours
PUBLISHED, OURS = {"color": "white", "hatch": "//"}, {"color": COLOURS[0]}


def published_sizes(recipes: Sequence[Row] | None = None) -> Figure:
    """Plot how many times smaller recipes are, published and here, with the loss increase here."""
    recipes = estimates.recipes() if recipes is None else recipes
    fig, (axes,) = figure(width=8.8, height=3.3)
    found = comparisons.sizes(recipes)
    for place, size in enumerate(found):
        for shift, value, look in ((0.18, size.published, PUBLISHED), (-0.18, size.ours, OURS)):
            name = "" if place else ("published, at no loss" if look is PUBLISHED else "here")
            axes.barh(-place + shift, value, 0.34, edgecolor="black", linewidth=0.7, label=name, **look)
            cost = f", {said(size.cost, 2)} nats" if look is OURS else ""
            text = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
            axes.annotate(f"{value:.2f}{cost}" if look is OURS else f"{value:g}", (value, -place + shift), **text)
    axes.set_yticks([-place for place in range(len(found))], [size.name for size in found])
    axes.set_xlim(0, 1.15 * max(size.published for size in found))
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    reached = sum(size.ours >= size.published for size in found)
    free = sum(size.cost.below(NO_LOSS).holds for size in found)
    title = f"{reached} of {len(found)} sizes are reached here, {free} of them at clearly less than {NO_LOSS} nats"
    label(axes, title, "times smaller than in 16 bits")
    return fig


def drafts(measured: Measured | None = None) -> Figure:
    """Plot passes of the dense model for 100 tokens by draft, on running text and on copying."""
    kinds = {kind: comparisons.all_drafts(kind, measured) for kind in (RUNNING, COPYING)}
    n_rows = max(map(len, kinds.values()))
    fig, panels = figure(n_columns=2, width=4.7, height=0.3 * n_rows + 1.3)
    for axes, (kind, found) in zip(panels, kinds.items(), strict=True):
        for place, each in enumerate(found):
            passes, error = _passes(each)
            greedy = each.how == GREEDY
            look = {"color": COLOURS[1] if greedy else COLOURS[0], "marker": "s" if greedy else "o"}
            axes.errorbar(passes, -place, xerr=ERRORS * error, capsize=3, linestyle="none", **look)
        names = [f"{each.name}, {each.how}" for each in found]
        axes.set_yticks([-place for place in range(len(found))], names, fontsize=9)
        axes.tick_params(axis="y", labelleft=axes is panels[0])
        axes.set_ylim(0.6 - n_rows, 0.6)
        axes.set_xlim(0, 105)
        axes.axvline(100, color="black", linewidth=0.8)
        fewest = min((each for each in found if not each.is_oracle), key=lambda each: _passes(each)[0])
        title = (
            f"{kind.capitalize()}: {_passes(fewest)[0]:.0f} passes with {fewest.name},\nthe fewest without an oracle"
        )
        label(axes, title, f"passes of the model for 100 tokens\n({ERROR_BARS})")
    return fig


def _passes(draft: Drafted) -> tuple[float, float]:
    """Return the mean number of passes for 100 tokens, and its error over texts."""
    return mean_and_error([100 / tokens for tokens in draft.tokens_per_pass])


def gains(gain_by_draft: Mapping[str, Sequence[Number]]) -> Figure:
    """Plot the gain per token over k, from 1 on, in weight loads of the target model; a ring marks the best k.

    Args:
        gain_by_draft: by name, the gain for each k.
    """
    _, (axes,) = figure(width=7.4, height=3.4)
    for index, (name, found) in enumerate(gain_by_draft.items()):
        best = max(range(len(found)), key=found.__getitem__)
        axes.plot(range(1, len(found) + 1), found, label=name, **line_style(index))
        axes.plot(best + 1, found[best], marker="o", markersize=12, fillstyle="none", color=COLOURS[0], linestyle="")
    axes.axhline(0, color=COLOURS[4], linewidth=1)
    axes.legend(frameon=False)
    pays = [name for name, found in gain_by_draft.items() if max(found) > 0]
    title = f"A gain is possible with {listed(pays)}" if pays else "None of these drafts has a gain"
    return label(axes, title, "drafted tokens k (ring: the best)", "weight loads of the model\nsaved per token").figure


def bytes_and_time() -> Figure:
    """Plot the speedup over the bytes that are read; on the line, time falls as bytes do."""
    fig, (axes,) = figure(width=8.6, height=4.2)
    found = {way.name: timed(way) for way in WAYS}
    for index, (name, points) in enumerate(found.items()):
        look = line_style(index % 5) | {"fillstyle": FILLED[index // 5], "linestyle": ":"}
        axes.plot([100 * each.fraction for each in points], [each.speedup for each in points], label=name, **look)
    percents = (2, 100)
    axes.plot(percents, [100 / each for each in percents], color="black", linewidth=1, label="as the bytes promise")
    axes.axhline(1, color="black", linewidth=0.8, linestyle="--")
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    every = [each for points in found.values() for each in points]
    pays, loses = sum(each.log_speedup.holds for each in every), sum(each.log_speedup.fails for each in every)
    title = f"Of {len(every)} ways to read fewer bytes {pays} are clearly faster than dense, {loses} clearly slower"
    label(axes, title, "bytes read, % of dense (log scale)", "speedup (log scale)")
    return fig


def recipes_and_time() -> Figure:
    """Plot the speedup of recipes and drafts, measured and as their bytes promise."""
    fig, panels = figure(n_columns=2, width=4.3, height=3.6)
    every = timed_recipes()
    steps, drafts = every[1:], [each for each in timed_recipes(True) if each.side != "no draft"]
    lighter = [each for each in steps if each.fewer > 1 / FEWER]
    n = sum(each.log_speedup.holds for each in lighter)
    first = (
        f"{n or 'None'} of {len(lighter)} ways with fewer bytes is clearly\n"
        f"faster than dense, {every[0].tokens_per_second:.0f} tokens per second"
    )
    names = {each.side for each in drafts if each.log_speedup.holds}
    second = f"Drafts that clearly pay: {', '.join(sorted(names)) or 'none'}"
    for axes, found, title in zip(panels, (steps, drafts), (first, second), strict=True):
        for place, each in enumerate(found):
            low, high = each.between
            axes.plot((low, high), (-place, -place), color=COLOURS[0], linewidth=2)
            axes.plot(each.speedup, -place, "o", color=COLOURS[0], label="measured, 10 to 90 %" if not place else None)
            promised = {"markerfacecolor": "white", "label": "as the bytes promise" if not place else None}
            axes.plot(each.fewer, -place, "s", color=COLOURS[1], **promised)
        axes.set_yticks([-place for place in range(len(found))], [_recipe_name(each) for each in found], fontsize=9)
        axes.set_ylim(-len(found) + 0.4, 0.6)
        axes.axvline(1, color="black", linewidth=0.8, linestyle="--")
        label(log_scale(axes, "x"), title, "speedup (log scale)")
    fig.legend(*panels[0].get_legend_handles_labels(), frameon=False, fontsize=8.5, loc="outside lower left", ncols=2)
    return fig


def _recipe_name(each: TimedRecipe) -> str:
    kind = each.contest.partition(", ")[2]
    return (f"{each.side},\n{kind}" if kind else each.side).replace(" + ", "\n+ ").replace(", from", ",\nfrom")
