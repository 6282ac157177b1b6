"""The figures of lesson 00 that only the deck shows: drawings, costs worked out by hand, and stored results."""

import math

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from course_lib.lessons.common.drawn_tables import CLAIM_HEADS, drawn_table
from course_lib.lessons.common.effects import log_gap
from course_lib.lessons.common.results import load_bench, load_measured, load_published, percent, rows
from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.lessons.start.experiments import plans
from course_lib.lessons.start.plots import SMOLLM2, arrow, default_model
from course_lib.measure.paired import mean_and_error
from course_lib.measure.roofline import A100, GB, H200, LLAMA2_7B, LLAMA2_70B, Device
from course_lib.models import blocks, linears, weight_of
from course_lib.sparsity.patterns import Block, Columns, NofM, Pattern, Unstructured, sparsity_of

Number = float | int

LAPTOP = Device("a machine with 10 GB/s", 100e9, 10e9, "round numbers for working by hand")
MODELS = {"SmolLM2-135M": SMOLLM2, "Llama-2-7B": LLAMA2_7B, "Llama-2-70B": LLAMA2_70B}

PATTERNS: dict[str, Pattern] = {
    "unstructured": Unstructured(0.5, per="layer"),
    "2:4": NofM(2, 4),
    "blocks of 4 × 4": Block(4, 4, 0.5),
    "columns": Columns(0.5),
}

# The parts that are left out, and the numbers and titles of the lessons about them.
PLAN: dict[str, dict[str, str]] = {
    "weights, fixed\nfor all inputs": {
        "01": "patterns\nand formats",
        "02": "OBD\nand OBS",
        "03": "SparseGPT",
        "04": "Wanda",
        "05": "Minitron:\nwidth, depth",
    },
    "weights, chosen\nby the input": {"06": "mixtures\nof experts", "09": "Deja Vu:\nneurons"},
    "tokens in\nthe cache": {"07": "KV eviction", "08": "attention\nsinks"},
    "tokens of\nthe prompt": {"10": "compress,\nthen prompt", "11": "sparse\nattention"},
    "everything": {"00": "time and\nmemory", "12": "capstone"},
}


def plan_of_the_course() -> Figure:
    """Draw the lessons, one row for each thing that can be left out."""
    fig, (axes,) = figure(width=9.6, height=4.6)
    _blank(axes, (-0.1, 11.6), (-0.2, len(PLAN) + 0.35))
    shape = {"boxstyle": "round,pad=0,rounding_size=0.08", "edgecolor": COLOURS[0], "facecolor": COLOURS[0]}
    for row, (what, lessons) in enumerate(PLAN.items()):
        y = len(PLAN) - row - 0.5
        axes.text(0, y, what, va="center", fontsize=11)
        for column, (number, title) in enumerate(lessons.items()):
            x = 2.25 + 1.87 * column
            axes.add_patch(FancyBboxPatch((x, y - 0.38), 1.72, 0.76, **shape))
            axes.text(x + 0.1, y, number, va="center", fontsize=12, weight="bold", color="white")
            axes.text(x + 0.46, y, title, va="center", fontsize=9, color="white")
    axes.set_title(f"{sum(map(len, PLAN.values()))} lessons, by what they leave out", loc="left")
    return fig


def four_patterns() -> Figure:
    """Plot the largest weights of one random matrix that each pattern keeps."""
    weight = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    fig, axes = figure(n_columns=len(PATTERNS), width=2.45, height=2.9)
    norm, fractions = weight.square().sum(), {}
    for panel, (name, pattern) in zip(axes, PATTERNS.items(), strict=True):
        keep = pattern.keep(weight.abs())
        fractions[name] = (weight[keep].square().sum() / norm).item()
        panel.imshow(keep, cmap="Greys", vmin=0, vmax=1.3, interpolation="nearest")
        panel.grid(visible=False)
        panel.set(xticks=[], yticks=[])
        panel.set_title(name, fontsize=11)
        zeros = percent(sparsity_of(keep.float()))
        panel.set_xlabel(f"{zeros} zeros; keeps {percent(fractions[name])}\nof the squared norm", fontsize=10)
    best = max(fractions, key=fractions.get)
    fig.suptitle(f"Half of the same 256 random weights: {best} keeps most of the squared norm", x=0.01, ha="left")
    return fig


