"""What five parts cost: alone, beside each other, in pairs, and in which order."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.lessons.capstone import measured as follows
from course_lib.lessons.capstone.found import DOMAINS, PARTS, results
from course_lib.lessons.capstone.recipes import FIVE
from course_lib.lessons.capstone.tables import parts as tables
from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.tables import Measured, listed
from course_lib.lessons.common.verdicts import ERRORS, Effect

PALE = "#e3e7ec"


def shares(measured: Measured | None = None) -> Figure:
    """Shapley values of five parts, and what each costs alone and on top of all others; one panel a domain."""
    measured = measured or results()
    fig, panels = figure(n_columns=len(DOMAINS), width=4.9, height=3.4)
    for axes, (domain, name) in zip(panels, DOMAINS.items(), strict=True):
        _shares(axes, measured, domain)
        found = follows.shares(measured, domain)
        total, most = sum(effect.value for effect in found.values()), max(found, key=lambda part: found[part].value)
        title = f"{name}: {found[most].value:.2f} of {total:.2f} nats are {PARTS[most]}"
        label(axes, title, f"nats a token ({ERROR_BARS})")
        axes.set_yticks([-place for place in range(len(FIVE))], [PARTS[part] for part in FIVE])
        axes.tick_params(axis="y", labelleft=axes is panels[0])
    panels[0].legend(frameon=False, fontsize=9, loc="lower right")
    return fig


def _shares(axes: Axes, measured: Measured, domain: str) -> None:
    kinds = {"share": follows.shares, "alone": follows.alone, "on top of all": follows.on_top}
    values = {kind: function(measured, domain) for kind, function in kinds.items()}
    axes.barh(
        [-place for place in range(len(FIVE))],
        [values["share"][part].value for part in FIVE],
        0.62,
        color=PALE,
        edgecolor=COLOURS[0],
        linewidth=0.8,
        label="mean over all orders",
    )
    for index, kind in enumerate(kinds):
        places = [-place + 0.2 * (1 - index) for place in range(len(FIVE))]
        _dots(axes, places, [values[kind][part] for part in FIVE], index, "" if kind == "share" else kind)
    axes.axvline(0, color="black", linewidth=0.8)


def _dots(axes: Axes, places: Sequence[float | int], effects: Sequence[Effect], index: int, name: str = "") -> None:
    look = line_style(index) | {"linestyle": "none", "markersize": 4.5}
    bars = [ERRORS * effect.error for effect in effects]
    axes.errorbar([effect.value for effect in effects], places, xerr=bars, capsize=2.5, label=name, **look)


def pairs(measured: Measured | None = None) -> Figure:
    """By how much each pair costs more together than apart; dark where it clearly does, hatched where clearly less."""
    measured = measured or results()
    fig, panels = figure(n_columns=len(DOMAINS), width=5.0, height=3.6)
    for axes, (domain, name) in zip(panels, DOMAINS.items(), strict=True):
        found = follows.hurt(measured, domain)
        _matrix(axes, found)
        hurt, help_ = sum(effect.holds for effect in found.values()), sum(effect.fails for effect in found.values())
        title = f"{name}: of {len(found)} pairs {hurt} cost\nclearly more together, {help_} clearly less"
        axes.set_title(title, loc="left", fontsize=11)
    return fig


def _matrix(axes: Axes, found: Mapping[tuple[str, str], Effect]) -> None:
    """Rows are the later part of a pair, columns the earlier."""
    n = len(FIVE)
    for (first, second), effect in found.items():
        x, y = FIVE.index(first), -FIVE.index(second)
        fill = COLOURS[0] if effect.holds else PALE if effect.fails else "white"
        look = {"hatch": "///" if effect.fails else "", "edgecolor": COLOURS[4], "linewidth": 0.8}
        axes.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=fill, **look))
        ink = {"color": "white" if effect.holds else "black", "ha": "center", "va": "center", "fontsize": 9}
        backed = {} if not effect.fails else {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.5}}
        axes.text(x, y, f"{effect.value:+.2f}\n± {effect.error:.2f}", **ink, **backed)
    axes.set_xlim(-0.55, n - 1.45)
    axes.set_ylim(-n + 0.45, -0.45)
    axes.set_xticks(range(n - 1), [_short(part) for part in FIVE[:-1]], fontsize=9)
    axes.set_yticks([-place for place in range(1, n)], [_short(part) for part in FIVE[1:]], fontsize=9)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xlabel(
        "nats a token beyond both costs alone, ± one standard error\ndark: clearly more; hatched: clearly less"
    )


def _short(part: str) -> str:
    """A label of two lines at most."""
    return PARTS[part].replace(", ", ",\n").replace("SparseGPT ", "SparseGPT\n")


def orders(measured: Measured | None = None) -> Figure:
    """By how much zeros first lose less than the grid first, and one sweep less than one after the other: in pairs."""
    measured = measured or results()
    fig, panels = figure(n_columns=len(DOMAINS), width=4.5, height=2.7)
    for axes, (domain, name) in zip(panels, DOMAINS.items(), strict=True):
        found = tables.first(measured, domain)
        clear = [method for method, effect in found.items() if effect.holds]
        rows = {f"{method}:\nzeros first": effect for method, effect in found.items()}
        if swept := tables.swept(measured, domain):
            rows["SparseGPT:\nin one sweep"] = swept[0]
        _dots(axes, [-place for place in range(len(rows))], list(rows.values()), 0)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks([-place for place in range(len(rows))], list(rows))
        axes.tick_params(axis="y", labelleft=axes is panels[0])
        axes.set_ylim(0.6 - len(rows), 0.6)
        title = f"{name}: zeros first is clearly better\nwith {listed(clear) if clear else 'neither'}"
        label(axes, title, f"nats a token lost less than the other way\n({ERROR_BARS})")
    return fig
