"""The figures of lesson 00: next tokens, a block, memory and time; and the pictures of its exercises."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.lessons.common.results import percent
from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label
from course_lib.measure.machine import measure_device
from course_lib.measure.roofline import GB, Device, Transformer
from course_lib.measure.timing import Timing, part_bytes, part_seconds, time_decoding, time_prefill
from course_lib.models import load_model

Number = float | int
Point = tuple[Number, Number]

PROMPT = "The capital of Italy is"
SMOLLM2 = Transformer(30, 576, 9, 3, 64, 1536, 49152, tied=True)
STREAM = 0.4  # the height of the residual stream in the drawing of a block
ARROW = {"arrowstyle": "-|>", "color": COLOURS[0], "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0}


@lru_cache(maxsize=1)
def default_model() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the model and its tokenizer once, for figures that are drawn without arguments."""
    return load_model(device="cpu")


@torch.no_grad()
def next_tokens(
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    prompt: str = PROMPT,
    n: int = 8,
) -> Figure:
    """Plot the n most probable next tokens after a prompt."""
    model, tokenizer = model or default_model()[0], tokenizer or default_model()[1]
    ids = tokenizer(prompt, return_tensors="pt").input_ids.to(model.device)
    top = model(ids, logits_to_keep=1).logits[0, -1].float().softmax(-1).topk(n)
    words = [repr(tokenizer.decode(token))[1:-1] for token in top.indices]
    fig, (axes,) = figure()
    axes.barh(range(n), 100 * top.values.cpu(), color=COLOURS[0])
    axes.set_yticks(range(n), words)
    axes.invert_yaxis()
    title = f"After “{prompt}”, “{words[0].strip()}” has a probability of {percent(top.values[0].item())}"
    label(axes, title, "probability (%)", "next token")
    return fig


def roofline(device: Device | None = None, timings: Sequence[Timing] = ()) -> Figure:
    """Plot FLOP/s over arithmetic intensity: the two roofs of the device, and the measured steps below them."""
    device = device or measure_device()
    timings = timings or _timings(default_model()[0])
    fig, (axes,) = figure(width=7.2, height=4.2)
    intensities = [t.work.intensity for t in timings]
    low, high = min(*intensities, device.ridge) / 3, max(*intensities, device.ridge) * 3
    roof = [device.bytes_per_second * low, device.flops_per_second, device.flops_per_second]
    axes.loglog([low, device.ridge, high], [x / 1e9 for x in roof], color="black", linewidth=1.5)
    for index, kind in enumerate(dict.fromkeys(t.kind for t in timings)):
        chosen = [t for t in timings if t.kind == kind]
        points = [t.work.intensity for t in chosen], [t.flops_per_second / 1e9 for t in chosen]
        axes.loglog(*points, MARKERS[index], color=COLOURS[index], markersize=8, label=kind)
        for t, x, y in zip(chosen, *points, strict=True):
            near = {"xytext": (9 if index else -9, -4), "textcoords": "offset points", "fontsize": 9}
            near["ha"] = "left" if index else "right"
            axes.annotate(f"{t.n_tokens}", (x, y), **near)  # right of one kind, left of the other: points may coincide
    left, right = f"{device.bytes_per_second / GB:.1f} GB/s", f"{device.flops_per_second / 1e9:.0f} GFLOP/s"
    near = {"textcoords": "offset points", "fontsize": 9}
    middle = (low * device.ridge) ** 0.5, (roof[0] * roof[1]) ** 0.5 / 1e9
    axes.annotate(left, middle, xytext=(-4, 4), ha="right", **near)
    axes.annotate(right, (device.ridge, roof[1] / 1e9), xytext=(4, 4), ha="left", **near)  # no point is near
    axes.legend(title="tokens per pass", loc="lower right", frameon=False)
    return _finish_roofline(fig, axes, device, timings)


def _timings(model: PreTrainedModel) -> list[Timing]:
    return time_decoding(model, (1, 4)) + time_prefill(model, (16, 64, 256))


