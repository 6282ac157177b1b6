"""The figures of sink_pretraining.json: small models trained with and without a sink, and streamed.

Made by `course reproduce sink_pretraining`.
"""

from math import exp
from statistics import fmean, stdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.dots import error_bars, side_by_side
from course_lib.lessons.common.results import load_measured, load_published, rows
from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label, line_style
from course_lib.lessons.sinks import claims
from course_lib.lessons.sinks.estimates import VARIANTS, losses_by_sinks


def results() -> dict[str, Any]:
    """The committed measurement."""
    return load_measured("sinks", "sink_pretraining")


def cost(measured: dict[str, Any], variant: str, sinks: int, compared_to: int | None = None) -> tuple[float, float]:
    """By how many percent perplexity is above that with the most sinks, or another number, and its standard error.

    Documents are compared in pairs, so that how hard they are drops out.
    """
    losses = losses_by_sinks(measured, variant)
    return _dearer(losses[sinks], losses[max(losses) if compared_to is None else compared_to])


def cost_at(measured: dict[str, Any], rate: float) -> tuple[float, float]:
    """The same for a model trained at some rate, which loses its one sink."""
    losses = {row["sinks"]: row["losses"] for row in rows(measured, "rate_streaming", rate=rate)}
    return _dearer(losses[0], losses[1])


def _dearer(losses: list[float], others: list[float]) -> tuple[float, float]:
    more = [a - b for a, b in zip(losses, others, strict=True)]
    return 100 * (exp(fmean(more)) - 1), 100 * exp(fmean(more)) * stdev(more) / len(more) ** 0.5


def beside_the_paper(measured: dict[str, Any]) -> Figure:
    """Perplexity by model and first slots kept: the paper's on the left, ours with two standard errors on the right."""
    fig, (left, right) = figure(2, width=4.9, height=3.6)
    published = {(row["variant"], row["sinks"]): row for row in load_published("sinks")["tables"]["pretraining"]}
    theirs = {
        f"{sinks} kept": [(published[variant, sinks]["perplexity"], 0.0) for variant in VARIANTS]
        for sinks in _caches(measured)
    }
    side_by_side(left, VARIANTS, theirs)
    left.legend(frameon=False, fontsize=8, title="first slots", title_fontsize=8)
    label(left, "Published: 160 million parameters\n(tokens; errors not given)", "", "perplexity (log scale)")
    label(right, f"Here (bytes; {_bars(measured)}),\n{_ours(right, measured)}")
    for panel in (left, right):
        panel.tick_params(axis="x", labelsize=9)
    return fig


def by_first_slots(measured: dict[str, Any] | None = None) -> Figure:
    """Ours alone, where the paper's numbers stand beside the figure."""
    measured = measured or results()
    fig, (axes,) = figure(width=9.6, height=3.0)
    finding = _ours(axes, measured)
    axes.legend(frameon=False, fontsize=9, title="first slots", title_fontsize=9, loc="upper left")
    label(axes, f"Here (bytes; {_bars(measured)}), {finding}", "", "perplexity (log scale)")
    return fig


def _ours(axes: Axes, measured: dict[str, Any]) -> str:
    """Dots by model and first slots kept; what a model loses that keeps none, in words."""
    ours = {
        f"{sinks} kept": [
            (cell["perplexity"], cell["standard_error"])
            for variant in VARIANTS
            for cell in rows(measured, "streaming", variant=variant, sinks=sinks)
        ]
        for sinks in _caches(measured)
    }
    side_by_side(axes, VARIANTS, ours)
    increases = ", ".join(f"{cost(measured, variant, 0)[0]:+.0f} %" for variant in VARIANTS)
    return f"none kept instead of {max(_caches(measured))}: {increases}"


def _bars(measured: dict[str, Any]) -> str:
    return error_bars(min(len(row["losses"]) for row in rows(measured, "streaming")))


def _caches(measured: dict[str, Any]) -> list[int]:
    return sorted({row["sinks"] for row in rows(measured, "streaming")})


