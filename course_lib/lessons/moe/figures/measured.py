"""Figures of what `course reproduce moe` and `moe_classic` measured."""

from statistics import fmean

from matplotlib.figure import Figure

from course_lib.lessons.common.results import Measured, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale


def largest_loads(measured: Measured, names: tuple[str, ...]) -> Figure:
    """By step: the share that the busiest expert of a block has, mean over blocks and seeds."""
    fig, (axes,) = figure(width=7.0, height=3.4)
    ends = {}
    for index, name in enumerate(names):
        found = rows(measured, "loads", model=name)
        steps = sorted({row["step"] for row in found})
        means = [100 * fmean(max(row["load"]) for row in found if row["step"] == step) for step in steps]
        axes.plot(steps, means, label=name, **line_style(index))
        ends[name] = means[-1]
        equal = 100 / len(found[0]["load"])
    axes.axhline(equal, color=COLOURS[4], linestyle=":", label="an equal share")
    log_scale(axes, "x")
    axes.set_ylim(0, 103)
    axes.legend(frameon=False, fontsize=9)
    said = ", ".join(f"{name} {end:.0f} %" for name, end in ends.items())
    label(axes, f"The busiest expert of a block has at last:\n{said}", "step", "share of all choices (%)")
    return fig


def recurrent(measured: Measured) -> Figure:
    """Experts between two LSTMs: the loss while they learn, and what share each expert has at the end."""
    fig, (left, right) = figure(n_columns=2, width=5.0, height=3.4)
    names = list(dict.fromkeys(row["model"] for row in rows(measured, "recurrent")))
    largest = {}
    for index, name in enumerate(names):
        found = rows(measured, "recurrent", model=name)
        curve = [fmean(at_once) for at_once in zip(*(row["curve"] for row in found), strict=True)]
        steps = [found[0]["every"] * (place + 1) for place in range(len(curve))]
        left.plot(steps, curve, label=name, **line_style(index))
        if found[0]["load"]:
            by_rank = [fmean(at_once) for at_once in zip(*(sorted(row["load"])[::-1] for row in found), strict=True)]
            right.plot(range(1, len(by_rank) + 1), [100 * share for share in by_rank], label=name, **line_style(index))
            largest[name] = 100 * by_rank[0]
    ends = ", ".join(f"{fmean(row['loss'] for row in rows(measured, 'recurrent', model=name)):.3f}" for name in names)
    label(left, f"On unseen bytes in the end: {ends} nats", "step", "nats a byte in training")
    left.legend(frameon=False, fontsize=9)
    right.axhline(100 / len(by_rank), color=COLOURS[4], linestyle=":", label="an equal share")
    right.set_ylim(0)
    right.legend(frameon=False, fontsize=9)
    said = " and ".join(f"{share:.0f} %" for share in largest.values())
    label(right, f"The busiest expert has {said} of all choices", "expert, by rank of its load", "share (%)")
    return fig