def _finish_roofline(fig: Figure, axes: Axes, device: Device, timings: Sequence[Timing]) -> Figure:
    slow, fast = (min(timings, key=lambda t: t.work.intensity), max(timings, key=lambda t: t.work.intensity))
    fractions = [100 * t.flops_per_second / device.flops_per_second for t in (slow, fast)]
    slowly, fully = (f"{each:.2g} %" if each < 99.5 else f"{each:.0f} %" for each in fractions)
    count = "token" if slow.n_tokens == 1 else "tokens"
    title = f"{slow.n_tokens} {count} per pass: {slowly} of peak arithmetic; {fast.n_tokens} per pass: {fully}"
    speeds = [t.flops_per_second for t in timings]
    axes.set_ylim(min(speeds) / 3e9, 2 * max(*speeds, device.flops_per_second) / 1e9)  # with room for the labels
    return label(axes, title, "arithmetic intensity (FLOP/byte)", "speed (GFLOP/s)").figure


def memory(
    sizes: Transformer = SMOLLM2, value_bytes: int = 4, n_tokens: int = 8192, name: str = "SmolLM2-135M"
) -> Figure:
    """Plot the bytes of the weights and of the key-value cache of one sequence, up to n_tokens."""
    lengths = torch.linspace(0, n_tokens, 100).long().tolist()
    weights = sizes.n_weights * value_bytes
    cache = [sizes.cache_bytes(n, 1, value_bytes) for n in lengths]
    fig, (axes,) = figure()
    axes.axhline(weights / GB, color=COLOURS[0], label="weights")
    axes.plot(lengths, [c / GB for c in cache], color=COLOURS[1], linestyle="--", label="key-value cache, one sequence")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    title = f"A cache of {n_tokens:,} tokens adds {percent(cache[-1] / weights)} to the weights of {name}"
    label(axes, title, "tokens in the cache", "memory (GB)")
    return fig


def parts(seconds: Mapping[str, float] | None = None, n_bytes: Mapping[str, int] | None = None) -> Figure:
    """Plot the time that each part of a decoding step takes, next to the bytes of its weights."""
    seconds = seconds or part_seconds(default_model()[0])
    n_bytes = n_bytes or part_bytes(default_model()[0])
    fig, (axes,) = figure(width=7.2, height=3.2)
    names = list(seconds)
    total, total_bytes = sum(seconds.values()), sum(n_bytes.values())
    fractions = {
        "time": [100 * seconds[name] / total for name in names],
        "weights": [100 * n_bytes.get(name, 0) / total_bytes for name in names],
    }
    for index, (what, values) in enumerate(fractions.items()):
        places = [i + 0.4 * index - 0.2 for i in range(len(names))]
        axes.barh(places, values, height=0.38, color=COLOURS[2 * index], label=f"% of {what}", hatch="//" * index)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.legend(frameon=False)
    largest = max(names, key=seconds.get)
    title = f"A step takes {1000 * total:.0f} ms, {percent(seconds[largest] / total)} of it for: {largest}"
    label(axes, title, "fraction (%)")
    return fig


# The drawing of one block. ------------------------------------------------------------------------------------------


def block_drawing(sizes: Transformer = SMOLLM2) -> Figure:
    """Draw a block: dark boxes hold weights (outputs × inputs), light ones have none; numbered circles are inputs."""
    fig, (axes,) = figure(width=10.4, height=3.9)
    axes.axis("off")
    axes.set(xlim=(-0.3, 14.2), ylim=(-0.3, 4.3), aspect="equal")
    arrow(axes, (-0.2, STREAM), (14.1, STREAM), linewidth=3.0)
    axes.text(-0.2, STREAM - 0.35, f"residual stream: {sizes.width} numbers per token", fontsize=9, va="center")
    width, query, key = sizes.width, sizes.n_query * sizes.head_size, sizes.n_key_value * sizes.head_size
    _attention(axes, sizes, {"q_proj": (query, width), "k_proj": (key, width), "v_proj": (key, width)})
    _mlp(axes, sizes.n_neurons, width)
    fraction = 3 * sizes.n_neurons * width / sizes.block_weights
    title = f"One of {sizes.n_blocks} blocks: seven matrices with four inputs"
    axes.set_title(f"{title}; the MLP has {percent(fraction)} of the weights", loc="left", fontsize=11)
    return fig


