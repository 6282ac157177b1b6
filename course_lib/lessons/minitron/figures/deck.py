"""Figures for deck 05: plots of scores of the default model, the worked example, published results."""

from functools import lru_cache

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.data.corpora import windows
from course_lib.lessons.common.results import load_published, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.minitron.figures import computed as figures
from course_lib.models import load_model
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.minitron import Minitron


@lru_cache(maxsize=1)
def _scores() -> Scores:
    """Of the default model, from the text that the notebook scores with."""
    model, tokenizer = load_model()
    calibration = windows("wikipedia", 8, 256, tokenizer, split="calibration", seed=0)
    evidence = Evidence(model, calibration, progress=False)
    return Minitron().score(evidence) | BlockInfluence().score(evidence)


def neurons() -> Figure:
    scores = _scores().neurons
    # 1126 of the default model's 1536; the same share of whatever model stands in its place
    return figures.share_of_the_lowest(scores, round(1126 / 1536 * scores.shape[1]))


def channels() -> Figure:
    return figures.channels(_scores().width, 576 - 504)


def turned() -> Figure:
    return figures.turned(_scores().blocks, 6)


# Two sequences of three tokens, two neurons: one is always a little active, one fires once.
EXAMPLE = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [1.0, 6.0]], [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]])


def aggregated(activations: Float[Tensor, "N T F"]) -> dict[str, list[float]]:
    """One score a neuron in the four ways: how the tokens of a sequence fold up, then the sequences."""
    inside = {"mean": activations.abs().mean(1), "L2": activations.norm(dim=1)}
    return {
        f"{token} over tokens,\n{batch} over sequences": (
            values.mean(0) if batch == "mean" else values.norm(dim=0)
        ).tolist()
        for token, values in inside.items()
        for batch in ("mean", "L2")
    }


def four_aggregations() -> Figure:
    """The worked example: in which of the four ways the neuron that fires once is ahead."""
    fig, (axes,) = figure(width=8.4, height=3.6)
    scores = aggregated(EXAMPLE)
    for neuron, name in enumerate(("always 1", "6 at one token of six, else 0")):
        places = [place + 0.36 * (neuron - 0.5) for place in range(len(scores))]
        heights = [values[neuron] for values in scores.values()]
        axes.bar(places, heights, 0.34, color=COLOURS[neuron], label=name, hatch="//" if neuron else None)
        for place, height in zip(places, heights, strict=True):
            axes.annotate(f"{height:.2f}", (place, height), ha="center", va="bottom", fontsize=10)
    axes.set_xticks(range(len(scores)), list(scores), fontsize=10)
    axes.legend(frameon=False)
    ahead = sum(second > first for first, second in scores.values())
    label(axes, f"In {ahead} of {len(scores)} ways the neuron that fires once is ahead", "", "score")
    return fig


def width_and_depth_published() -> Figure:
    """Llama-3.1 8B and its two cuts of 4.5B, after 94B tokens."""
    fig, (axes,) = figure(width=7.6, height=3.6)
    found = rows(load_published("minitron"), "width_and_depth")
    for index, (key, name) in enumerate({"whole": "8B, whole", "width": "4.5B, width", "depth": "4.5B, depth"}.items()):
        look = line_style(index) | {"linestyle": "none"}
        axes.plot(range(len(found)), [row[key] for row in found], label=name, markersize=9, **look)
    axes.set_xticks(range(len(found)), [row["benchmark"] for row in found])
    axes.set_xlim(-0.5, len(found) - 0.5)
    axes.set_ylim(0, 100)
    axes.legend(frameon=False, ncols=3, loc="upper left")
    gaps = [row["width"] - row["depth"] for row in found]
    label(axes, f"Published: width is {min(gaps):.1f} to {max(gaps):.1f} points ahead after 94B tokens", "", "per cent")
    return fig


def order_published() -> Figure:
    """MMLU of two candidates before and after a hundred iterations: their order changes."""
    fig, (axes,) = figure(width=7.0, height=3.6)
    for index, row in enumerate(rows(load_published("minitron"), "order")):
        values = (row["before"], row["after"])
        axes.plot((0, 1), values, label=row["method"], **line_style(index))
        for place, value in enumerate(values):
            beside = {"textcoords": "offset points", "xytext": (10 if place else -10, -3), "fontsize": 10}
            axes.annotate(f"{value:.1f}", (place, value), ha="left" if place else "right", **beside)
    axes.set_xticks((0, 1), ("cut", "after 100 iterations"))
    axes.set_xlim(-0.4, 1.4)
    axes.set_ylim(45, 80)
    axes.legend(frameon=False, loc="upper left")
    label(axes, "Published: what is ahead after the cut is behind after 100 iterations", "", "MMLU (%), Qwen3-8B")
    return fig
