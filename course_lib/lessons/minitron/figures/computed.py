"""The figures of lesson 05 from what the notebook computes. Each title says what the data show.

Dimension key: L blocks, F neurons, H query heads, G key-value groups, D width.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator
from torch import Tensor

from course_lib.lessons.common.dots import perplexities
from course_lib.lessons.common.results import load_bench, percent
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.measure.perplexity import Perplexity


def share_of_the_lowest(scores: Float[Tensor, "L F"], n_kept: int) -> Figure:
    """By block: the share of the scores, and of their squares, that the neurons which leave have."""
    fig, (axes,) = figure(width=7.2, height=3.2)
    shares = {}
    for index, (name, values) in enumerate({"scores": scores, "squared scores": scores.square()}.items()):
        ranked = values.sort(dim=1, descending=True).values
        shares[name] = 100 * ranked[:, n_kept:].sum(1) / ranked.sum(1)
        axes.plot(shares[name], markersize=4, label=f"of the {name}", **line_style(index))
    gone = 100 * (1 - n_kept / scores.shape[1])
    axes.axhline(gone, color=COLOURS[4], linestyle=":", label="if all neurons were alike")
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9)
    low, high = shares["scores"].min(), shares["scores"].max()
    title = f"The {gone:.0f} % of neurons that leave hold {low:.0f} to {high:.0f} % of a block's scores"
    label(axes, title, "block", "held by what leaves (%)")
    return fig


def turned(values: Float[Tensor, "L"], n_leaving: int) -> Figure:
    """How much each block turns the stream; those that turn it least are dark."""
    fig, (axes,) = figure(width=7.2, height=3.2)
    leaving = set(values.argsort()[:n_leaving].tolist())
    colours = [COLOURS[0] if block in leaving else COLOURS[4] for block in range(len(values))]
    axes.bar(range(len(values)), values, color=colours)
    axes.set_ylim(0, 0.3)
    axes.annotate(f"{values[0]:.2f}", (0, 0.29), xytext=(8, -2), textcoords="offset points", fontsize=9)
    first, last = min(leaving), max(leaving)
    where = f"blocks {first} to {last}" if last - first + 1 == n_leaving else f"{n_leaving} blocks"
    title = f"What turns the stream least: {where} (dark); the first block turns it most"
    label(axes, title, "block", "1 − cos(stream before, behind)")
    return fig


def channels(loudness: Float[Tensor, "D"], n_leaving: int) -> Figure:
    """The size of each width channel behind the norms, those that would leave dark."""
    fig, (axes,) = figure(width=7.2, height=3.0)
    leaving: Bool[Tensor, "D"] = torch.zeros(len(loudness), dtype=torch.bool)
    leaving[loudness.argsort()[:n_leaving]] = True
    places = torch.arange(len(loudness))
    for stay, name in ((True, "stays"), (False, "leaves")):
        chosen = ~leaving if stay else leaving
        look = line_style(0 if not stay else 1)
        axes.scatter(places[chosen], loudness[chosen], s=10, color=look["color"], marker=look["marker"], label=name)
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9, ncols=2)
    quiet, all_of_them = loudness[leaving].sum(), loudness.sum()
    title = (
        f"The {n_leaving} quietest of {len(loudness)} channels hold {percent(float(quiet / all_of_them))} of the scores"
    )
    label(axes, title, "width channel", "size behind the norms,\nsummed over all")
    return fig


def kept_alike(scores: Mapping[str, Float[Tensor, "L F"]], n_kept: int) -> Figure:
    """How many of the neurons that one score keeps another keeps too, block by block."""
    fig, (axes,) = figure(width=7.2, height=3.2)
    kept = {name: _kept(values, n_kept) for name, values in scores.items()}
    first, *others = kept
    shares = {}
    for index, name in enumerate(others):
        shares[name] = 100 * (kept[first] & kept[name]).sum(1) / n_kept
        axes.plot(shares[name], markersize=4, label=name, **line_style(index))
    chance = 100 * n_kept / next(iter(scores.values())).shape[1]
    axes.axhline(chance, color=COLOURS[4], linestyle=":", label="two random choices")
    axes.set_ylim(min(chance, *(values.min() for values in shares.values())) - 3, 101)
    axes.legend(frameon=False, fontsize=9, ncols=3)
    mean = ", ".join(f"{name} {values.mean():.0f} %" for name, values in shares.items())
    label(axes, f"Of the neurons that {first} keep, others keep:\n{mean}", "block", "kept by both (%)")
    return fig


def _kept(scores: Float[Tensor, "L F"], n_kept: int) -> Bool[Tensor, "L F"]:
    best = scores.topk(n_kept, dim=1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, best, True)


def learning(curves: Mapping[str, Sequence[tuple[int, Float[Tensor, "N"]]]], teacher: Float[Tensor, "N"]) -> Figure:
    """Loss on held-out windows over steps: the students that were cut, and all of them."""
    means = {name: [(step, losses.mean().item()) for step, losses in points] for name, points in curves.items()}
    fig, panels = figure(n_columns=2, width=4.9, height=3.4)
    goal = teacher.mean().item()
    for axes, near in zip(panels, (True, False), strict=True):
        for index, (name, points) in enumerate(means.items()):
            if not near or points[0][1] < 1.5 * goal:
                axes.plot(*zip(*points, strict=True), label=name, **line_style(index))
        axes.axhline(goal, color=COLOURS[4], linestyle=":", label="the teacher")
    panels[1].legend(frameon=False, fontsize=9)
    worst = max(points[-1][1] for points in means.values())
    nearest = min(points[0][1] for points in means.values())
    title = f"Cut: {nearest - goal:.2f} nats above the teacher before any step"
    label(panels[0], title, "steps", "held-out loss (nats a byte)")
    label(panels[1], f"From scratch: {worst:.2f} nats after {next(iter(means.values()))[-1][0]} steps", "steps")
    return fig


def cuts(results: Mapping[str, Perplexity], title: str) -> Figure:
    """Perplexities of several models on a scale that may span many powers of ten."""
    values = {name: (result.value, result.standard_error) for name, result in results.items()}
    fig = perplexities(values, title, n=min(len(result.losses) for result in results.values()))
    (axes,) = fig.axes
    low, high = axes.get_xlim()
    if high > 1000 * low:
        axes.xaxis.set_major_locator(LogLocator(numticks=6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    return fig


NAMES = {"bytes": "bytes", "flops": "FLOP"}


def speeds(bench: dict[str, Any] | None = None) -> Figure:
    """How many times faster each cut is, beside what its bytes (decode) or FLOP (a prompt) predict."""
    bench = bench or load_bench("cpu_structured")
    sides = bench["tables"]["sides"]
    contests = list(dict.fromkeys(row["contest"] for row in sides))
    fig, panels = figure(n_columns=len(contests), width=3.7, height=3.4)
    near, shown = [], line_style(0) | {"linestyle": "none"}
    for axes, contest in zip(panels, contests, strict=True):
        dense, *cut = [row for row in sides if row["contest"] == contest]
        counted = "flops" if contest.startswith("a prompt") else "bytes"
        predicted = [dense[counted] / row[counted] for row in cut]
        measured = [row["times_anchor"] for row in cut]
        reach = [
            [row["times_anchor"] - row["times_anchor_low"], row["times_anchor_high"] - row["times_anchor"]]
            for row in cut
        ]
        axes.errorbar(
            range(len(cut)), measured, yerr=list(zip(*reach, strict=True)), capsize=3, label="measured", **shown
        )
        axes.plot(
            range(len(cut)), predicted, "_", markersize=22, color=COLOURS[1], label=f"predicted by {NAMES[counted]}"
        )
        axes.axhline(1, color=COLOURS[4], linestyle=":")
        axes.set_xticks(range(len(cut)), [row["side"].replace(" ", "\n") for row in cut])
        axes.set_xlim(-0.5, len(cut) - 0.5)
        axes.set_ylim(0.9, 1.8)
        axes.legend(frameon=False, fontsize=9, loc="upper left")
        axes.set_title(contest.split(" at ")[0].replace("8 steps of 1", "decode, 1 sequence"), loc="left", fontsize=11)
        near += [abs(times / goal - 1) <= 0.1 for times, goal in zip(measured, predicted, strict=True)]
    panels[1].set_title("decode, 8 sequences", loc="left", fontsize=11)
    panels[0].set_ylabel("times the dense model's speed")
    fig.suptitle(
        f"Within 10 % of what bytes or FLOP predict: {sum(near)} of {len(near)}", x=0.01, ha="left", fontsize=12
    )
    return fig
