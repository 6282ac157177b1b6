"""Figures that only deck 05 shows: drawings, a worked example, published results, and four lessons in one picture."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.data.corpora import windows
from course_lib.lessons.common.results import load_bench, load_measured, load_published, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.minitron import plots, results
from course_lib.lessons.minitron.plots import NEURONS, WIDTH
from course_lib.lessons.minitron.results import Measured
from course_lib.lessons.minitron.tables import HEAD_SIZE, VOCABULARY
from course_lib.models import load_model
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.shape import Shape, count


def before_and_after() -> Figure:
    """Draw the MLP of a block: dense, half zeros, and structurally pruned."""
    fig, panels = figure(n_columns=3, width=2.6, height=3.4)
    for axes, name in zip(panels, ("dense", "half zeros", "pruned"), strict=True):
        height = NEURONS / 2 if name == "pruned" else NEURONS
        axes.add_patch(Rectangle((0, 0), WIDTH, height, facecolor=COLOURS[0]))
        if name == "half zeros":
            zeros = torch.rand(64, 24, generator=torch.Generator().manual_seed(0)) < 0.5
            look = {"cmap": ListedColormap([COLOURS[0], "white"]), "interpolation": "nearest", "aspect": "auto"}
            axes.imshow(zeros, extent=(0, WIDTH, NEURONS, 0), zorder=2, **look)
        axes.add_patch(Rectangle((0, 0), WIDTH, height, fill=False, edgecolor=COLOURS[0], linewidth=1.5))
        axes.set(xlim=(-0.2, WIDTH + 0.2), ylim=(NEURONS + 0.2, -0.2))
        axes.set_title(name, fontsize=13)
        axes.axis("off")
    return fig


def width_and_depth() -> Figure:
    """Draw the dense model and two models with equal parameters: fewer neurons, fewer blocks."""
    fig, panels = figure(n_columns=3, width=3.2, height=3.9)
    shapes = {"dense: 30 blocks": (30, 1.0), "fewer neurons": (30, 1126 / 1536), "fewer blocks": (24, 1.0)}
    for axes, (name, (n_blocks, wide)) in zip(panels, shapes.items(), strict=True):
        for number in range(n_blocks):
            axes.add_patch(Rectangle((0, number), 2.4, 0.72, facecolor=COLOURS[4]))
            axes.add_patch(Rectangle((2.6, number), 6.4 * wide, 0.72, facecolor=COLOURS[0]))
        axes.set(xlim=(-0.2, 9.2), ylim=(-0.5, 30.5))
        axes.set_title(name, loc="left", fontsize=13)
        axes.axis("off")
    panels[0].text(0, -0.6, "attention", fontsize=10, va="top", color=COLOURS[4])
    panels[0].text(2.6, -0.6, "MLP", fontsize=10, va="top", color=COLOURS[0])
    return fig


@lru_cache(maxsize=1)
def _scores() -> Scores:
    """Score the default model on the calibration set of the notebook."""
    model, tokenizer = load_model()
    calibration = windows("wikipedia", 8, 256, tokenizer, split="calibration", seed=0)
    evidence = Evidence(model, calibration, progress=False)
    return Minitron().score(evidence) | BlockInfluence().score(evidence)


def neurons() -> Figure:
    scores = _scores().neurons
    # 1126 of the default model's 1536; the same fraction of another model
    return plots.pruned_scores(scores, round(1126 / 1536 * scores.shape[1]))


def channels() -> Figure:
    return plots.channels(_scores().width, 576 - 504)


def block_influence() -> Figure:
    return plots.block_influence(_scores().blocks, 6)


# Two windows of three tokens, two neurons: one is always a little active, one is active at a single token.
EXAMPLE = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [1.0, 6.0]], [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]])


def aggregated(activations: Float[Tensor, "N T F"]) -> dict[str, list[float]]:
    """Aggregate in four ways: over the tokens of a window, then over windows. Returns a score per neuron."""
    inside = {"mean": activations.abs().mean(1), "L2": activations.norm(dim=1)}
    return {
        f"{token} over tokens,\n{batch} over windows": (
            values.mean(0) if batch == "mean" else values.norm(dim=0)
        ).tolist()
        for token, values in inside.items()
        for batch in ("mean", "L2")
    }


def four_aggregations() -> Figure:
    """Plot the worked example: in how many of the four ways does the neuron that is active once score higher?"""
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
    label(axes, f"The neuron that is active once scores higher in {ahead} of {len(scores)} ways", "", "score")
    return fig


def width_and_depth_published() -> Figure:
    """Plot published scores of Llama-3.1 8B and two pruned models with 4.5B parameters, after 94B tokens."""
    fig, (axes,) = figure(width=7.6, height=3.6)
    published = rows(load_published("minitron"), "width_and_depth")
    for index, (key, name) in enumerate({"whole": "8B, dense", "width": "4.5B, width", "depth": "4.5B, depth"}.items()):
        look = line_style(index) | {"linestyle": "none"}
        axes.plot(range(len(published)), [row[key] for row in published], label=name, markersize=9, **look)
    axes.set_xticks(range(len(published)), [row["benchmark"] for row in published])
    axes.set_xlim(-0.5, len(published) - 0.5)
    axes.set_ylim(0, 100)
    axes.legend(frameon=False, ncols=3, loc="upper left")
    gaps = [row["width"] - row["depth"] for row in published]
    label(
        axes, f"Published: width is {min(gaps):.1f} to {max(gaps):.1f} points better after 94B tokens", "", "score (%)"
    )
    return fig


def order_published() -> Figure:
    """Plot published MMLU of two candidates before and after 100 iterations: their order changes."""
    fig, (axes,) = figure(width=7.0, height=3.6)
    for index, row in enumerate(rows(load_published("minitron"), "order")):
        values = (row["before"], row["after"])
        axes.plot((0, 1), values, label=row["method"], **line_style(index))
        for place, value in enumerate(values):
            look = {"textcoords": "offset points", "xytext": (10 if place else -10, -3), "fontsize": 10}
            axes.annotate(f"{value:.1f}", (place, value), ha="left" if place else "right", **look)
    axes.set_xticks((0, 1), ("right after pruning", "after 100 iterations"))
    axes.set_xlim(-0.4, 1.4)
    axes.set_ylim(45, 80)
    axes.legend(frameon=False, loc="upper left")
    label(
        axes,
        "Published: the better candidate after pruning is the worse one after 100 iterations",
        "",
        "MMLU (%), Qwen3-8B",
    )
    return fig


# Of a 16-bit matrix with half zeros: half of the values, and one bit per weight (bitmap) or two bits per kept value
# (2:4). Lesson 01 counts both.
STORED = 0.5 + 1 / 16
SMOLLM2 = Shape(width=576, blocks=30, neurons=1536, heads=9, groups=3)


@dataclass(frozen=True)
class Point:
    """A model: its perplexity, bytes and decoding speed relative to the dense model."""

    family: str
    name: str  # within the family
    perplexity: float
    bytes: float
    speed: float


def zeros() -> list[Point]:
    """Return models with half zeros: their bytes in a format that omits zeros, their speed as dense matrices."""
    parts = count(SMOLLM2, vocabulary=VOCABULARY, head_size=HEAD_SIZE)
    total, embedding = sum(parts.values()), parts["embedding"]
    fraction = (embedding + STORED * (total - embedding)) / total
    (dense,) = rows(load_measured("wanda"), "perplexity", method="dense", corpus="wikipedia")
    points = []
    for lesson, method, name in (("sparsegpt", "sparsegpt", "SparseGPT"), ("wanda", "wanda", "Wanda")):
        for pattern, family in (("50%", "single weights"), ("2:4", "2:4")):
            (row,) = rows(load_measured(lesson), "perplexity", method=method, pattern=pattern, corpus="wikipedia")
            points.append(Point(family, name, row["perplexity"] / dense["perplexity"], fraction, 1.0))
    return points


def pruned_models(measured: Measured) -> list[Point]:
    """Return the models with fewer neurons and fewer blocks, before and after distillation."""
    timed = {row["side"]: row for row in load_bench("cpu_structured")["tables"]["sides"][:5]}
    dense, points = results.dense(measured), []
    models = results.equal_models(measured)
    for side, kind in (("1126 neurons", "neurons"), ("24 blocks", "blocks by influence")):
        by_steps = dict(models[kind])
        if kind == "neurons":
            last = results.curve(measured)[-1]
            by_steps[last["step"]] = last | {"parameters": by_steps[0]["parameters"]}
        for steps, row in by_steps.items():
            name = f"{steps} steps" if steps else "no training"
            ratios = results.times_dense(measured, row), row["parameters"] / dense["parameters"]
            points.append(Point(side, name, *ratios, timed[side]["times_anchor"]))
    return points


def together(measured: Measured | None = None) -> Figure:
    """Plot perplexity over bytes and over decoding speed, for models of lessons 03, 04 and 05."""
    fig, panels = figure(n_columns=2, width=5.4, height=4.0)
    pruned = pruned_models(measured or results.results())
    points = zeros() + pruned
    for axes, key in zip(panels, ("bytes", "speed"), strict=True):
        _draw_points(axes, points, key)
    panels[1].legend(frameon=False, fontsize=9)
    best, zero = (min(group, key=lambda point: point.perplexity) for group in (pruned, zeros()))
    title = (
        f"Half zeros, {zero.name}: {100 * zero.bytes:.0f} % of the bytes,\n{zero.perplexity:.1f} times the perplexity"
    )
    label(panels[0], title, "bytes of all weights, 16 bits each (%)", "times the dense perplexity (log scale)")
    low, high = (f"{pick(point.speed for point in pruned):.2f}" for pick in (min, max))
    text = f"{best.family}, {best.name}: {best.perplexity:.1f} times the perplexity"
    title = f"Only smaller models decode faster, {low} to {high} times;\n{text}"
    label(panels[1], title, "decoding speed over dense (measured on a CPU)")
    return fig


def _draw_points(axes: Axes, points: list[Point], key: str) -> None:
    families = list(dict.fromkeys(point.family for point in points))
    for index, family in enumerate(families):
        inside = [point for point in points if point.family == family]
        look = line_style(index) | {"linestyle": "none", "markersize": 8}
        places = [100 * point.bytes if key == "bytes" else point.speed for point in inside]
        axes.plot(places, [point.perplexity for point in inside], label=family, **look)
        left = family == families[-2] or (key == "speed" and family == families[-1])
        for place, point in zip(places, inside, strict=True):
            offset = (-8 if left else 8, {"Wanda": 4, "SparseGPT": -4}.get(point.name, 0))
            look = {"textcoords": "offset points", "fontsize": 8, "va": "center", "ha": "right" if left else "left"}
            axes.annotate(point.name, (place, point.perplexity), offset, **look)
    axes.plot(100 if key == "bytes" else 1, 1, "*", color=COLOURS[4], markersize=12, label="dense")
    log_scale(axes, "y")
