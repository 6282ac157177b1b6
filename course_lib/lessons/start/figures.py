"""The figures of lesson 00: what the model says next, and where its time and memory go."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label
from course_lib.lessons.common.tables import percent
from course_lib.measure.machine import measure_device
from course_lib.measure.roofline import GB, Device, Transformer
from course_lib.measure.timing import Timing, part_bytes, part_seconds, time_decoding, time_prefill, value_bytes
from course_lib.models import load_model

PROMPT = "The capital of Italy is"


@torch.no_grad()
def next_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: str = PROMPT, n: int = 8) -> Figure:
    """The n most probable next tokens."""
    ids = tokenizer(prompt, return_tensors="pt").input_ids.to(model.device)
    top = model(ids, logits_to_keep=1).logits[0, -1].float().softmax(-1).topk(n)
    words = [repr(tokenizer.decode(token))[1:-1] for token in top.indices]
    fig, (axes,) = figure()
    axes.barh(range(n), 100 * top.values.cpu(), color=COLOURS[0])
    axes.set_yticks(range(n), words)
    axes.invert_yaxis()
    title = f"After “{prompt}”, “{words[0].strip()}” has {percent(top.values[0].item())} of the probability"
    label(axes, title, "probability (%)", "next token")
    return fig


def roofline(device: Device, timings: Sequence[Timing]) -> Figure:
    """FLOPs a byte against FLOP/s: the two roofs of the device, and what was measured under them."""
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
            beside = {"xytext": (0, 7 if index else -16), "textcoords": "offset points", "ha": "center", "fontsize": 9}
            axes.annotate(f"{t.n_tokens}", (x, y), **beside)  # above one kind, below the other: points may coincide
    left, right = f"{device.bytes_per_second / GB:.1f} GB/s", f"{device.flops_per_second / 1e9:.0f} GFLOP/s"
    near = {"xytext": (-4, 4), "textcoords": "offset points", "ha": "right", "fontsize": 9}
    axes.annotate(left, ((low * device.ridge) ** 0.5, (roof[0] * roof[1]) ** 0.5 / 1e9), **near)
    axes.annotate(right, (high, roof[1] / 1e9), **near)
    axes.legend(title="tokens at once", loc="lower right", frameon=False)
    return _finish_roofline(fig, axes, device, timings)


def _finish_roofline(fig: Figure, axes: Axes, device: Device, timings: Sequence[Timing]) -> Figure:
    slow, fast = (min(timings, key=lambda t: t.work.intensity), max(timings, key=lambda t: t.work.intensity))
    shares = [100 * t.flops_per_second / device.flops_per_second for t in (slow, fast)]
    slowly, fully = (f"{share:.2g} %" if share < 99.5 else f"{share:.0f} %" for share in shares)
    count = "token" if slow.n_tokens == 1 else "tokens"
    title = f"{slow.n_tokens} {count} at a time: {slowly} of peak arithmetic; {fast.n_tokens} at a time: {fully}"
    speeds = [t.flops_per_second for t in timings]
    axes.set_ylim(min(speeds) / 3e9, 2 * max(*speeds, device.flops_per_second) / 1e9)  # with room for what is written
    return label(axes, title, "arithmetic intensity (FLOP/byte)", "speed (GFLOP/s)").figure


def memory(sizes: Transformer, value_bytes: int, n_tokens: int, name: str) -> Figure:
    """Bytes of weights and of the key-value cache of one sequence, up to n_tokens."""
    lengths = torch.linspace(0, n_tokens, 100).long().tolist()
    weights = sizes.n_weights * value_bytes
    cache = [sizes.cache_bytes(n, 1, value_bytes) for n in lengths]
    fig, (axes,) = figure()
    axes.axhline(weights / GB, color=COLOURS[0], label="weights")
    axes.plot(lengths, [c / GB for c in cache], color=COLOURS[1], linestyle="--", label="key-value cache, one sequence")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    title = f"A cache of {n_tokens} tokens adds {percent(cache[-1] / weights)} to the weights of {name}"
    label(axes, title, "tokens in the cache", "memory (GB)")
    return fig


def parts(seconds: dict[str, float], n_bytes: dict[str, int]) -> Figure:
    """Where a decoding step spends its time, beside the bytes each part must read."""
    fig, (axes,) = figure(width=7.2, height=3.2)
    names = list(seconds)
    total, total_bytes = sum(seconds.values()), sum(n_bytes.values())
    shares = {
        "time": [100 * seconds[name] / total for name in names],
        "weights": [100 * n_bytes.get(name, 0) / total_bytes for name in names],
    }
    for index, (what, values) in enumerate(shares.items()):
        places = [i + 0.4 * index - 0.2 for i in range(len(names))]
        axes.barh(places, values, height=0.38, color=COLOURS[2 * index], label=f"share of {what}", hatch="//" * index)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.legend(frameon=False)
    largest = max(names, key=seconds.get)
    label(
        axes, f"Of a step of {1000 * total:.0f} ms, {percent(seconds[largest] / total)} goes to {largest}", "share (%)"
    )
    return fig


# The deck's figures: the same functions on what was measured when the deck was built. -----------------------------


@lru_cache(maxsize=1)
def _model() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    return load_model(device="cpu")


def deck_next_tokens() -> Figure:
    return next_tokens(*_model())


def deck_roofline() -> Figure:
    model = _model()[0]
    return roofline(measure_device(), time_decoding(model, (1, 4)) + time_prefill(model, (16, 64, 256)))


def deck_parts() -> Figure:
    model = _model()[0]
    return parts(part_seconds(model), part_bytes(model))


def deck_memory() -> Figure:
    model = _model()[0]
    return memory(Transformer.of(model), value_bytes(model), model.config.max_position_embeddings, "SmolLM2-135M")
