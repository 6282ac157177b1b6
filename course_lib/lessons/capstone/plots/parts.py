"""Figures on the parts of a recipe: added one by one, alone and together, in pairs, and in which order."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.lessons.capstone import estimates
from course_lib.lessons.capstone.estimates import DENSE, DOMAINS, PARTS, loss_increase, n_bytes, parts_results, recipes
from course_lib.lessons.capstone.experiments.recipes import FIVE
from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.results import Measured, listed
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.verdicts import ERRORS, Effect, of_samples
from course_lib.measure.paired import mean_and_error

PALE = "#e3e7ec"


def parts_added(measured: Measured | None = None) -> Figure:
    """Plot megabytes of weights and cache, and the loss increase, for five parts added one after the other."""
    measured = measured or parts_results()
    fig, (sizes, losses) = figure(n_rows=2, width=8.4, height=2.2)
    rows = {(*row["parts"],): row for row in recipes(measured) if "parts" in row}
    steps = [rows[tuple(sorted(FIVE[:n]))] for n in range(len(FIVE) + 1)]
    dense = steps[0]
    names = [DENSE, *(f"+ {PARTS[part]}" for part in FIVE)]
    weights, caches = ([row[key] / 1e6 for row in steps] for key in ("stored", "cache"))
    look = {"edgecolor": "black", "linewidth": 0.7}
    sizes.bar(names, weights, 0.6, color=COLOURS[0], label="weights", **look)
    sizes.bar(names, caches, 0.6, weights, color=COLOURS[3], label="cache", **look)
    sizes.set_xticks(range(len(names)), [""] * len(names))
    sizes.legend(frameon=False, fontsize=9, ncols=2)
    for index, (domain, name) in enumerate(DOMAINS.items()):
        effects = [loss_increase(row, dense, domain) for row in steps]
        values, bars = [e.value for e in effects], [ERRORS * e.error for e in effects]
        losses.errorbar(names, values, bars, capsize=3, label=name, **line_style(index))
    losses.legend(frameon=False, fontsize=9)
    times, cost = n_bytes(dense) / n_bytes(steps[-1]), loss_increase(steps[-1], dense, "wikipedia")
    title = f"Five parts take {times:.1f} times fewer bytes, at {cost.value:+.2f} nats per token"
    label(sizes, title, "", "MB in memory")
    label(losses, "", "", f"loss increase, nats\nper token\n({ERROR_BARS})")
    return fig


def paired_windows(measured: Measured | None = None, domain: str = "wikipedia") -> Figure:
    """Plot the losses of the same windows, dense and pruned: their differences vary less than they do."""
    values = estimates.values_of(measured or parts_results(), domain)
    dense, pruned = values[frozenset()], values[frozenset({"prune"})]
    fig, (axes,) = figure(width=7.4, height=3.3)
    for before, after in zip(dense.tolist(), pruned.tolist(), strict=True):
        axes.plot((0, 1), (before, after), color=COLOURS[0], marker="o", linewidth=1)
    axes.set_xticks((0, 1), (DENSE, PARTS["prune"]))
    axes.set_xlim(-0.4, 1.4)
    paired = of_samples(pruned - dense)
    independent = (mean_and_error(dense)[1] ** 2 + mean_and_error(pruned)[1] ** 2) ** 0.5
    title = f"{paired.value:+.2f} ± {paired.error:.2f} nats as pairs; as independent samples ± {independent:.2f}"
    label(axes, title, "", f"loss of a window, nats per token ({DOMAINS[domain]})")
    return fig


def part_costs(measured: Measured | None = None) -> Figure:
    """Plot the Shapley values of five parts, and what each costs alone and when added last, for each domain."""
    measured = measured or parts_results()
    fig, panels = figure(n_columns=len(DOMAINS), width=4.9, height=3.4)
    for axes, (domain, name) in zip(panels, DOMAINS.items(), strict=True):
        _draw_costs(axes, measured, domain)
        found = estimates.shapley_values(measured, domain)
        total, most = sum(effect.value for effect in found.values()), max(found, key=lambda part: found[part].value)
        title = f"{name}: {found[most].value:.2f} of {total:.2f} nats are due to {PARTS[most]}"
        label(axes, title, f"loss increase, nats per token ({ERROR_BARS})")
        axes.set_yticks([-place for place in range(len(FIVE))], [PARTS[part] for part in FIVE])
        axes.tick_params(axis="y", labelleft=axes is panels[0])
    panels[0].legend(frameon=False, fontsize=9, loc="lower right")
    return fig


def _draw_costs(axes: Axes, measured: Measured, domain: str) -> None:
    kinds = {"Shapley value": estimates.shapley_values, "alone": estimates.alone, "added last": estimates.added_last}
    values = {kind: function(measured, domain) for kind, function in kinds.items()}
    axes.barh(
        [-place for place in range(len(FIVE))],
        [values["Shapley value"][part].value for part in FIVE],
        0.62,
        color=PALE,
        edgecolor=COLOURS[0],
        linewidth=0.8,
        label="Shapley value",
    )
    for index, kind in enumerate(kinds):
        places = [-place + 0.2 * (1 - index) for place in range(len(FIVE))]
        _draw_effects(axes, places, [values[kind][part] for part in FIVE], index, "" if index == 0 else kind)
    axes.axvline(0, color="black", linewidth=0.8)


def _draw_effects(
    axes: Axes, places: Sequence[float | int], effects: Sequence[Effect], index: int, name: str = ""
) -> None:
    look = line_style(index) | {"linestyle": "none", "markersize": 4.5}
    bars = [ERRORS * effect.error for effect in effects]
    axes.errorbar([effect.value for effect in effects], places, xerr=bars, capsize=2.5, label=name, **look)


def interactions(measured: Measured | None = None) -> Figure:
    """Plot by how much each pair costs more together than apart: clearly more is dark, clearly less hatched."""
    measured = measured or parts_results()
    fig, panels = figure(n_columns=len(DOMAINS), width=5.0, height=3.6)
    for axes, (domain, name) in zip(panels, DOMAINS.items(), strict=True):
        found = estimates.interactions(measured, domain)
        _draw_matrix(axes, found)
        more, less = sum(effect.holds for effect in found.values()), sum(effect.fails for effect in found.values())
        title = f"{name}: of {len(found)} pairs {more} cost\nclearly more together, {less} clearly less"
        axes.set_title(title, loc="left", fontsize=11)
    return fig


def _draw_matrix(axes: Axes, found: Mapping[tuple[str, str], Effect]) -> None:
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
        "nats per token beyond both costs alone\n(± one standard error)\ndark: clearly more; hatched: clearly less"
    )


def _short(part: str) -> str:
    """Break a label into two lines at most."""
    return PARTS[part].replace(", ", ",\n").replace("SparseGPT ", "SparseGPT\n")


def orders(measured: Measured | None = None) -> Figure:
    """Plot by how much pruning first, and one sweep, have a lower loss than the other order."""
    measured = measured or parts_results()
    fig, panels = figure(n_columns=len(DOMAINS), width=4.5, height=2.7)
    for axes, (domain, name) in zip(panels, DOMAINS.items(), strict=True):
        found = estimates.order_gains(measured, domain)
        clear = [key.partition(":")[0] for key, effect in found.items() if effect.holds and key.endswith("zeros first")]
        _draw_effects(axes, [-place for place in range(len(found))], list(found.values()), 0)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks([-place for place in range(len(found))], [key.replace(": ", ":\n") for key in found])
        axes.tick_params(axis="y", labelleft=axes is panels[0])
        axes.set_ylim(0.6 - len(found), 0.6)
        title = f"{name}: zeros first is clearly better\nwith {listed(clear) if clear else 'neither'}"
        label(axes, title, f"loss of the other way minus this one,\nnats per token ({ERROR_BARS})")
    return fig
