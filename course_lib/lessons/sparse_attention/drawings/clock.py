"""FlexPrefill on the clock, over the density."""

from matplotlib.figure import Figure

from course_lib.lessons.common.effects import Row, of_repetitions
from course_lib.lessons.common.style import figure, label, line_style
from course_lib.lessons.common.tables import Measured
from course_lib.lessons.sparse_attention.estimates import clock
from course_lib.lessons.sparse_attention.tables.clock import results


def over_density(bench: Measured | None = None) -> Figure:
    """How many times as fast as dense attention: choosing and reading, reading alone, and what a density promises."""
    bench = bench or results()
    fig, panels = figure(n_columns=2, width=4.8, height=3.6)
    sides = {"choosing and reading": clock.CHOSEN_AND_READ, "reading alone": clock.READ}
    least = min(row["density"] for row in clock.timed(bench, clock.READ))
    for axes, (name, side) in zip(panels, sides.items(), strict=True):
        found = clock.timed(bench, side)
        shares = [row["density"] for row in found]
        edge = [min(shares) + i * (max(shares) - min(shares)) / 50 for i in range(51)]
        axes.plot(
            [100 * share for share in edge],
            [1 / share for share in edge],
            color="0.5",
            linewidth=1,
            label="1 / density",
        )
        for index, length in enumerate(sorted({row["tokens"] for row in found})):
            _line(axes, [row for row in found if row["tokens"] == length], f"{length} tokens", index)
        axes.axhline(1, color="black", linestyle=":", linewidth=1)
        axes.set_ylim(0, 1.05 / least)
        faster = sum(of_repetitions(row).holds for row in found)
        label(axes, f"{name.capitalize()}: faster in {faster} of {len(found)}", "blocks read (%)")
    panels[0].set_ylabel("times as fast as dense attention\n(bars: 10 and 90 % of repetitions)")
    panels[1].legend(frameon=False, fontsize=9, loc="upper right")
    return fig


def _line(axes, found: list[Row], name: str, index: int) -> None:
    found = sorted(found, key=lambda row: row["density"])
    heights = [row["times_anchor"] for row in found]
    bars = [[abs(row["times_anchor"] - row[f"times_anchor_{end}"]) for row in found] for end in ("low", "high")]
    places = [100 * row["density"] for row in found]
    axes.errorbar(places, heights, bars, capsize=3, label=name, **line_style(index))
