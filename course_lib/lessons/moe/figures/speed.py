"""What a layer of experts costs beside a dense MLP of the same active size, from `course bench moe`."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale

TWIN, LAYER, ALL = "dense, of equal active size", "grouped product", "all experts"
USUAL = 8  # experts


def cost(bench: dict[str, Any], side: str, shapes: Sequence[tuple[int, int]], what: str) -> list[float]:
    """A side's seconds or bytes, over its twin's of the same shape."""
    table = bench["tables"]["sides"]
    of = {(row["side"], *row["shape"]): row[what] for row in table}
    return [of[side, *shape] / of[TWIN, *shape] for shape in shapes]


def speeds(bench: dict[str, Any]) -> Figure:
    """Times the twin's time: by tokens at 8 experts, and by experts at the fewest and the most tokens."""
    shapes = sorted({tuple(row["shape"]) for row in bench["tables"]["sides"]})
    by_tokens = [shape for shape in shapes if shape[1] == USUAL]
    fig, (left, right) = figure(n_columns=2, width=4.8, height=3.4)
    tokens = [n for n, _ in by_tokens]
    for index, side in enumerate((LAYER, ALL)):
        left.plot(tokens, cost(bench, side, by_tokens, "median_seconds"), label=_name(side), **line_style(index))
    left.plot(tokens, cost(bench, LAYER, by_tokens, "bytes"), label="bytes that the layer reads", **line_style(4))
    few, many = tokens[0], tokens[-1]
    for index, n in enumerate((few, many)):
        these = [shape for shape in shapes if shape[0] == n]
        experts = [e for _, e in these]
        right.plot(experts, cost(bench, LAYER, these, "median_seconds"), label=_tokens(n), **line_style(index))
    _finish(left, tokens)
    _finish(right, [e for n, e in shapes if n == few])
    times = cost(bench, LAYER, by_tokens, "median_seconds")
    awake = next(row["contest"] for row in bench["tables"]["sides"] if tuple(row["shape"]) == by_tokens[1])
    dearest = max(range(len(tokens)), key=times.__getitem__)
    title = f"{awake}: {times[1]:.1f} times the twin;\ndearest at {_tokens(tokens[dearest])}: {times[dearest]:.1f} times"
    label(left, title, "tokens at once", "times the dense twin's")
    ends = {n: cost(bench, LAYER, [s for s in shapes if s[0] == n], "median_seconds")[-1] for n in (few, many)}
    most = max(e for _, e in shapes)
    title = f"With {most} experts {ends[few]:.1f} times the twin at {_tokens(few)},\n{ends[many]:.1f} times at {_tokens(many)}"
    label(right, title, "experts, 2 a token")
    return fig


def _finish(axes: Axes, ticks: Sequence[int]) -> None:
    log_scale(axes, "x")
    log_scale(axes, "y")
    axes.set_xticks(list(ticks), [str(n) for n in ticks])
    axes.axhline(1, color=COLOURS[4], linestyle=":")
    axes.legend(frameon=False, fontsize=9)


def _name(side: str) -> str:
    return {LAYER: "the layer, time", ALL: "all experts, time"}[side]


def _tokens(n: int) -> str:
    return "1 token" if n == 1 else f"{n} tokens"
