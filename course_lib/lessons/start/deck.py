"""Figures of the deck of lesson 00 that no cell draws: costs, ceilings, claims and what became of them."""

import math
from functools import lru_cache

import torch
from matplotlib.figure import Figure

from course_lib.lessons.common.effects import log_gap
from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import load_bench, load_measured, load_published, percent, rows
from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.lessons.start import drawings, plans
from course_lib.measure.paired import mean_and_error
from course_lib.measure.roofline import A100, GB, H200, LLAMA2_7B, LLAMA2_70B, Device, Transformer
from course_lib.models import blocks, linears, load_model, weight_of

LAPTOP = Device("a machine of 10 GB/s", 100e9, 10e9, "round numbers for working by hand")
SMOLLM2 = Transformer(30, 576, 9, 3, 64, 1536, 49152, tied=True)
MODELS = {"SmolLM2-135M": SMOLLM2, "Llama-2-7B": LLAMA2_7B, "Llama-2-70B": LLAMA2_70B}

_model = lru_cache(maxsize=1)(load_model)


def cost_of_a_token() -> Figure:
    """The least time for one token of one answer, the weights in float16 read once, on three memories."""
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
    label(axes, f"{title} on an A100", "least time for one token (ms, log scale)")
    return fig


def weights_of_a_layer(name: str = "mlp.up_proj", block: int = 15) -> Figure:
    """How the weights of one matrix are distributed around zero."""
    weight = weight_of(linears(blocks(_model()[0])[block])[name]).flatten()
    root_mean_square = weight.square().mean().sqrt()
    fig, (axes,) = figure(width=7.6, height=3.6)
    axes.hist((weight / root_mean_square).clamp(-4, 4).numpy(), bins=120, color=COLOURS[4])
    axes.axvspan(-0.1, 0.1, color=COLOURS[1], alpha=0.5, linewidth=0)
    zero = (weight == 0).double().mean().item()
    small = (weight.abs() < root_mean_square / 10).double().mean().item()
    title = f"Of {len(weight) / 1e3:.0f} thousand weights {percent(zero, 2)} are zero; "
    title += f"{percent(small, 1)} lie in the band of small ones"
    label(axes, title, f"weight of blocks.{block}.{name} (root mean square = 1)", "weights")
    return fig


def roof_by_hand() -> Figure:
    """The roofline of 100 GFLOP/s and 10 GB/s, with a large float32 layer on 1 to 80 tokens."""
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
    title = f"At 10 FLOP a byte arithmetic takes over: from {first} tokens on"
    label(axes, title, "arithmetic intensity (FLOP/byte)", "speed (GFLOP/s)")
    return fig


def batches() -> Figure:
    """A step of decoding for 1 to 16 answers at once, in processor time of one thread."""
    model, counts = _model()[0], (1, 2, 4, 8, 16)
    with plans.one_thread():
        steps = {n: sorted(plans.step_seconds(model, n, context=32) for _ in range(7)) for n in counts}
    middle = [1000 * steps[n][3] for n in counts]
    below = [m - 1000 * steps[n][0] for m, n in zip(middle, counts, strict=True)]
    above = [1000 * steps[n][-1] - m for m, n in zip(middle, counts, strict=True)]
    fig, (axes,) = figure(width=7.6, height=3.8)
    axes.errorbar(counts, middle, yerr=[below, above], capsize=3, label="measured", **line_style(0))
    axes.plot(counts, [middle[0] * n for n in counts], label="one after the other", **line_style(1))
    axes.legend(frameon=False)
    axes.set_xticks(counts)
    axes.set_ylim(bottom=0)
    title = f"{counts[-1]} answers at once take {middle[-1] / middle[0]:.1f} times as long as one"
    label(axes, title, "answers at once", "one step of one thread (ms;\nbars: shortest and longest of 7)")
    return fig


def amdahl() -> Figure:
    """What the whole gains when a part gets faster, for three shares."""
    fig, (axes,) = figure(width=6.4, height=4.2)
    factors = torch.logspace(0, 2, 50)
    shares = (0.5, 0.8, 0.95)
    for index, share in enumerate(shares):
        gain = 1 / (1 - share + share / factors)
        look = line_style(index) | {"marker": "", "linewidth": 2}
        axes.plot(factors, gain, **look, label=f"{percent(share)} of the time")
        axes.axhline(1 / (1 - share), color=COLOURS[index], linewidth=0.7, linestyle=":")
        axes.annotate(f"{1 / (1 - share):.0f}", (1, 1 / (1 - share)), (2, 3), textcoords="offset points", fontsize=10)
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False, loc="lower right")
    label(axes, "The rest is a ceiling", "the part gets so many times faster", "the whole gets so many times faster")
    return fig


def cache_against_weights() -> Figure:
    """How many tokens, of all answers together, make the cache as large as the weights; both in float16."""
    fig, (axes,) = figure(width=8.2, height=3.8)
    answers = torch.arange(1, 129)
    meet = {}
    for index, (name, sizes) in enumerate(MODELS.items()):
        meet[name] = sizes.n_weights * 2 / sizes.cache_bytes(1)
        look = line_style(index) | {"marker": ""}
        axes.plot(
            answers, meet[name] / answers, **look, label=f"{name}: {meet[name] / 1000:.0f} thousand tokens in all"
        )
    axes.plot([128], [4096], "*", color=COLOURS[1], markersize=13)
    axes.annotate("128 answers of 4096", (128, 4096), (8, -26), textcoords="offset points", ha="right", fontsize=10)
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    axes.text(100, 3e5, "above a line: cache larger than weights", ha="right", fontsize=10)
    above = meet["Llama-2-70B"] < 128 * 4096
    title = (
        f"128 answers of 4096 tokens: the cache of Llama-2-70B is {'larger' if above else 'smaller'} than its weights"
    )
    label(axes, title, "answers at once", "tokens of each at which both are equal")
    return fig


