"""Delta-coded keys over the threshold."""

from matplotlib.figure import Figure

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.style import figure, label, line_style
from course_lib.lessons.common.tables import Measured, rows
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.sparse_attention.estimates import delta
from course_lib.lessons.sparse_attention.tables.delta import results

FAR = 0.5  # nats a token: what lies above is drawn here, with its number beside it


def over_threshold(measured: Measured | None = None) -> Figure:
    """What each threshold leaves out, and nats above the model as it is by what is left out."""
    measured = measured or results()
    fig, (left, right) = figure(n_columns=2, width=5.0, height=3.6)
    main = sorted(delta.main(measured), key=lambda row: row["theta"])
    thetas = [row["theta"] for row in main]
    for index, (name, said) in enumerate({"zeros": "values not sent", "sparsity": "products not done"}.items()):
        left.plot(thetas, [100 * row[name] for row in main], label=said, **line_style(index))
    left.set_ylim(0, 100)
    sizes = measured["sizes"]
    series = {
        f"window {sizes['window']}, exact sinks": main,
        "no window": rows(measured, "read", window=1, side="after"),
        "sinks coded": rows(measured, "read", sinks=0, side="after"),
    }
    for index, (name, found) in enumerate(series.items()):
        _line(right, measured, sorted(found, key=lambda row: row["theta"]), name, index)
    right.axhline(0, color="black", linewidth=0.8)
    right.set_ylim(top=FAR * 1.08)
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=9, loc="upper left")
    most = main[-1]
    label(
        left, f"θ = {most['theta']:g} leaves out {100 * most['sparsity']:.0f} % of QKᵀ", "θ (standard deviations)", "%"
    )
    label(right, _found(measured, main), "products of QKᵀ not done (%)", f"nats a token above dense\n({ERROR_BARS})")
    return fig


def _line(axes, measured: Measured, found: list[Row], name: str, index: int) -> None:
    places = [100 * row["sparsity"] for row in found]
    effects = [delta.above(measured, row) for row in found]
    heights = [min(effect.value, FAR) for effect in effects]
    bars = [ERRORS * effect.error if effect.value < FAR else 0 for effect in effects]
    axes.errorbar(places, heights, bars, capsize=3, label=name, **line_style(index))
    for place, effect in zip(places, effects, strict=True):
        if effect.value >= FAR:
            beside = {"xytext": (-7, 0), "textcoords": "offset points", "ha": "right", "va": "center", "fontsize": 9}
            axes.annotate(f"{effect.value:+.2f}, beyond the axis", (place, FAR), **beside)


def _found(measured: Measured, main: list[Row]) -> str:
    """The least and the largest threshold of the main line."""
    ends = [f"{100 * (delta.ratio(measured, row) - 1):+.1f} % at θ = {row['theta']:g}" for row in (main[0], main[-1])]
    return f"Perplexity {ends[0]}, {ends[1]}"
