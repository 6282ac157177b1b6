"""The idea in one picture: parts added one after the other, what is then held, and what that costs; and why pairs."""

from matplotlib.figure import Figure

from course_lib.lessons.capstone import measured as follows
from course_lib.lessons.capstone.found import DENSE, DOMAINS, PARTS, above, held, recipes, results
from course_lib.lessons.capstone.recipes import FIVE
from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.tables import Measured
from course_lib.lessons.common.verdicts import ERRORS, of_samples
from course_lib.measure.paired import mean_and_error


def path(measured: Measured | None = None) -> Figure:
    """Five parts, one more in each step: megabytes of weights and cache above, nats above dense below."""
    measured = measured or results()
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
        effects = [above(row, dense, domain) for row in steps]
        values, bars = [e.value for e in effects], [ERRORS * e.error for e in effects]
        losses.errorbar(names, values, bars, capsize=3, label=name, **line_style(index))
    losses.legend(frameon=False, fontsize=9)
    times, cost = held(dense) / held(steps[-1]), above(steps[-1], dense, "wikipedia")
    label(
        sizes, f"Five parts hold {times:.1f} times fewer bytes, at {cost.value:+.2f} nats a token", "", "megabytes held"
    )
    label(losses, "", "", f"nats above dense\n({ERROR_BARS})")
    return fig


def windows(measured: Measured | None = None, domain: str = "wikipedia") -> Figure:
    """Losses of the same windows, dense and pruned: their differences vary less than they do."""
    measured = measured or results()
    values = follows.values_of(measured, domain)
    dense, pruned = values[frozenset()], values[frozenset({"prune"})]
    fig, (axes,) = figure(width=7.4, height=3.3)
    for before, after in zip(dense.tolist(), pruned.tolist(), strict=True):
        axes.plot((0, 1), (before, after), color=COLOURS[0], marker="o", linewidth=1)
    axes.set_xticks((0, 1), (DENSE, PARTS["prune"]))
    axes.set_xlim(-0.4, 1.4)
    paired = of_samples(pruned - dense)
    apart = (mean_and_error(dense)[1] ** 2 + mean_and_error(pruned)[1] ** 2) ** 0.5
    title = f"{paired.value:+.2f} ± {paired.error:.2f} nats in pairs; as if they were none, ± {apart:.2f}"
    label(axes, title, "", f"loss of a window, nats a token ({DOMAINS[domain]})")
    return fig