def _attention(axes: Axes, sizes: Transformer, shapes: dict[str, tuple[int, int]]) -> None:
    _from_stream(axes, 0.55, 2.45)
    _input(axes, 1.5, 2.45, 1)
    for y, (name, shape) in zip((3.6, 2.45, 1.3), shapes.items(), strict=True):
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
    """Draw a norm that takes its input from the residual stream."""
    _step(axes, x, y, "norm", width=0.7, height=0.5)
    arrow(axes, (x, STREAM), (x, y - 0.25))
    arrow(axes, (x + 0.35, y), (x + 0.77, y))


def _to_stream(axes: Axes, x: Number, y: Number) -> None:
    """Draw the addition of an output to the residual stream."""
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


# The pictures that `check` shows next to a wrong answer. ------------------------------------------------------------


def zeros_marked(tensor: torch.Tensor, got: object, expected: float) -> Figure:
    """Plot the entries of a tensor, one row per row; entries that are exactly zero are dark."""
    rows = (tensor == 0).reshape(-1, tensor.shape[-1] if tensor.ndim else 1)
    fig, (axes,) = figure(height=2.4)
    axes.imshow(rows, cmap="Greys", vmin=0, vmax=1.3, aspect="auto", interpolation="nearest")
    axes.grid(visible=False)
    axes.locator_params(integer=True)
    axes.set_xlabel("last axis")
    axes.set_ylabel("all others")
    axes.set_title(f"{int(rows.sum())} of {rows.numel()} are zero: {expected:.3g}; yours: {float(got):.3g}", loc="left")
    return fig


def layer_by_layer(
    flops: torch.Tensor,
    n_bytes: torch.Tensor,
    flops_per_second: float,
    bytes_per_second: float,
    got: object,
    expected: float,
) -> Figure:
    """Plot the layers one after the other, computing above reading; the longer bar of each layer counts."""
    fig, (axes,) = figure(height=2.4)
    times = [(flops / flops_per_second).tolist(), (n_bytes / bytes_per_second).tolist()]
    start = 0.0
    for computing, reading in zip(*times, strict=True):
        axes.barh([0, 1], [computing, reading], left=start, color=[COLOURS[0], COLOURS[4]], edgecolor="white")
        start += max(computing, reading)
        axes.axvline(start, color="black", linewidth=0.6, linestyle=":")
    axes.set_yticks([0, 1], ["arithmetic", "memory"])
    axes.invert_yaxis()
    axes.plot([expected], [-0.55], "v", color=COLOURS[0], label="expected", clip_on=False)
    with suppress(TypeError, ValueError, RuntimeError):  # the answer may not be a single number
        axes.axvline(float(got), color=COLOURS[1], linestyle="--", label="yours")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    one = f"1 layer takes {expected:.3g} s, as long as its longer bar"
    several = f"{len(flops)} layers take {expected:.3g} s, each as long as its longer bar"
    label(axes, one if len(flops) == 1 else several, "time (s)")
    return fig


def old_and_new_time(share: float, goal: float, got: object, expected: float) -> Figure:
    """Plot a step that takes 1 second, the required step, and the step with your factor."""
    fig, (axes,) = figure(height=2.2)
    rest = 1 - share
    yours = share / float(got) if float(got) > 0 else share
    part = {"yours": yours, "required": max(1 / goal - rest, 0.0), "before": share}
    axes.barh(range(3), [rest] * 3, color=COLOURS[0], label="the rest")
    axes.barh(range(3), part.values(), left=rest, color=COLOURS[4], edgecolor=COLOURS[0], hatch="//", label="the part")
    axes.set_yticks(range(3), part)
    axes.axvline(1 / goal, color=COLOURS[1], linestyle="--", label="longest time allowed")
    axes.set_xlim(0, 1.55)
    axes.legend(frameon=False, fontsize=8, loc="center right")
    short = "no factor is enough" if expected == 0 else f"the part must get {expected:.3g} times faster"
    label(axes, f"{goal:.3g} times faster as a whole: {short}", "time (old step = 1)")
    return fig