def title_picture() -> Figure:
    """Plot four masks in a square, each of which keeps half of a matrix."""
    weight = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    fig, axes = figure(n_columns=2, n_rows=2, width=2.6, height=2.4)
    for panel, (name, pattern) in zip(axes, PATTERNS.items(), strict=True):
        panel.imshow(pattern.keep(weight.abs()), cmap="Blues", vmin=0, vmax=1.15, interpolation="nearest")
        panel.grid(visible=False)
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set_visible(False)
        panel.set_title(name, fontsize=12)
    return fig


def two_phases() -> Figure:
    """Draw prefill, all tokens of a prompt in one pass, and decode, one pass per further token."""
    fig, axes = figure(n_columns=2, width=5.4, height=3.6)
    prompt, answer = ("The", "capital", "of", "Italy", "is"), ("Rome", ",", "a", "city")
    _blank(axes[0], (-0.6, 5.2), (-1.0, 4.0))
    _stack(axes[0], -0.4, 4.9)
    for x, word in enumerate(prompt):
        axes[0].text(x, -0.55, word, ha="center", fontsize=11)
        arrow(axes[0], (x, -0.2), (x, 0.75))
    arrow(axes[0], (4, 2.25), (4, 3.1))
    axes[0].text(4, 3.3, answer[0], ha="center", fontsize=11, weight="bold")
    axes[0].set_title(f"Prefill: {len(prompt)} tokens, the weights are read once", loc="left", fontsize=11)
    _blank(axes[1], (-0.6, 6.2), (-1.0, 4.0))
    n_steps = len(answer) - 1
    for x in range(n_steps):
        place = 2.05 * x
        _stack(axes[1], place - 0.4, place + 1.1)
        axes[1].text(place + 0.35, -0.55, answer[x], ha="center", fontsize=11)
        arrow(axes[1], (place + 0.35, -0.2), (place + 0.35, 0.75))
        arrow(axes[1], (place + 0.35, 2.25), (place + 0.35, 3.1))
        axes[1].text(place + 0.35, 3.3, answer[x + 1], ha="center", fontsize=11, weight="bold")
    axes[1].set_title(f"Decode: {n_steps} tokens, the weights are read {n_steps} times", loc="left", fontsize=11)
    return fig


def _stack(axes: Axes, left: Number, right: Number) -> None:
    """Draw the model as a box."""
    axes.add_patch(Rectangle((left, 0.75), right - left, 1.5, facecolor=COLOURS[0], edgecolor=COLOURS[0]))
    axes.text((left + right) / 2, 1.5, "all weights", ha="center", va="center", color="white", fontsize=10)


def _blank(axes: Axes, x: tuple[Number, Number], y: tuple[Number, Number]) -> None:
    axes.axis("off")
    axes.set(xlim=x, ylim=y)


def cost_of_a_token() -> Figure:
    """Plot the shortest possible time of one token: float16 weights, read once, from three memories."""
    fig, (axes,) = figure(width=8.6, height=3.4)
    names = list(MODELS)[::-1]
    for index, device in enumerate((LAPTOP, A100, H200)):
        work = [MODELS[name].decode_step(0) for name in names]
        times = [1000 * w.bytes / device.bytes_per_second for w in work]
        axes.plot(times, range(len(names)), MARKERS[index], color=COLOURS[index], markersize=9, label=device.name)
        for y, time in enumerate(times):
            near = {"xytext": (0, (8, 8, -17)[index]), "textcoords": "offset points", "ha": "center", "fontsize": 10}
            axes.annotate(f"{time:.2g} ms" if time < 1000 else f"{time / 1000:.2g} s", (time, y), **near)
    axes.set_yticks(range(len(names)), [f"{name}\n{MODELS[name].matrix_weights * 2 / GB:.3g} GB" for name in names])
    axes.set_ylim(-0.5, len(names) - 0.3)
    axes.set_xscale("log")
    axes.margins(x=0.08)
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1.02, 1.0), fontsize=10)
    largest = MODELS[names[0]].decode_step(0)
    title = f"A token of {names[0]} reads {largest.bytes / GB:.0f} GB: at least {1000 * largest.seconds(A100):.0f} ms"
    label(axes, f"{title} on an A100", "shortest possible time of one token (ms, log scale)")
    return fig


