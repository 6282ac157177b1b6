"""One picture of lessons 01, 03, 04 and 05: what zeros and cuts cost in perplexity, and what they save."""

from dataclasses import dataclass

from matplotlib.figure import Figure

from course_lib.lessons.common.results import load_bench, load_measured, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.minitron import results
from course_lib.lessons.minitron.results import Measured
from course_lib.lessons.minitron.tables import HEAD_SIZE, VOCABULARY
from course_lib.pruning.structured.shape import Shape, count

# Of a matrix in 16 bits of which half is zero: half the values, and a bit for every place (bitmap) or two for every
# value that is kept (2:4). Lesson 01 counts both.
STORED = 0.5 + 1 / 16
SMOLLM2 = Shape(width=576, blocks=30, neurons=1536, heads=9, groups=3)


@dataclass(frozen=True)
class Point:
    """A model: its family, how many times the dense perplexity it has, its share of the bytes, its speed over dense."""

    family: str
    name: str  # what distinguishes it within the family
    perplexity: float
    bytes: float
    speed: float


def zeros() -> list[Point]:
    """Half of every matrix of the blocks zero; stored as a format with zeros left out, run as dense matrices."""
    parts = count(SMOLLM2, vocabulary=VOCABULARY, head_size=HEAD_SIZE)
    whole, embedding = sum(parts.values()), parts["embedding"]
    share = (embedding + STORED * (whole - embedding)) / whole
    (dense,) = rows(load_measured("wanda"), "perplexity", method="dense", corpus="wikipedia")
    points = []
    for lesson, method, name in (("sparsegpt", "sparsegpt", "SparseGPT"), ("wanda", "wanda", "Wanda")):
        for pattern, family in (("50%", "single weights"), ("2:4", "2:4")):
            (row,) = rows(load_measured(lesson), "perplexity", method=method, pattern=pattern, corpus="wikipedia")
            points.append(Point(family, name, row["perplexity"] / dense["perplexity"], share, 1.0))
    return points


def cuts(measured: Measured) -> list[Point]:
    """Fewer neurons and fewer blocks, before and after they learnt: dense models, timed."""
    timed = {row["side"]: row for row in load_bench("cpu_structured")["tables"]["sides"][:5]}
    whole, points = results.dense(measured), []
    ways = results.ways(measured)
    for side, way in (("1126 neurons", "neurons"), ("24 blocks", "blocks by influence")):
        looks = dict(ways[way])
        if way == "neurons":
            last = results.curve(measured)[-1]
            looks[last["step"]] = last | {"parameters": looks[0]["parameters"]}
        for steps, row in looks.items():
            share = row["parameters"] / whole["parameters"]
            name = f"{steps} steps" if steps else "cut"
            points.append(Point(side, name, results.times_dense(measured, row), share, timed[side]["times_anchor"]))
    return points


def together(measured: Measured | None = None) -> Figure:
    """Perplexity over bytes and over speed."""
    measured = measured or results.results()
    fig, panels = figure(n_columns=2, width=5.4, height=4.0)
    points = zeros() + cuts(measured)
    families = list(dict.fromkeys(point.family for point in points))
    for axes, key in zip(panels, ("bytes", "speed"), strict=True):
        for index, family in enumerate(families):
            inside = [point for point in points if point.family == family]
            look = line_style(index) | {"linestyle": "none", "markersize": 8}
            places = [100 * point.bytes if key == "bytes" else point.speed for point in inside]
            axes.plot(places, [point.perplexity for point in inside], label=family, **look)
            for place, point in zip(places, inside, strict=True):
                beside = {"textcoords": "offset points", "fontsize": 8, "va": "center"}
                left = family == families[-2] or (key == "speed" and family == families[-1])
                far = (-8 if left else 8, {"Wanda": 4, "SparseGPT": -4}.get(point.name, 0))
                axes.annotate(point.name, (place, point.perplexity), far, ha="right" if left else "left", **beside)
        axes.plot(100 if key == "bytes" else 1, 1, "*", color=COLOURS[4], markersize=12, label="dense")
        log_scale(axes, "y")
    panels[1].legend(frameon=False, fontsize=9)
    cut = [point for point in points if point.speed > 1]
    best = min(cut, key=lambda point: point.perplexity)
    kept = min((point for point in points if point.speed == 1), key=lambda point: point.perplexity)
    said = f"{kept.perplexity:.1f} times the perplexity"
    title = f"Half zero, {kept.name}: {100 * kept.bytes:.0f} % of the bytes,\n{said}"
    label(panels[0], title, "bytes of all weights, 16 bits each (%)", "times the dense perplexity (log scale)")
    low, high = (f"{pick(point.speed for point in cut):.2f}" for pick in (min, max))
    said = f"{best.family}, {best.name}: {best.perplexity:.1f} times the perplexity"
    title = f"Only cuts decode faster, {low} to {high} times;\n{said}"
    label(panels[1], title, "speed of decoding, over dense (measured on a CPU)")
    return fig
