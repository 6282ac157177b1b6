"""What papers claim beside what the same recipe does here, and recipes of equal bytes."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from course_lib.lessons.capstone.found import recipes as all_recipes
from course_lib.lessons.capstone.tables import quoted
from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.verdicts import ERRORS, said

PUBLISHED, HERE = {"color": "white", "hatch": "//"}, {"color": COLOURS[0]}


def times_smaller(recipes: Sequence[Row] | None = None) -> Figure:
    """How many times smaller, published and here, and what it costs here."""
    recipes = all_recipes() if recipes is None else recipes
    fig, (axes,) = figure(width=8.8, height=3.3)
    found = quoted.times_smaller(recipes)
    for place, size in enumerate(found):
        for shift, value, look in ((0.18, size.published, PUBLISHED), (-0.18, size.here, HERE)):
            name = "" if place else ("published, at no loss" if look is PUBLISHED else "here")
            axes.barh(-place + shift, value, 0.34, edgecolor="black", linewidth=0.7, label=name, **look)
            cost = f", {said(size.cost, 2)} nats" if look is HERE else ""
            beside = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
            axes.annotate(f"{value:.2f}{cost}" if look is HERE else f"{value:g}", (value, -place + shift), **beside)
    axes.set_yticks([-place for place in range(len(found))], [size.name for size in found])
    axes.set_xlim(0, 1.15 * max(size.published for size in found))
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    reached = sum(size.here >= size.published for size in found)
    free = sum(quoted.less_than_close(size.cost).holds for size in found)
    title = f"Of {len(found)} sizes {reached} are reached here, {free} of them at clearly less than {quoted.CLOSE} nats"
    label(axes, title, "times smaller than in 16 bits")
    return fig


def equal_bytes(recipes: Sequence[Row] | None = None) -> Figure:
    """Zeros and more bits beside fewer bits for all: by how much the first lose less."""
    recipes = all_recipes() if recipes is None else recipes
    found = quoted.at_equal_bytes(recipes)
    fig, (axes,) = figure(width=8.8, height=0.34 * len(found) + 1.4)
    for place, (_name, effect) in enumerate(found.items()):
        axes.errorbar(effect.value, -place, xerr=ERRORS * effect.error, capsize=3, **line_style(0))
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks([-place for place in range(len(found))], list(found), fontsize=9)
    axes.set_ylim(0.6 - len(found), 0.6)
    better, worse = sum(effect.holds for effect in found.values()), sum(effect.fails for effect in found.values())
    title = f"Zeros and more bits: clearly better in {better} of {len(found)} cases of equal bytes, worse in {worse}"
    fig.suptitle(title, x=0.01, ha="left", fontsize=11)
    label(axes, "", f"nats a token lost less than with fewer bits for all\n({ERROR_BARS})")
    return fig