def weights_of_a_layer(name: str = "mlp.up_proj", block: int = 15) -> Figure:
    """Plot a histogram of the weights of one matrix."""
    weight = weight_of(linears(blocks(default_model()[0])[block])[name]).flatten()
    root_mean_square = weight.square().mean().sqrt()
    fig, (axes,) = figure(width=7.6, height=3.6)
    axes.hist((weight / root_mean_square).clamp(-4, 4).numpy(), bins=120, color=COLOURS[4])
    axes.axvspan(-0.1, 0.1, color=COLOURS[1], alpha=0.5, linewidth=0)
    zero = (weight == 0).double().mean().item()
    small = (weight.abs() < root_mean_square / 10).double().mean().item()
    title = f"Of {len(weight) / 1e3:.0f} thousand weights {percent(zero, 2)} are zero; "
    title += f"{percent(small, 1)} are in the red band"
    label(axes, title, f"weight of blocks.{block}.{name} (root mean square = 1)", "number of weights")
    return fig


def roof_by_hand() -> Figure:
    """Plot the roofline of 100 GFLOP/s and 10 GB/s, with a large float32 layer on 1 to 80 tokens."""
    fig, (axes,) = figure(width=6.4, height=4.2)
    tokens = (1, 4, 20, 80)
    reached = [min(LAPTOP.flops_per_second, LAPTOP.bytes_per_second * n / 2) / 1e9 for n in tokens]
    ends = (0.2, LAPTOP.ridge, 100)
    axes.plot(ends, [min(100, 10 * x) for x in ends], color="black", linewidth=1.5)
    axes.plot([n / 2 for n in tokens], reached, MARKERS[0], color=COLOURS[1], markersize=9)
    for n, y in zip(tokens, reached, strict=True):
        word = "token" if n == 1 else "tokens"
        axes.annotate(f"{n} {word}", (n / 2, y), (6, -14), textcoords="offset points", fontsize=10)
    axes.axvline(LAPTOP.ridge, color=COLOURS[4], linestyle=":")
    log_scale(log_scale(axes, "x"), "y")
    axes.annotate("ridge", (LAPTOP.ridge, 2.2), (6, 0), textcoords="offset points", fontsize=10)
    first = tokens[reached.index(100)]
    title = f"Compute-bound above 10 FLOP/byte: from {first} tokens on"
    label(axes, title, "arithmetic intensity (FLOP/byte)", "speed (GFLOP/s)")
    return fig


def pass_by_hand() -> Figure:
    """Plot a compute-bound and a memory-bound layer in time, on a machine with 100 GFLOP/s and 10 GB/s."""
    flops, n_bytes = (2e11, 2e10), (1e9, 1e10)
    computing, reading = [f / 1e11 for f in flops], [b / 1e10 for b in n_bytes]
    fig, (axes,) = figure(width=8.4, height=2.9)
    start = 0.0
    for index, (compute, read) in enumerate(zip(computing, reading, strict=True), 1):
        for place, (time, colour) in enumerate(((compute, COLOURS[0]), (read, COLOURS[4]))):
            axes.barh(place, time, left=start, color=colour, edgecolor="white")
            inside = time > 0.5
            x, align, ink = (time / 2, "center", "white") if inside else (time + 0.02, "left", "black")
            axes.text(start + x, place, f"{time:g} s", va="center", ha=align, color=ink, fontsize=11)
        axes.text(start + 0.02, -0.62, f"layer {index}", fontsize=10)
        start += max(compute, read)
        axes.axvline(start, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks([0, 1], ["arithmetic", "memory"])
    axes.set_ylim(1.5, -0.85)
    axes.set_xlim(0, start * 1.08)
    overlapping = max(sum(computing), sum(reading))
    title = f"Layer by layer {start:g} s; as a single operation it would be {overlapping:g} s"
    label(axes, title, "time (s)")
    return fig


def batches() -> Figure:
    """Time a decoding step at batch sizes 1 to 16, in processor time of one thread."""
    model, counts = default_model()[0], (1, 2, 4, 8, 16)
    with plans.one_thread():
        steps = {n: sorted(plans.step_seconds(model, n, context=32) for _ in range(7)) for n in counts}
    middle = [1000 * steps[n][3] for n in counts]
    below = [m - 1000 * steps[n][0] for m, n in zip(middle, counts, strict=True)]
    above = [1000 * steps[n][-1] - m for m, n in zip(middle, counts, strict=True)]
    fig, (axes,) = figure(width=7.6, height=3.8)
    axes.errorbar(counts, middle, yerr=[below, above], capsize=3, label="one batch, measured", **line_style(0))
    axes.plot(counts, [middle[0] * n for n in counts], label="one sequence after the other", **line_style(1))
    axes.legend(frameon=False)
    axes.set_xticks(counts)
    axes.set_ylim(bottom=0)
    title = f"A step with batch size {counts[-1]} takes {middle[-1] / middle[0]:.1f} times as long as with 1"
    label(axes, title, "batch size", "one step of one thread (ms;\nbars: shortest and longest of 7)")
    return fig


def amdahl() -> Figure:
    """Plot the speedup of the whole over that of a part, for three fractions of the time."""
    fig, (axes,) = figure(width=6.4, height=4.2)
    factors = torch.logspace(0, 2, 50)
    for index, fraction in enumerate((0.5, 0.8, 0.95)):
        limit = 1 / (1 - fraction)
        look = line_style(index) | {"marker": "", "linewidth": 2}
        axes.plot(factors, 1 / (1 - fraction + fraction / factors), **look, label=f"{percent(fraction)} of the time")
        axes.axhline(limit, color=COLOURS[index], linewidth=0.7, linestyle=":")
        axes.annotate(f"{limit:.0f}", (1, limit), (2, 3), textcoords="offset points", fontsize=10)
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False, loc="lower right")
    label(axes, "The rest of the step limits the speedup", "speedup of the part", "speedup of the whole")
    return fig


