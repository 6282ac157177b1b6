"""One block of a Llama-like model as a drawing: seven matrices, four inputs, and the stream that runs past them."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch

from course_lib.lessons.common.style import COLOURS, figure
from course_lib.lessons.common.tables import percent
from course_lib.measure.roofline import Transformer
from course_lib.models import load_model

Number = float | int
Point = tuple[Number, Number]

STREAM = 0.4  # the height at which it runs
ARROW = {"arrowstyle": "-|>", "color": COLOURS[0], "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0}


def block_drawing(sizes: Transformer | None = None) -> Figure:
    """Dark boxes hold weights (outputs × inputs); light ones compute without any; numbered circles are inputs."""
    sizes = sizes or Transformer.of(load_model(device="cpu")[0])
    fig, (axes,) = figure(width=10.4, height=3.9)
    axes.axis("off")
    axes.set(xlim=(-0.3, 14.2), ylim=(-0.3, 4.3), aspect="equal")
    arrow(axes, (-0.2, STREAM), (14.1, STREAM), linewidth=3.0)
    axes.text(-0.2, STREAM - 0.35, f"residual stream: {sizes.width} numbers for each token", fontsize=9, va="center")
    width, query, key = sizes.width, sizes.n_query * sizes.head_size, sizes.n_key_value * sizes.head_size
    _attention(axes, sizes, {"q_proj": (query, width), "k_proj": (key, width), "v_proj": (key, width)})
    _mlp(axes, sizes.n_neurons, width)
    share = 3 * sizes.n_neurons * width / sizes.block_weights
    title = f"One of {sizes.n_blocks} blocks: seven matrices read four inputs"
    axes.set_title(f"{title}, and the MLP has {percent(share)} of the weights", loc="left", fontsize=11)
    return fig


def _attention(axes: Axes, sizes: Transformer, readers: dict[str, tuple[int, int]]) -> None:
    _from_stream(axes, 0.55, 2.45)
    _input(axes, 1.5, 2.45, 1)
    for y, (name, shape) in zip((3.6, 2.45, 1.3), readers.items(), strict=True):
        _matrix(axes, 2.75, y, name, shape)
        arrow(axes, (1.68, 2.45), (2.1, y))
        arrow(axes, (3.4, y), (3.95, 2.45 + (y - 2.45) * 0.5))
    group = sizes.n_query // sizes.n_key_value
    text = f"attention\n\n{sizes.n_query} query heads,\n{sizes.n_key_value} key-value heads:\n"
    text += f"{group} query heads\nshare each\nkey-value head"
    _step(axes, 4.75, 2.45, text, width=1.65, height=2.3)
    _input(axes, 6.0, 2.45, 2)
    arrow(axes, (5.58, 2.45), (5.82, 2.45))
    arrow(axes, (6.18, 2.45), (6.4, 2.45))
    _matrix(axes, 7.05, 2.45, "o_proj", (sizes.width, sizes.n_query * sizes.head_size))
    _to_stream(axes, 7.05, 2.45)


def _mlp(axes: Axes, n_neurons: int, width: int) -> None:
    _from_stream(axes, 8.25, 2.45)
    _input(axes, 9.2, 2.45, 3)
    for y, name in ((3.2, "gate_proj"), (1.7, "up_proj")):
        _matrix(axes, 10.4, y, name, (n_neurons, width))
        arrow(axes, (9.38, 2.45), (9.75, y))
        arrow(axes, (11.05, y), (11.35, 2.45 + (y - 2.45) * 0.3))
    _step(axes, 11.85, 2.45, "SiLU(gate)\n× up", width=1.0, height=0.9)
    _input(axes, 12.7, 2.45, 4)
    arrow(axes, (12.35, 2.45), (12.52, 2.45))
    arrow(axes, (12.88, 2.45), (13.03, 2.45))
    _matrix(axes, 13.6, 2.45, "down_proj", (width, n_neurons), box=1.15)
    _to_stream(axes, 13.6, 2.45)


def _from_stream(axes: Axes, x: Number, y: Number) -> None:
    """A norm reads the stream."""
    _step(axes, x, y, "norm", width=0.7, height=0.5)
    arrow(axes, (x, STREAM), (x, y - 0.25))
    arrow(axes, (x + 0.35, y), (x + 0.77, y))


def _to_stream(axes: Axes, x: Number, y: Number) -> None:
    """What a matrix gives is added to the stream."""
    arrow(axes, (x, y - 0.35), (x, STREAM + 0.16))
    axes.add_patch(Circle((x, STREAM), 0.16, facecolor="white", edgecolor=COLOURS[0], zorder=3))
    axes.text(x, STREAM, "+", ha="center", va="center", fontsize=11, zorder=4)


def _matrix(axes: Axes, x: Number, y: Number, name: str, shape: tuple[int, int], box: Number = 1.3) -> None:
    _box(axes, x, y, box, 0.7, COLOURS[0])
    axes.text(x, y, f"{name}\n{shape[0]} × {shape[1]}", ha="center", va="center", color="white", fontsize=8.5, zorder=4)


def _step(axes: Axes, x: Number, y: Number, text: str, width: Number, height: Number) -> None:
    _box(axes, x, y, width, height, "white")
    axes.text(x, y, text, ha="center", va="center", fontsize=8, zorder=4)


def _box(axes: Axes, x: Number, y: Number, width: Number, height: Number, colour: str) -> None:
    corner, rounding = (x - width / 2, y - height / 2), "round,pad=0,rounding_size=0.08"
    axes.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle=rounding, facecolor=colour, edgecolor=COLOURS[0], zorder=3)
    )


def _input(axes: Axes, x: Number, y: Number, number: int) -> None:
    axes.add_patch(Circle((x, y), 0.18, facecolor=COLOURS[3], edgecolor=COLOURS[0], zorder=3))
    axes.text(x, y, str(number), ha="center", va="center", fontsize=9, zorder=4)


def arrow(axes: Axes, start: Point, end: Point, linewidth: Number = 1.1) -> None:
    axes.annotate("", end, start, arrowprops=ARROW | {"linewidth": linewidth}, zorder=2)
