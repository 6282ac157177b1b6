"""Recipes by bytes and loss: the front, and where the student's own ones lie.

A recipe's loss stands beside the dense model's on the same windows, so that two of its errors are those of the
difference. Recipes of fewer windows, as the student's are, are compared on the first ones, which all have read.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.capstone.drawings.labels import name_points
from course_lib.lessons.capstone.found import DENSE, DOMAINS, above, cost, one
from course_lib.lessons.capstone.found import recipes as all_recipes
from course_lib.lessons.capstone.measured import beaten_by, best
from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.lessons.common.tables import wrapped
from course_lib.lessons.common.verdicts import ERRORS

MOST = 3.0  # nats above dense: what lies higher is counted, not shown
MOST_NAMED, LINE = 2, 0.17  # of the student's: more get numbers, and a list below; inches of a line of it
ROOM = (4.0, 0.25)  # per cent of the bytes or nats between two numbers
BUDGET = {"color": COLOURS[4], "linestyle": ":", "linewidth": 1.4}
Budget = tuple[float, float]  # of the dense model's bytes, held and read


def front(
    recipes: Sequence[Row] | None = None,
    mine: Sequence[Row] = (),
    domain: str = "wikipedia",
    budget: Budget | None = None,
) -> Figure:
    """All recipes over bytes held and over bytes read for a token; those that none beats are numbered.

    Args:
        recipes: as `found.recipes` gives them. mine: of the same kind, with `name`, `stored`, `cache`, `read` and the
            losses of the first windows of the domain; drawn as stars.
        budget: shares of the dense model's bytes, held and read, drawn as dotted lines.
    """
    recipes = all_recipes() if recipes is None else recipes
    names = wrapped(";  ".join(f"{n} {row['name']}" for n, row in enumerate(mine, 1))) if len(mine) > MOST_NAMED else ""
    fig, panels = figure(n_columns=2, width=5.0, height=3.9 + LINE * len(names.splitlines()))
    fig.supxlabel(names, fontsize=9)
    for read, axes in enumerate(panels):
        _panel(axes, recipes, mine, domain, bool(read), budget)
    panels[0].set_ylabel(f"nats a token above dense, {DOMAINS[domain]}\n({ERROR_BARS})")
    for read, axes in enumerate(panels):
        _name_own(axes, recipes, mine, domain, bool(read))
    return fig


def front_elsewhere() -> Figure:
    """The same on the other text, for the deck."""
    return front(domain="boolq")


def strip(
    recipes: Sequence[Row], mine: Sequence[Row], domain: str = "wikipedia", budget: Budget | None = None
) -> Figure:
    """The same over bytes held, a panel for each of the student's recipes: what stays where there is no browser."""
    fig, panels = figure(n_columns=len(mine), width=3.6, height=3.2)
    for axes, own in zip(panels, mine, strict=True):
        _panel(axes, recipes, [own], domain, False, budget)
        axes.set_title(f"{own['name']}: {_beaten(own, recipes, domain, False)}", loc="left", fontsize=10)
    panels[0].set_ylabel(f"nats above dense, {DOMAINS[domain]}")
    for axes, own in zip(panels, mine, strict=True):
        _name_own(axes, recipes, [own], domain, False)
    return fig


def _panel(
    axes: Axes, recipes: Sequence[Row], mine: Sequence[Row], domain: str, read: bool, budget: Budget | None
) -> None:
    dense, what = one(recipes, DENSE), "read a token" if read else "held"
    standing = [one(recipes, point.name) for point in best(recipes, domain, read)]
    shown = [row for row in recipes if above(row, dense, domain).value <= MOST]
    others = [row for row in shown if row not in standing]
    places = [(100 * cost(row, read) / cost(dense, read), above(row, dense, domain)) for row in others]
    axes.scatter([x for x, _ in places], [y.value for _, y in places], 18, "white", edgecolors=COLOURS[4], zorder=2)
    _standing(axes, standing, dense, domain, read, numbered=len(mine) <= MOST_NAMED)
    if budget:
        axes.axvline(100 * budget[read], **BUDGET)
    axes.set_ylim(-0.25, MOST)
    axes.set_xlim(right=104)
    _own(axes, mine, dense, domain, read)
    beaten = f";\n{mine[0]['name']} {_beaten(mine[0], recipes, domain, read)}" if len(mine) == 1 else ""
    hidden = len(recipes) - len(shown)
    above_all = f"\n{hidden} of the recipes lie above the picture" if hidden else ""
    label(
        axes,
        f"{what.capitalize()}: of {len(recipes)} recipes {len(standing)} are beaten by none{beaten}",
        f"bytes {what}, % of the dense model's{above_all}",
    )


def _standing(axes: Axes, standing: Sequence[Row], dense: Row, domain: str, read: bool, numbered: bool) -> None:
    """Numbered from the cheapest to the dearest, where a number can be read beside the one before; not where stars
    have numbers."""
    last = (-ROOM[0], 0.0)
    for number, row in enumerate(standing, 1):
        effect = above(row, dense, domain)
        if effect.value > MOST:
            continue
        x, y = 100 * cost(row, read) / cost(dense, read), effect.value
        axes.errorbar(
            x, y, yerr=ERRORS * effect.error, color=COLOURS[0], marker="o", markersize=5, capsize=2.5, zorder=3
        )
        if numbered and (abs(x - last[0]) >= ROOM[0] or abs(y - last[1]) >= ROOM[1]):
            axes.annotate(str(number), (x, y), (6, 4), textcoords="offset points", fontsize=8.5)
            last = (x, y)


def _own(axes: Axes, mine: Sequence[Row], dense: Row, domain: str, read: bool) -> None:
    """Stars; larger where they are few."""
    for row in mine:
        (x, y), error = _spot(row, dense, domain, read), above(row, dense, domain).error
        look = {"color": COLOURS[1], "marker": "*", "markersize": 13 if len(mine) <= MOST_NAMED else 8}
        axes.errorbar(x, min(y, MOST), yerr=ERRORS * error, zorder=4, markeredgecolor="black", capsize=3, **look)


def _name_own(axes: Axes, recipes: Sequence[Row], mine: Sequence[Row], domain: str, read: bool) -> None:
    """Their names, or numbers where they are many; once all panels have their words and stay as large as they are."""
    dense = one(recipes, DENSE)
    spots = [(x, min(y, MOST)) for x, y in (_spot(row, dense, domain, read) for row in mine)]
    names = [row["name"] if len(mine) <= MOST_NAMED else str(n) for n, row in enumerate(mine, 1)]
    around = [spot for spot in (_spot(row, dense, domain, read) for row in recipes) if spot[1] <= MOST]
    name_points(axes, spots, names, around=around, color=COLOURS[1], zorder=5)


def _spot(row: Row, dense: Row, domain: str, read: bool) -> tuple[float, float]:
    """Per cent of the dense model's bytes, and nats above it."""
    return 100 * cost(row, read) / cost(dense, read), above(row, dense, domain).value


def _beaten(own: Row, recipes: Sequence[Row], domain: str, read: bool) -> str:
    """In words, by how many."""
    n = len(beaten_by(own, recipes, domain, read))
    return f"is beaten by {n or 'none'}"