def cache_against_weights() -> Figure:
    """Plot batch sizes and lengths at which the cache is as large as the weights, both in float16."""
    fig, (axes,) = figure(width=8.2, height=3.8)
    batch_sizes = torch.arange(1, 129)
    equal = {}
    for index, (name, sizes) in enumerate(MODELS.items()):
        equal[name] = sizes.n_weights * 2 / sizes.cache_bytes(1)
        look = line_style(index) | {"marker": ""}
        text = f"{name}: {equal[name] / 1000:.0f} thousand tokens in total"
        axes.plot(batch_sizes, equal[name] / batch_sizes, **look, label=text)
    axes.plot([128], [4096], "*", color=COLOURS[1], markersize=13)
    axes.annotate("128 × 4,096", (128, 4096), (8, -26), textcoords="offset points", ha="right", fontsize=10)
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    axes.text(100, 3e5, "above a line: cache larger than weights", ha="right", fontsize=10)
    larger = "larger" if equal["Llama-2-70B"] < 128 * 4096 else "smaller"
    title = f"128 sequences of 4,096 tokens: the cache of Llama-2-70B is {larger} than its weights"
    label(axes, title, "batch size", "tokens per sequence at which both are equal")
    return fig


def formats() -> Figure:
    """Plot the speed of one token through a layer stored as CSR, relative to dense, from `course bench` on a CPU."""
    measured = [row for row in load_bench("cpu_bitmap_matvec")["tables"]["sides"] if row["side"] == "CSR"]
    densities = [float(row["contest"].removeprefix("density ")) for row in measured]
    middle = [row["times_anchor"] for row in measured]
    below = [m - row["times_anchor_low"] for m, row in zip(middle, measured, strict=True)]
    above = [row["times_anchor_high"] - m for m, row in zip(middle, measured, strict=True)]
    fig, (axes,) = figure(width=7.6, height=3.6)
    axes.errorbar(densities, middle, yerr=[below, above], capsize=3, label="measured, CSR", **line_style(0))
    axes.plot(densities, [1 / d for d in densities], label="if only the stored weights counted", **line_style(1))
    axes.axhline(1, color="black", linewidth=0.8)
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False)
    slower = [d for d, row in zip(densities, measured, strict=True) if row["times_anchor_high"] < 1]
    title = f"CSR is slower than dense when {percent(min(slower))} of the weights or more are stored"
    label(axes, title, "density: fraction of the weights that is stored (log scale)", "times as fast as dense (log)")
    return fig


