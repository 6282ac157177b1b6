"""Recipes by bytes and loss increase: the Pareto front, your own recipes, and what you try for the challenge.

The loss of a recipe is compared with that of the dense model on the same windows. Your own recipes have read fewer
windows than the stored ones; they are compared on the first windows, which all recipes have read.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.compose.challenge.budget import BUDGET
from course_lib.lessons.capstone import estimates
from course_lib.lessons.capstone.challenge import Try
from course_lib.lessons.capstone.estimates import DENSE, DOMAINS, beaten_by, find, loss_increase, n_bytes, pareto_set
from course_lib.lessons.capstone.plots.labels import name_points
from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.results import percent, wrapped
from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.lessons.common.verdicts import ERRORS

MOST = 3.0  # nats: recipes with a larger loss increase are counted, not shown
MOST_NAMED, LINE = 2, 0.17  # of your recipes: more get numbers, and a list below; inches of a line of it
ROOM = (4.0, 0.25)  # percent of the bytes or nats between two numbers
LEAST_NATS = 0.5
LINE_OF_BUDGET = {"color": COLOURS[4], "linestyle": ":", "linewidth": 1.4}
Budget = tuple[float, float]  # of the dense model's bytes: in memory, and read per token
LIMITS = (("held", BUDGET.held), ("read", BUDGET.read))


def pareto_front(
    recipes: Sequence[Row] | None = None,
    own: Sequence[Row] = (),
    domain: str = "wikipedia",
    budget: Budget | None = None,
) -> Figure:
    """Plot all recipes over memory footprint and over bytes read per token; those that no other beats are numbered.

    Args:
        recipes: as `estimates.recipes` returns them. own: rows of the same kind, with `name`, `stored`, `cache`, `read`
            and the losses of the first windows of the domain; drawn as stars.
        budget: fractions of the dense model's bytes, in memory and read, drawn as dotted lines.
    """
    recipes = estimates.recipes() if recipes is None else recipes
    names = wrapped(";  ".join(f"{n} {row['name']}" for n, row in enumerate(own, 1))) if len(own) > MOST_NAMED else ""
    fig, panels = figure(n_columns=2, width=5.0, height=3.9 + LINE * len(names.splitlines()))
    fig.supxlabel(names, fontsize=9)
    for read, axes in enumerate(panels):
        _panel(axes, recipes, own, domain, bool(read), budget)
    panels[0].set_ylabel(f"loss increase, nats per token,\n{DOMAINS[domain]} ({ERROR_BARS})")
    for read, axes in enumerate(panels):
        _name_own(axes, recipes, own, domain, bool(read))
    return fig


def _panel(
    axes: Axes, recipes: Sequence[Row], own: Sequence[Row], domain: str, read: bool, budget: Budget | None
) -> None:
    dense, what = find(recipes, DENSE), "read per token" if read else "in memory"
    front_rows = [find(recipes, point.name) for point in pareto_set(recipes, domain, read)]
    shown = [row for row in recipes if loss_increase(row, dense, domain).value <= MOST]
    others = [row for row in shown if row not in front_rows]
    places = [(100 * n_bytes(row, read) / n_bytes(dense, read), loss_increase(row, dense, domain)) for row in others]
    axes.scatter([x for x, _ in places], [y.value for _, y in places], 18, "white", edgecolors=COLOURS[4], zorder=2)
    _draw_front(axes, front_rows, dense, domain, read, numbered=len(own) <= MOST_NAMED)
    if budget:
        axes.axvline(100 * budget[read], **LINE_OF_BUDGET)
    axes.set_ylim(-0.25, MOST)
    axes.set_xlim(right=104)
    _draw_own(axes, own, dense, domain, read)
    beaten = ""
    if len(own) == 1:
        beaten = f";\n{own[0]['name']} is beaten by {len(beaten_by(own[0], recipes, domain, read)) or 'none'}"
    hidden = len(recipes) - len(shown)
    above_all = f"\n{hidden} of the recipes are above the figure" if hidden else ""
    label(
        axes,
        f"Bytes {what}: {len(front_rows)} of {len(recipes)} recipes on the front{beaten}",
        f"bytes {what}, % of the dense model's{above_all}",
    )


def _draw_front(axes: Axes, front_rows: Sequence[Row], dense: Row, domain: str, read: bool, numbered: bool) -> None:
    """Number them from the smallest on, where a number does not touch the previous one, unless stars have numbers."""
    last = (-ROOM[0], 0.0)
    for number, row in enumerate(front_rows, 1):
        effect = loss_increase(row, dense, domain)
        if effect.value > MOST:
            continue
        x, y = 100 * n_bytes(row, read) / n_bytes(dense, read), effect.value
        axes.errorbar(
            x, y, yerr=ERRORS * effect.error, color=COLOURS[0], marker="o", markersize=5, capsize=2.5, zorder=3
        )
        if numbered and (abs(x - last[0]) >= ROOM[0] or abs(y - last[1]) >= ROOM[1]):
            axes.annotate(str(number), (x, y), (6, 4), textcoords="offset points", fontsize=8.5)
            last = (x, y)


def _draw_own(axes: Axes, own: Sequence[Row], dense: Row, domain: str, read: bool) -> None:
    """Draw stars, larger ones for few recipes."""
    for row in own:
        (x, y), error = _spot(row, dense, domain, read), loss_increase(row, dense, domain).error
        look = {"color": COLOURS[1], "marker": "*", "markersize": 13 if len(own) <= MOST_NAMED else 8}
        axes.errorbar(x, min(y, MOST), yerr=ERRORS * error, zorder=4, markeredgecolor="black", capsize=3, **look)


def _name_own(axes: Axes, recipes: Sequence[Row], own: Sequence[Row], domain: str, read: bool) -> None:
    """Write names, or numbers for many recipes. The panels must have their final size by now."""
    dense = find(recipes, DENSE)
    spots = [(x, min(y, MOST)) for x, y in (_spot(row, dense, domain, read) for row in own)]
    names = [row["name"] if len(own) <= MOST_NAMED else str(n) for n, row in enumerate(own, 1)]
    around = [spot for spot in (_spot(row, dense, domain, read) for row in recipes) if spot[1] <= MOST]
    name_points(axes, spots, names, around=around, color=COLOURS[1], zorder=5)


def _spot(row: Row, dense: Row, domain: str, read: bool) -> tuple[float, float]:
    """Return percent of the dense model's bytes, and the loss increase."""
    return 100 * n_bytes(row, read) / n_bytes(dense, read), loss_increase(row, dense, domain).value