def first_slot_by_layer(measured: dict[str, Any]) -> Figure:
    """Where attention goes: the first slot's share in each layer, heads as dots, their mean as a line."""
    fig, (axes,) = figure(width=7.2)
    highest = {}
    for index, variant in enumerate(VARIANTS):
        head_rows = rows(measured, "attention", variant=variant)
        layers = sorted({row["layer"] for row in head_rows})
        heads = [[100 * r["slots"][0] for r in head_rows if r["layer"] == layer] for layer in layers]
        shift = 0.12 * (index - 1)
        for layer, shares in zip(layers, heads, strict=True):
            hollow = {"facecolors": "none", "edgecolors": COLOURS[index], "marker": MARKERS[index]}
            axes.scatter([layer + shift] * len(shares), shares, s=22, **hollow)
        means = [fmean(shares) for shares in heads]
        filled = line_style(index) | {"linestyle": "none"}
        axes.plot([layer + shift for layer in layers], means, label=variant, **filled)
        highest[variant] = max(means)
        if variant == "zero sink":
            nowhere = [[100 * r["nowhere"] for r in head_rows if r["layer"] == layer] for layer in layers]
            for layer, shares in zip(layers, nowhere, strict=True):
                hollow = {"facecolors": "none", "edgecolors": COLOURS[3], "marker": MARKERS[3]}
                axes.scatter([layer + 0.24] * len(shares), shares, s=22, **hollow)
            filled = line_style(3) | {"linestyle": "none"}
            lost = [fmean(shares) for shares in nowhere]
            axes.plot([layer + 0.24 for layer in layers], lost, label="zero sink: read by no slot", **filled)
    even = 100 * measured["tables"]["attention"][0]["even"]
    axes.axhline(even, color=COLOURS[4], linestyle=":", label=f"a fair share, {even:.1f} %")
    axes.set_xticks(layers)
    axes.legend(frameon=False, fontsize=8)
    multiples = ", ".join(f"{variant} {share / even:.1f}" for variant, share in highest.items())
    title = f"The first slot's attention, highest layer, in fair shares:\n{multiples}"
    label(axes, title, "layer (hollow: a head, filled: their mean)", "share of attention (%)")
    return fig


def rates(measured: dict[str, Any] | None = None) -> Figure:
    """A learnable sink at several learning rates: when it is read, and how well the model reads meanwhile."""
    measured = measured or results()
    fig, (left, right) = figure(2, width=4.8)
    shares, costs, ends = [], [], []
    for index, rate in enumerate(sorted({row["rate"] for row in measured["tables"]["rates"]})):
        seen = rows(measured, "rates", rate=rate)
        steps, of_sink = [row["step"] for row in seen], [100 * max(row["first_slot"]) for row in seen]
        left.plot(steps, of_sink, label=f"rate {rate:g}", **line_style(index))
        right.plot(steps, [row["evaluation_loss"] for row in seen], label=f"rate {rate:g}", **line_style(index))
        shares.append(f"{of_sink[-1]:.0f} % at {rate:g}")
        ends.append(f"{seen[-1]['evaluation_loss']:.2f} at {rate:g}")
        costs.append(f"{round(cost_at(measured, rate)[0]):+d} %")
    left.legend(frameon=False)
    label(
        left,
        "In the end the learned token gets\n" + ", ".join(shares),
        "step",
        "share of attention,\nhighest layer (%)",
    )
    title = f"Loss {', '.join(ends)};\nperplexity without its sink: {', '.join(costs)}"
    label(right, title, "step", "nats a byte, nothing evicted")
    right.legend(frameon=False)
    return fig


def register_norms(measured: dict[str, Any] | None = None) -> Figure:
    """Norms of patch tokens of a small vision transformer, as multiples of the layer's median."""
    measured = measured or results()
    fig, (axes,) = figure(width=7.2)
    norms = measured["tables"]["registers"]
    layers, largest = sorted({row["layer"] for row in norms}), {}
    for index, n in enumerate(sorted({row["registers"] for row in norms})):
        for key, name in (("largest", "largest"), ("q99", "99th percentile")):
            means = []
            for layer in layers:
                ratios = [row[key] / row["median"] for row in norms if (row["registers"], row["layer"]) == (n, layer)]
                means.append(fmean(ratios))
            style = line_style(index) | {"linestyle": "-" if key == "largest" else ":"}
            axes.plot(layers, means, label=f"{n} registers, {name}", **style)
            largest.setdefault(n, max(means))
    axes.set_ylim(1, None)
    axes.set_xticks(layers)
    axes.legend(frameon=False, fontsize=8, ncols=2)
    peaks = ", ".join(f"{ratio:.1f} with {n}" for n, ratio in largest.items())
    n_trained = len({row["seed"] for row in norms})
    title = f"Largest patch norm over the median, mean of {n_trained} trainings:\n{peaks} registers"
    label(axes, title, "layer", "norm / median of the layer")
    return fig


def pretraining_verdict(measured: dict[str, Any]) -> str:
    """The paper's three claims on models trained with a sink, document by document."""
    return report(claims.TRAINED_CLAIMS, measured)


def registers_verdict(measured: dict[str, Any]) -> str:
    """Whether patches stand out without registers, and whether registers take that over."""
    return report([claims.REGISTERS], measured)