def claims() -> Figure:
    """Compare four results of papers on large models with the committed results of the lessons."""
    half = load_measured("wanda"), load_measured("sparsegpt")
    magnitude, wanda, tight = (
        rows(half[0], "perplexity", method=method, pattern=pattern, corpus="wikipedia")[0]
        for method, pattern in (("magnitude", "50%"), ("wanda", "50%"), ("wanda", "2:4"))
    )
    (sparsegpt,) = rows(half[1], "perplexity", method="sparsegpt", pattern="50%", corpus="wikipedia")
    window, sinks = (rows(load_measured("kv"), "streaming", name=name)[0] for name in ("0 sinks", "4 sinks"))
    by_cache = {row["cache"]: row["perplexity"] for row in load_published("sinks")["tables"]["window"]}
    compared = {
        "03: at 50 %, SparseGPT has a lower perplexity than magnitude pruning": (
            _published("sparsegpt", "opt", "OPT-125M", ("magnitude", "50%"), ("sparsegpt", "50%")),
            (magnitude, sparsegpt),
        ),
        "04: at 50 %, Wanda has a lower perplexity than magnitude pruning": (
            _published("wanda", "perplexity", "LLaMA-2-7B", ("magnitude", "50%"), ("wanda", "50%")),
            (magnitude, wanda),
        ),
        "04: Wanda with 2:4 has a higher perplexity than at 50 % without a pattern": (
            _published("wanda", "perplexity", "LLaMA-2-7B", ("wanda", "2:4"), ("wanda", "50%")),
            (tight, wanda),
        ),
        "08: a sliding window works if it keeps the first four tokens": (
            f"Llama-2-13B: {by_cache['0 + 1024']:.0f} → {by_cache['4 + 1020']:.1f}",
            (window, sinks),
        ),
    }
    effects = [log_gap(better, worse) for _, (worse, better) in compared.values()]
    lines = [
        (claim, paper, " → ".join(_with_error(row) for row in pair), verdict(effect))
        for (claim, (paper, pair)), effect in zip(compared.items(), effects, strict=True)
    ]
    title = f"Four claims about large models, with 135 million weights: {verdict(effects)} (perplexity, worse → better)"
    return drawn_table(CLAIM_HEADS, lines, (42, 27, 24, 18), title=title)


def _with_error(row: dict) -> str:
    return f"{row['perplexity']:.0f} ± {row['standard_error']:.0f}"


def _published(lesson: str, table: str, model: str, worse: tuple[str, str], better: tuple[str, str]) -> str:
    values = [
        rows(load_published(lesson), table, model=model, method=method, pattern=pattern)[0]["perplexity"]
        for method, pattern in (worse, better)
    ]
    return f"{model}: {values[0]:.4g} → {values[1]:.4g}"


def ideas() -> Figure:
    """Plot the plans of the open task: the speedup that the roofline predicts, and the measured one."""
    results = load_measured("start", "plans")["tables"]
    attempts = plans.stored(results["ideas"], SMOLLM2)
    machine = Device(**results["machine"][0], source="measured")
    fig, (axes,) = figure(width=8.6, height=3.9)
    names = list(attempts)[::-1]
    predicted = [attempts[name].whole.seconds(machine) / attempts[name].reduced.seconds(machine) for name in names]
    speedups = [mean_and_error(attempts[name].log_speedups) for name in names]
    middle = [math.exp(speedup) for speedup, _ in speedups]
    below = [m * (1 - math.exp(-2 * error)) for m, (_, error) in zip(middle, speedups, strict=True)]
    above = [m * (math.exp(2 * error) - 1) for m, (_, error) in zip(middle, speedups, strict=True)]
    points, circles = line_style(0) | {"linestyle": "none"}, line_style(1) | {"linestyle": "none", "fillstyle": "none"}
    bars = "measured; bars: two standard errors"
    axes.errorbar(middle, range(len(names)), xerr=[below, above], capsize=3, label=bars, **points)
    axes.plot(predicted, range(len(names)), label="predicted by the roofline", **circles)
    axes.axvline(plans.GOAL, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    reached = [name for name in names if of_samples(attempts[name].log_speedups, math.log(plans.GOAL)).holds]
    title = f"{len(reached)} of {len(names)} plans make a step at least twice as fast"
    label(axes, title, "speedup of a decoding step")
    return fig