def tries(found: Sequence[Try]) -> Figure:
    """Plot the loss increase of your recipes over bytes in memory and bytes read; dotted lines show the budget."""
    built = [(place, each) for place, each in enumerate(found, 1) if each.judged]
    fig, panels = figure(n_columns=2, width=5.2, height=3.4)
    for axes, (which, most) in zip(panels, LIMITS, strict=True):
        spots = [(100 * getattr(each, which), each.loss) for _, each in built]
        for spot, (_, each) in zip(spots, built, strict=True):
            fill = COLOURS[0] if each.is_within else "white"
            axes.plot(*spot, "o", markersize=8, color=COLOURS[0], markerfacecolor=fill)
        axes.axvline(100 * most, color="black", linestyle=":", linewidth=1)
        _set_limits(axes, spots)
        n_within = sum(getattr(each, which) <= most for _, each in built)
        title = f"{n_within} of {len(found)} stay within {percent(most, 1)} of the bytes {which}"
        label(
            axes,
            title,
            f"bytes {which}{' per token' * (which == 'read')} (% of dense)",
            "loss increase, nats per token",
        )
    names = "   ".join(f"{place} {each.name}" for place, each in built)
    fig.supxlabel(f"filled: keeps to both limits. {names}", fontsize=9, wrap=True)
    for axes, (which, _) in zip(panels, LIMITS, strict=True):
        spots = [(100 * getattr(each, which), each.loss) for _, each in built]
        name_points(axes, spots, [str(place) for place, _ in built], 9.5)
    return fig


def _set_limits(axes: Axes, spots: Sequence[tuple[float, float]]) -> None:
    """Show all bytes from none to the dense model's and at least half a nat, for one recipe as for eight."""
    shares, losses = [x for x, _ in spots], [y for _, y in spots]
    least, most = min([0.0, *losses]), max([LEAST_NATS, *losses])
    room = 0.08 * (most - least)
    axes.set_xlim(0, 1.05 * max([100.0, *shares]))
    axes.set_ylim(least - room, most + room)
