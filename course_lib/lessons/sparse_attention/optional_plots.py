"""The figures of the optional sections of lesson 11: DeltaLLM, AutoPASTA and VFlowOpt.

A figure's title is its finding, computed from the data. Without arguments a figure shows the stored results.

Dimension key: T tokens, D channels, N visual tokens.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.attention.delta.code import delta_code
from course_lib.attention.steering.steer import steered as lowered_logits
from course_lib.attention.visual.canvas import CLUTTER, PATCH, Canvases
from course_lib.attention.visual.canvas import NOTHING as EMPTY
from course_lib.attention.visual.model import GRID
from course_lib.lessons.common.dots import ERROR_BARS, SHARE_BARS, share_reach
from course_lib.lessons.common.effects import Row, accuracy_gap
from course_lib.lessons.common.results import Measured, percent, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.sparse_attention.estimates import delta, steering, visual
from course_lib.lessons.sparse_attention.estimates.rows import results
from course_lib.lessons.sparse_attention.experiments.items import RESIDENTS
from course_lib.lessons.sparse_attention.experiments.steering import NO_HEADS, NOTHING, PROMPTED, TRUE
from course_lib.lessons.sparse_attention.experiments.visual_tokens import ALL, ALONE, METHOD, RANDOM, TOLD
from course_lib.lessons.sparse_attention.tables import VISUAL_NAMES

FAR = 0.5  # nats per token: a larger cost is drawn here, with its number next to it


# DeltaLLM


def walk() -> Figure:
    """Plot a channel that drifts in small steps, and what two rules reconstruct of it."""
    _, (axes,) = figure(width=8.0, height=3.0)
    generator = torch.Generator().manual_seed(3)
    keys = (0.12 + 0.25 * torch.randn(40, generator=generator)).cumsum(dim=0)[:, None]
    theta = 0.6
    last_sent = delta_code(keys, theta).keys[:, 0]
    steps = keys[:, 0].diff()
    drifted = keys[0, 0] + torch.cat([torch.zeros(1), torch.where(steps.abs() >= theta, steps, 0.0).cumsum(dim=0)])
    place = torch.arange(len(keys))
    axes.fill_between(place, keys[:, 0] - theta, keys[:, 0] + theta, color="#dfe3e8", label="within θ of the key")
    axes.plot(place, keys[:, 0], color="black", linewidth=1, label="key")
    axes.step(place, last_sent, where="post", color=COLOURS[0], linewidth=2, label="rule A")
    axes.step(place, drifted, where="post", color=COLOURS[1], linestyle="--", linewidth=2, label="rule B")
    axes.legend(frameon=False, fontsize=9.5, ncols=2, loc="upper left")
    largest = [float((each - keys[:, 0]).abs().max()) for each in (last_sent, drifted)]
    title = f"θ = {theta}: the largest error of rule A is {largest[0]:.2f}, that of rule B {largest[1]:.1f}"
    return label(axes, title, "token", "one channel of the key").figure


def sent(code: Bool[Tensor, "T D"], name: str) -> Figure:
    """Plot which channels of the keys are sent, token by token."""
    _, (axes,) = figure(width=8.6, height=2.8)
    axes.imshow(code.T, cmap="Greys", vmin=0, vmax=1.3, aspect="auto", interpolation="nearest")
    axes.grid(visible=False)
    often = code.float().mean(dim=0)
    title = f"{name}: {percent(1 - float(often.mean()))} of the values are not sent (white);\n"
    title += f"by channel {percent(1 - float(often.max()))} to {percent(1 - float(often.min()))}"
    return label(axes, title, "token", "channel of the key").figure


def over_threshold(measured: Measured | None = None) -> Figure:
    """Plot what each threshold leaves out, and what that costs."""
    measured = measured or results("delta")
    fig, (left, right) = figure(n_columns=2, width=5.0, height=3.6)
    main = sorted(delta.main(measured), key=lambda row: row["theta"])
    thetas = [row["theta"] for row in main]
    for index, (name, curve) in enumerate({"zeros": "values not sent", "sparsity": "products left out"}.items()):
        left.plot(thetas, [100 * row[name] for row in main], label=curve, **line_style(index))
    left.set_ylim(0, 100)
    sizes = measured["sizes"]
    series = {
        f"window {sizes['window']}, exact sinks": main,
        "no window": rows(measured, "read", window=1, side="after"),
        "sinks coded": rows(measured, "read", sinks=0, side="after"),
    }
    for index, (name, found) in enumerate(series.items()):
        _costs(right, measured, sorted(found, key=lambda row: row["theta"]), name, index)
    right.axhline(0, color="black", linewidth=0.8)
    right.set_ylim(top=FAR * 1.08)
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=9, loc="upper left")
    most = main[-1]
    label(
        left, f"θ = {most['theta']:g} leaves out {100 * most['sparsity']:.0f} % of QKᵀ", "θ (standard deviations)", "%"
    )
    label(
        right, _ends(measured, main), "products of QKᵀ left out (%)", f"loss increase (nats per token;\n{ERROR_BARS})"
    )
    return fig


def _costs(axes: Axes, measured: Measured, found: list[Row], name: str, index: int) -> None:
    places = [100 * row["sparsity"] for row in found]
    effects = [delta.above(measured, row) for row in found]
    heights = [min(effect.value, FAR) for effect in effects]
    bars = [ERRORS * effect.error if effect.value < FAR else 0 for effect in effects]
    axes.errorbar(places, heights, bars, capsize=3, label=name, **line_style(index))
    for place, effect in zip(places, effects, strict=True):
        if effect.value >= FAR:
            text_place = {
                "xytext": (-7, 0),
                "textcoords": "offset points",
                "ha": "right",
                "va": "center",
                "fontsize": 9,
            }
            axes.annotate(f"{effect.value:+.2f}, beyond the axis", (place, FAR), **text_place)


def _ends(measured: Measured, main: list[Row]) -> str:
    """Name the cost at the smallest and at the largest threshold."""
    ends = [f"{100 * (delta.ratio(measured, row) - 1):+.1f} % at θ = {row['theta']:g}" for row in (main[0], main[-1])]
    return f"Perplexity {ends[0]}, {ends[1]}"


# AutoPASTA


def steered_weights() -> Figure:
    """Plot the attention of one made-up query before and after steering to two highlighted tokens."""
    fig, (axes,) = figure(width=8.0, height=2.8)
    logits = torch.tensor([3.0, 0.5, 1.2, 0.9, 1.0, 0.3, 0.8, 1.1])
    low = torch.tensor([False, True, True, False, False, True, True, True])
    both = {"before": logits.softmax(0), "steered": lowered_logits(logits[None], low[None], 0.01)[0].softmax(0)}
    for index, ((name, weights), hatch) in enumerate(zip(both.items(), ("//", ""), strict=True)):
        places = torch.arange(8) + 0.2 * (2 * index - 1)
        axes.bar(places, weights, 0.38, color=COLOURS[4 - 4 * index], hatch=hatch, edgecolor="white", label=name)
    names = ["first"] + ["highlighted" if not each else f"token {i}" for i, each in enumerate(low.tolist()) if i]
    axes.set_xticks(range(8), names, fontsize=9)
    axes.legend(frameon=False, fontsize=9.5)
    before, after = (float(each[3:5].sum()) for each in both.values())
    title = f"α = 0.01: the attention to two highlighted tokens rises from {percent(before)} to {percent(after)}"
    label(axes, title, "key", "weight")
    return fig


def cities(found: Mapping[str, Mapping[str, float]], answer: str) -> Figure:
    """Plot the probability of the right city and of the likeliest wrong one, for each way to steer."""
    fig, (axes,) = figure(width=7.6, height=0.9 + 0.5 * len(found))
    for place, each in enumerate(reversed(found.values())):
        wrong = max(value for city, value in each.items() if city != answer)
        for shift, value, colour, hatch, who in (
            (0.18, each[answer], 0, "", "right"),
            (-0.18, wrong, 4, "//", "wrong"),
        ):
            name = f"the {who} city" if who == "right" else "the likeliest wrong one"
            axes.barh(
                place + shift, value, 0.34, color=COLOURS[colour], hatch=hatch, edgecolor="white",
                label=name if not place else None,
            )  # fmt: skip
            axes.text(value + 0.01, place + shift, f"{value:.2f}", va="center", fontsize=9)
    axes.set_yticks(range(len(found)), list(found)[::-1])
    axes.set_xlim(0, 1.1)
    axes.legend(frameon=False, fontsize=9.5)
    best = max(found, key=lambda name: found[name][answer])
    title = f"The right city, {answer}, is likeliest with “{best}”: {found[best][answer]:.2f}"
    label(axes, title, "probability among the cities")
    return fig


def answers(
    measured: Measured | None = None, data: str = RESIDENTS, only: list[steering.Condition] | None = None
) -> Figure:
    """Plot the right answers of each condition, or of some, with intervals; chance as a line."""
    measured = measured or results("steering")
    every = rows(measured, "answers", data=data)
    found = [row for row in every if only is None or (row["heads"], row["steered"]) in only]
    fig, (axes,) = figure(width=8.2, height=0.32 * len(found) + 1.2)
    for place, row in enumerate(found):
        below, above = share_reach(row["right"].count("1"), row["n"])
        colour = COLOURS[3] if row["steered"] == TRUE else COLOURS[4]
        axes.barh(-place, 100 * row["accuracy"], 0.7, color=colour, edgecolor="black", linewidth=0.6)
        axes.errorbar(100 * row["accuracy"], -place, xerr=[[below], [above]], color="black", capsize=2.5, linewidth=1)
    axes.axvline(100 * found[0]["chance"], color="black", linestyle=":", linewidth=1)
    axes.set_yticks([-place for place in range(len(found))], [_name(row) for row in found], fontsize=9)
    axes.set_xlim(0, 102)
    plain = steering.condition(measured, data, NO_HEADS, NOTHING)
    better = [row for row in found if row is not plain and accuracy_gap(row, plain).holds]
    keys = sum(row["steered"] == TRUE for row in better)
    title = f"{data}: {len(better)} of {len(found) - 1} conditions are clearly better than no steering,\n"
    title += f"{keys} of them with the true key sentence"
    fig.suptitle(title, x=0.01, ha="left", fontsize=11)
    label(axes, "", f"right answers (%; {SHARE_BARS})\ndotted: chance; yellow: the true key sentence")
    return fig


def _name(row: dict) -> str:
    """Describe the condition."""
    if row["heads"] == NO_HEADS:
        return "no steering"
    if row["heads"] == PROMPTED:
        return f"prompt names the {row['steered']} sentence, no steering"
    what = row["steered"] if row["steered"] == "whole context" else f"{row['steered']} sentence"
    return f"{what}, heads: {row['heads']}"


# VFlowOpt


def patches(canvas: Canvases, kept: Mapping[str, tuple[Float[Tensor, "N"], Bool[Tensor, "N"], Tensor]]) -> Figure:
    """Plot the canvas, the importance of its patches, which are kept, and where fused tokens are placed."""
    fig, panels = figure(n_columns=1 + len(kept), width=3.3, height=3.5)
    belongs = canvas.belongs[0]
    n_digits, n_clutter = int((belongs < EMPTY).sum()), int((belongs == CLUTTER).sum())
    extent = (0, GRID * PATCH, GRID * PATCH, 0)
    panels[0].imshow(canvas.images[0], cmap="Greys", vmin=0, vmax=255, extent=extent)
    label(panels[0], f"{n_digits} of {GRID**2} patches\nshow digits, {n_clutter} clutter")
    for axes, (name, (importance, keep, place)) in zip(panels[1:], kept.items(), strict=True):
        axes.imshow(importance.view(GRID, GRID), cmap="Greys", extent=extent)
        for marker, tokens, size in (("s", keep.nonzero()[:, 0], 60.0), ("o", place, 40.0)):
            x, y = (tokens % GRID + 0.5) * PATCH, (tokens // GRID + 0.5) * PATCH
            axes.scatter(x, y, s=size, marker=marker, facecolors="none", edgecolors="#c8553d", linewidths=1.2)
        n_kept = int((keep & (belongs < EMPTY)).sum())
        title = f"{name}: {int(keep.sum())} kept,\n{n_kept} of {n_digits} with digits; {len(place)} fused"
        label(axes, title, "square: kept; ring: fused")
    for axes in panels:
        axes.grid(visible=False)
        axes.set_xticks([])
        axes.set_yticks([])
    return fig


def accuracy_over_share(measured: Measured | None = None) -> Figure:
    """Plot accuracy by the fraction of the tokens that the layers read: VFlowOpt, each score alone, two controls."""
    measured = measured or results("visual_tokens")
    columns, whole = visual.shares(measured), visual.dense(measured)
    fig, (axes,) = figure(width=7.4, height=4.2)
    axes.axhline(100 * whole["accuracy"], color="0.5", linewidth=1, linestyle=":")
    axes.annotate(ALL, (100 * min(columns), 100 * whole["accuracy"]), (0, 4), textcoords="offset points", fontsize=9)
    for index, method in enumerate((METHOD, *ALONE, RANDOM, TOLD)):
        right = [sum(visual.questions(visual.at(measured, method, share))) for share in columns]
        heights = [100 * each / whole["n"] for each in right]
        errors = list(zip(*(share_reach(each, whole["n"]) for each in right), strict=True))
        places = [100 * share for share in columns]
        axes.errorbar(places, heights, errors, capsize=3, label=VISUAL_NAMES.get(method, method), **line_style(index))
    least = min(columns)
    own, blind = (sum(visual.questions(visual.at(measured, m, least))) / whole["n"] for m in (METHOD, RANDOM))
    title = f"With {100 * least:.0f} % of the tokens VFlowOpt answers {100 * own:.0f} % correctly,\n"
    title += f"random tokens {100 * blind:.0f} %, all tokens {100 * whole['accuracy']:.0f} %"
    label(axes, title, "visual tokens read, mean over layers (%)", f"right answers (%)\n({SHARE_BARS})")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    return fig