def formats() -> Figure:
    """One token through a layer stored as CSR against the dense one, from `course bench` on a CPU."""
    found = [row for row in load_bench("cpu_bitmap_matvec")["tables"]["sides"] if row["side"] == "CSR"]
    densities = [float(row["contest"].removeprefix("density ")) for row in found]
    middle = [row["times_anchor"] for row in found]
    below = [m - row["times_anchor_low"] for m, row in zip(middle, found, strict=True)]
    above = [row["times_anchor_high"] - m for m, row in zip(middle, found, strict=True)]
    fig, (axes,) = figure(width=7.6, height=3.6)
    axes.errorbar(densities, middle, yerr=[below, above], capsize=3, label="measured, CSR", **line_style(0))
    axes.plot(densities, [1 / d for d in densities], label="if stored weights were all that counts", **line_style(1))
    axes.axhline(1, color="black", linewidth=0.8)
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False)
    slower = [d for d, row in zip(densities, found, strict=True) if row["times_anchor_high"] < 1]
    title = f"Storing {percent(min(slower))} of the weights or more in CSR is slower than storing all"
    label(axes, title, "density: share of the weights stored (log scale)", "times as fast as dense (log scale)")
    return fig


def claims() -> Figure:
    """What papers report of large models, beside the lessons' committed measurements of the small one."""
    half = load_measured("wanda"), load_measured("sparsegpt")
    magnitude, wanda, tight = (
        rows(half[0], "perplexity", method=method, pattern=pattern, corpus="wikipedia")[0]
        for method, pattern in (("magnitude", "50%"), ("wanda", "50%"), ("wanda", "2:4"))
    )
    (surgeon,) = rows(half[1], "perplexity", method="sparsegpt", pattern="50%", corpus="wikipedia")
    window, sinks = (rows(load_measured("kv"), "streaming", name=name)[0] for name in ("0 sinks", "4 sinks"))
    papers = {
        "opt": _published("sparsegpt", "opt", "OPT-125M", ("magnitude", "50%"), ("sparsegpt", "50%")),
        "llama": _published("wanda", "perplexity", "LLaMA-2-7B", ("magnitude", "50%"), ("wanda", "50%")),
        "2:4": _published("wanda", "perplexity", "LLaMA-2-7B", ("wanda", "2:4"), ("wanda", "50%")),
    }
    by_cache = {row["cache"]: row["perplexity"] for row in load_published("sinks")["tables"]["window"]}
    streams = f"Llama-2-13B: {by_cache['0 + 1024']:.0f} → {by_cache['4 + 1020']:.1f}"
    found = [
        ("03", "half of the weights: SparseGPT\nloses less than magnitude", papers["opt"], (magnitude, surgeon)),
        ("04", "half of the weights: Wanda\nloses less than magnitude", papers["llama"], (magnitude, wanda)),
        ("04", "Wanda: 2:4 costs more than\nhalf without a pattern", papers["2:4"], (tight, wanda)),
        ("08", "a window that keeps the first\nfour tokens reads on", streams, (window, sinks)),
    ]
    effects = [log_gap(better, worse) for *_, (worse, better) in found]
    lines = [
        (number, claim, paper, " → ".join(_with_error(row) for row in pair), verdict(effect))
        for (number, claim, paper, pair), effect in zip(found, effects, strict=True)
    ]
    title = f"Four of the papers' claims, asked of 135 million weights: {verdict(effects)} (perplexity, worse → better)"
    return drawings.table(
        title, ("", "claim", "paper", "measured here", "verdict"), lines, (0, 0.045, 0.37, 0.65, 0.88)
    )


def _with_error(row: dict) -> str:
    return f"{row['perplexity']:.0f} ± {row['standard_error']:.0f}"


def _published(lesson: str, table: str, model: str, worse: tuple[str, str], better: tuple[str, str]) -> str:
    values = [
        rows(load_published(lesson), table, model=model, method=method, pattern=pattern)[0]["perplexity"]
        for method, pattern in (worse, better)
    ]
    return f"{model}: {values[0]:.4g} → {values[1]:.4g}"


def ideas() -> Figure:
    """The plans of the open task: what the roofline promises and what was measured."""
    measured = load_measured("start", "plans")
    found = plans.stored(measured["tables"]["ideas"], SMOLLM2)
    machine = Device(**measured["tables"]["machine"][0], source="measured")
    fig, (axes,) = figure(width=8.6, height=3.9)
    names = list(found)[::-1]
    promised = [found[name].whole.seconds(machine) / found[name].left.seconds(machine) for name in names]
    gains = [mean_and_error(found[name].logs) for name in names]
    middle = [math.exp(gain) for gain, _ in gains]
    below = [m * (1 - math.exp(-2 * error)) for m, (_, error) in zip(middle, gains, strict=True)]
    above = [m * (math.exp(2 * error) - 1) for m, (_, error) in zip(middle, gains, strict=True)]
    axes.errorbar(
        middle,
        range(len(names)),
        xerr=[below, above],
        **line_style(0) | {"linestyle": "none"},
        capsize=3,
        label="measured; bars: two standard errors",
    )
    axes.plot(
        promised,
        range(len(names)),
        **line_style(1) | {"linestyle": "none", "fillstyle": "none"},
        label="promised by the roofline",
    )
    axes.axvline(plans.GOAL, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    reached = [name for name in names if of_samples(found[name].logs, math.log(plans.GOAL)).holds]
    title = f"{len(reached)} of {len(names)} plans make a step at least twice as fast"
    label(axes, title, "times as fast as the whole model")
    return fig
