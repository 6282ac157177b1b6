"""The figures of lesson 08, for notebook and deck. A figure's title is its finding, computed from the data.

Without arguments a figure shows the stored results, or a small example.

Dimension key: L layers, H heads, T tokens of a text.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.common.dots import reach
from course_lib.lessons.common.results import load_measured, load_published, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.sinks.estimates import one_minus_four

Results = Mapping[str, Any]
DISTANT = (0, 1, 2, 3, *range(24, 32))  # positions in the text of four sinks and a window
CACHES = ("0 sinks", "1 sink", "2 sinks", "4 sinks", "4 newlines")
N_TOKENS, WINDOW, SINKS = 12, 4, 2  # of the drawings


# Where the attention goes.


def first_token_attention(share: Float[Tensor, "L H"], uniform: float) -> Figure:
    """Plot the attention on the first token: every head, the mean of each layer, and uniform attention."""
    fig, (axes,) = figure(width=7.2)
    layers = torch.arange(len(share))
    spread = layers[:, None] + torch.linspace(-0.2, 0.2, share.shape[1])
    axes.scatter(spread, 100 * share, s=8, color=COLOURS[4], label="one head")
    axes.plot(layers, 100 * share.mean(dim=1), markersize=4, label="mean of the layer", **line_style(0))
    axes.axhline(100 * uniform, color=COLOURS[1], linestyle=":", label=f"uniform attention: {100 * uniform:.1f} %")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    axes.set_ylim(-3, 118)
    axes.set_yticks(range(0, 101, 20))
    half = len(share) // 2
    title = f"From layer {half} on the first token receives {100 * share[half:].mean():.0f} % of all attention"
    label(axes, title, "layer", "attention on the first token (%)")
    return fig


def received_by_token(received: Float[Tensor, "T"]) -> Figure:
    """Plot the attention that each token of a text receives."""
    fig, (axes,) = figure(width=7.2, height=3.0)
    others = line_style(0) | {"linestyle": "none"}
    axes.plot(range(1, len(received)), 100 * received[1:], label="other tokens", **others)
    axes.plot([0], 100 * received[:1], label="the first token", **line_style(1) | {"markersize": 8})
    axes.legend(frameon=False, fontsize=9)
    times = (received[0] / received[1:].max()).item()
    title = f"The first token receives {times:.1f} times as much as any other"
    label(axes, title, "token", "attention received (%)")
    return fig


def attention_by_first_token(shares: Mapping[str, Float[Tensor, "L"]]) -> Figure:
    """Plot the attention on position 0 by layer, for the same text after different first tokens."""
    fig, (axes,) = figure(width=7.2)
    for index, (name, share) in enumerate(shares.items()):
        axes.plot(100 * share, markersize=3, label=name, **line_style(index))
    axes.legend(frameon=False, fontsize=9)
    deep = [100 * share[len(share) // 2 :].mean().item() for share in shares.values()]
    title = f"With each first token: {min(deep):.0f} to {max(deep):.0f} % in the deeper half of the layers"
    label(axes, title, "layer", "attention on position 0 (%)")
    return fig


def hidden_norms(norms: Float[Tensor, "L T"]) -> Figure:
    """Plot the norm of the hidden states that enter each layer, by token."""
    fig, (axes,) = figure(width=7.2)
    layers = torch.arange(len(norms))
    places = layers[:, None].expand(-1, norms.shape[1] - 1)
    axes.scatter(places, norms[:, 1:], s=5, color=COLOURS[4], label="one of the other tokens")
    axes.plot(layers, norms[:, 1:].median(dim=1).values, markersize=4, label="their median", **line_style(0))
    axes.plot(layers, norms[:, 0], markersize=4, label="first token", **line_style(1))
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9)
    ratio = norms[:, 0] / norms[:, 1:].median(dim=1).values
    peak = int(ratio.argmax())
    title = f"{ratio[peak]:.0f} times the median norm at layer {peak}"
    label(axes, title, "layer", "norm of its input (log scale)")
    return fig


def value_norms(norms: Float[Tensor, "L T"]) -> Figure:
    """Plot the norm of the first token's values and the mean norm of the others' by layer."""
    fig, (axes,) = figure(width=7.2)
    first, others = norms[:, 0], norms[:, 8:].mean(dim=1)
    axes.plot(first, markersize=4, label="first token", **line_style(1))
    axes.plot(others, markersize=4, label="other tokens, mean", **line_style(0))
    axes.legend(frameon=False, fontsize=9)
    half = len(first) // 2
    ratio = (others[half:] / first[half:]).median().item()
    title = f"In the deeper half the first token's values\nare {ratio:.1f} times shorter than the others' (median)"
    label(axes, title, "layer", "norm of the values, mean over heads")
    return fig


# A cache that evicts.


def growth(factor: Float[Tensor, "L H"]) -> Figure:
    """Plot the factor by which all other attention weights grow when the first token is evicted."""
    fig, (axes,) = figure(width=7.2)
    axes.boxplot(factor.tolist(), positions=range(len(factor)), widths=0.6, showfliers=False)
    axes.set_xticks(range(0, len(factor), 5), [str(i) for i in range(0, len(factor), 5)])
    half = len(factor) // 2
    title = f"From layer {half} on all other weights grow {factor[half:].median():.1f} times (median head)"
    label(axes, title, "layer", "1 / (1 − fraction), heads of a layer")
    return fig


def streams(losses: Mapping[str, Float[Tensor, "T"]], budget: int, block: int = 64) -> Figure:
    """Plot the perplexity of each block of a text while it streams through different caches."""
    fig, (axes,) = figure(width=7.2)
    perplexity = {name: loss[budget:].mean().exp().item() for name, loss in losses.items()}
    for index, (name, loss) in enumerate(losses.items()):
        by_block = loss[: len(loss) // block * block].view(-1, block).mean(dim=1).exp()
        middle = [block * (i + 0.5) for i in range(len(by_block))]
        axes.plot(middle, by_block, label=f"{name}: {perplexity[name]:.1f}", **line_style(index))
    axes.axvline(budget, color="black", linestyle=":", linewidth=1)
    note = {"xycoords": ("data", "axes fraction"), "rotation": 90, "ha": "right", "va": "top", "fontsize": 9}
    axes.annotate("the cache is full", (budget, 0.98), **note)
    log_scale(axes, "y")
    outside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    axes.legend(frameon=False, fontsize=9, title="from there on", title_fontsize=9, **outside)
    worst, best = max(perplexity, key=perplexity.__getitem__), min(perplexity, key=perplexity.__getitem__)
    times = perplexity[worst] / perplexity[best]
    title = f"From token {budget} on: {worst} {times:.1f} times the perplexity of {best}"
    label(axes, title, "token of the text", f"perplexity, {block} tokens per point")
    return fig


def bars(perplexities: Mapping[str, float], title: str) -> Figure:
    """Plot perplexities as bars, or as dots on a log scale where they are far apart."""
    fig, (axes,) = figure(width=6.8, height=0.7 + 0.4 * len(perplexities))
    names, values = list(perplexities)[::-1], list(perplexities.values())[::-1]
    is_wide = max(values) > 8 * min(values)
    if is_wide:
        axes.plot(values, names, **line_style(0) | {"linestyle": "none"})
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.set_xscale("log")
    else:
        axes.barh(names, values, color=COLOURS[0], height=0.6)
    for index, value in enumerate(values):
        axes.annotate(f"  {value:,.{1 if value < 1000 else 0}f}", (value, index), va="center", fontsize=9)
    axes.margins(x=0.15)
    label(axes, title, "perplexity (log scale)" if is_wide else "perplexity")
    return fig


def constant_as_sink(perplexities: Mapping[str, float]) -> Figure:
    """Plot what a constant does in place of the first token: window, logit, logit and value, first token."""
    window, logit, both, token = (math.log(value) for value in perplexities.values())
    restored = [100 * (window - value) / (window - token) for value in (logit, both)]
    title = f"Logit and value restore {restored[1]:.0f} % of the loss,\nthe logit alone {restored[0]:.0f} %"
    return bars(perplexities, title)


def by_sinks(results: Results | None = None) -> Figure:
    """Plot perplexity by the number of first tokens that are kept: published, and ours with two standard errors."""
    results = results or load_measured("kv")
    fig, (left, right) = figure(2, width=4.9, height=3.2)
    published = {row["sinks"]: row["perplexity"] for row in rows(load_published("sinks"), "sinks")}
    left.plot(range(len(published)), list(published.values()), **line_style(1) | {"linestyle": "none"})
    above = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
    for place, value in enumerate(published.values()):
        left.annotate(f"{value:,.2f}", (place, value), (0, 6), **above)
    left.set_xticks(range(len(published)), [f"{n}" for n in published])
    ours = [rows(results, "streaming", name=name)[0] for name in CACHES]
    for place, row in enumerate(ours):
        low, high = reach(row["perplexity"], row["standard_error"])
        right.errorbar(place, row["perplexity"], yerr=[[low], [high]], capsize=3, **line_style(0))
        right.annotate(f"{row['perplexity']:.2f}", (place, row["perplexity"] + high), (0, 3), **above)
    right.set_xticks(range(len(CACHES)), [name.removesuffix(" sinks").removesuffix(" sink") for name in CACHES])
    for panel in (left, right):
        log_scale(panel, "y")
        panel.margins(x=0.12, y=0.2)
        panel.set_xlabel("first tokens kept")
    none, one, _, four, _ = (row["perplexity"] for row in ours)
    restored = _restored(published[0], published[1], published[8])
    more = 100 * (published[1] / published[8] - 1)
    title = f"Published (Llama-2-7B): one sink restores {restored:.0f} % of\nwhat eight do, and is {more:.0f} % above"
    label(left, title, "first tokens kept", "perplexity (log scale)")
    above_four = one_minus_four(results)
    difference = f"{100 * above_four.value:.2f} ± {100 * above_four.error:.2f} %"
    title = f"Here: one sink restores {_restored(none, one, four):.0f} % of\nwhat four do, and is {difference} above"
    label(right, title, "first tokens kept")
    return fig


def _restored(none: float, one: float, most: float) -> float:
    """Return how much of the log-perplexity one sink restores, in percent of what the most do."""
    return 100 * math.log(none / one) / math.log(none / most)


def mask_and_positions(keep: Bool[Tensor, "T T"], position: Int[Tensor, "T T"]) -> Figure:
    """Draw which tokens each query attends to, with the position of each of them in the cache."""
    fig, (axes,) = figure(width=5.4, height=4.6)
    n_tokens = len(keep)
    for query, token in keep.nonzero().tolist():
        is_own = query == token
        colour = COLOURS[1] if is_own else COLOURS[0]
        axes.add_patch(Rectangle((token, query), 0.94, 0.94, color=colour, linewidth=0))
        where = (token + 0.47, query + 0.47)
        axes.annotate(f"{position[query, token]}", where, ha="center", va="center", color="white", fontsize=9)
    axes.set(xlim=(0, n_tokens), ylim=(n_tokens, 0), aspect="equal")
    axes.grid(visible=False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks([i + 0.5 for i in range(n_tokens)], [f"{i}" for i in range(n_tokens)])
    largest = int(position[keep].max())
    title = f"{n_tokens} tokens, and no position in the cache above {largest}"
    label(axes, title, "position of the token in the text", "position of the query in the text")
    return fig


def cache_positions(position: Sequence[int] = DISTANT, trained: int = 16) -> Figure:
    """Draw the tokens of a cache by their position in the text and by their position in the cache."""
    fig, axes = figure(1, 2, width=7.6, height=1.1)
    newest = len(position) - 1
    for panel, (name, at) in zip(axes, {"text": list(position), "cache": list(range(newest + 1))}.items(), strict=True):
        panel.scatter(at[:-1], [0] * newest, marker="s", s=36, color=COLOURS[0])
        panel.scatter(at[-1:], [0], marker="D", s=36, color=COLOURS[1])
        panel.set_xlim(-1, position[-1] + 2)
        panel.set_yticks([])
        panel.spines["left"].set_visible(False)
        title = f"In the {name}: the newest token (diamond) is {at[-1] - at[0]} positions from the first"
        label(panel, title, f"position in the {name}")
    if position[-1] - position[0] > trained:
        axes[0].axvspan(trained, position[-1] + 2, color=COLOURS[3], alpha=0.25, linewidth=0)
        where = {"xycoords": ("data", "axes fraction"), "fontsize": 8, "va": "top"}
        axes[0].annotate("beyond the trained length", (trained, 0.9), **where)
    return fig


def gaps(results: Results | None = None) -> Figure:
    """Plot perplexity by the distance of four sinks from the rest of the text, by how positions are counted."""
    results = results or load_measured("kv")
    fig, (axes,) = figure(width=7.2)
    highest = {}
    names = {"original": "positions of the text", "rolling": "positions in the cache"}
    for index, (positions, name) in enumerate(names.items()):
        points = sorted(rows(results, "gaps", positions=positions), key=lambda row: row["gap"])
        perplexities = [row["perplexity"] for row in points]
        axes.plot(range(len(points)), perplexities, label=name, **line_style(index))
        axes.set_xticks(range(len(points)), [f"{row['gap']:,}" for row in points])
        highest[positions] = max(perplexities)
    log_scale(axes, "y")
    axes.legend(frameon=False)
    title = f"Highest: {highest['original']:,.0f} with positions of the text, {highest['rolling']:.1f} in the cache"
    label(axes, title, "positions between the sinks and the rest of the text", "perplexity (log scale)")
    return fig


# Cost.


def four_patterns() -> Figure:
    """Draw which tokens each of four ways attends to, and what it computes for the newest token."""
    fig, axes = figure(4, width=2.5, height=2.9)
    names = ("dense: T² pairs", "window: T L", "recomputation: T L²", "sinks + window: T L")
    for panel, name in zip(axes, names, strict=True):
        panel.set(xlim=(0, N_TOKENS), ylim=(N_TOKENS, 0), aspect="equal", xticks=[], yticks=[])
        panel.grid(visible=False)
        for query in range(N_TOKENS):
            for token in range(query + 1):
                if colour := _cell_colour(name, query, token):
                    panel.add_patch(Rectangle((token, query), 0.92, 0.92, color=colour, linewidth=0))
        label(panel, name, "token attended to")
    axes[0].set_ylabel("query")
    return fig


def _cell_colour(name: str, query: int, token: int) -> str | None:
    """Return dark for the attention of a query, yellow for sinks, light for what the newest token recomputes."""
    is_near = token > query - WINDOW
    if name.startswith("dense"):
        return COLOURS[0]
    if name.startswith("window"):
        return COLOURS[0] if is_near else None
    if name.startswith("recomputation"):
        is_in_last = min(query, token) >= N_TOKENS - WINDOW
        return COLOURS[0] if query == N_TOKENS - 1 and is_in_last else COLOURS[4] if is_in_last else None
    return COLOURS[3] if token < SINKS else COLOURS[0] if is_near else None


def flop_counts(n_read: Sequence[int], flops: Mapping[str, Sequence[float]], window: int) -> Figure:
    """Plot the FLOPs for one more token over the number of tokens read so far."""
    fig, (axes,) = figure(width=7.2, height=3.4)
    for index, (name, values) in enumerate(flops.items()):
        axes.plot(n_read, [value / 1e9 for value in values], label=name, **line_style(index))
    log_scale(log_scale(axes, "x"), "y")
    axes.set_xticks(list(n_read), [f"{n:,}" for n in n_read], rotation=30, fontsize=8)
    axes.legend(frameon=False, fontsize=9)
    last = {name: values[-1] / flops["streaming"][-1] for name, values in flops.items()}
    title = f"After {n_read[-1]:,} tokens, dense attention costs {last['dense']:.0f} times a streaming step,\n"
    title += f"a recomputed window of {window} tokens {last['recomputation']:.0f} times"
    label(axes, title, "tokens read (log scale)", "GFLOP for one more token (log scale)")
    return fig


# A softmax with a sink.


def gate() -> Figure:
    """Plot σ(lse − sink), the fraction of the output that remains."""
    fig, (axes,) = figure(width=6.4, height=3.0)
    difference = torch.linspace(-6, 6, 121)
    axes.plot(difference, 100 * difference.sigmoid(), color=COLOURS[0], label="on the tokens")
    axes.plot(difference, 100 * (-difference).sigmoid(), color=COLOURS[1], linestyle="--", label="on the sink")
    axes.axvline(0, color=COLOURS[4], linewidth=1)
    axes.legend(frameon=False, fontsize=9)
    title = "Where all logits are far below the sink, the output is near zero"
    label(axes, title, "log-sum-exp of the logits − sink", "attention (%)")
    return fig
