"""The figures of lesson 08. Each takes data, and returns a figure whose title says what the data show.

Dimension key: L layers, H heads, T tokens of a text.
"""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale

DISTANT = (0, 1, 2, 3, *range(24, 32))  # positions in the text of four sinks and a window


def share_over_depth(share: Tensor, even: float) -> Figure:
    """What the first token receives, (L, H): each head a dot, the layer's mean as a line, and an even share."""
    fig, (axes,) = figure(width=7.2)
    layers = torch.arange(len(share))
    spread = layers[:, None] + torch.linspace(-0.2, 0.2, share.shape[1])
    axes.scatter(spread, 100 * share, s=8, color=COLOURS[4], label="a head")
    axes.plot(layers, 100 * share.mean(dim=1), markersize=4, label="mean of the layer", **line_style(0))
    axes.axhline(100 * even, color=COLOURS[1], linestyle=":", label=f"an even share: {100 * even:.1f} %")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    axes.set_ylim(-3, 118)
    axes.set_yticks(range(0, 101, 20))
    half = len(share) // 2
    deep = 100 * share[half:].mean().item()
    label(
        axes, f"From layer {half} on the first token gets {deep:.0f} % of all attention", "layer", "attention on it (%)"
    )
    return fig


def by_token(received: Tensor) -> Figure:
    """What each token of a text receives, (T,): the first one beside all others."""
    fig, (axes,) = figure(width=7.2, height=3.0)
    axes.plot(
        range(1, len(received)), 100 * received[1:], label="other tokens", **line_style(0) | {"linestyle": "none"}
    )
    axes.plot([0], 100 * received[:1], label="the first token", **line_style(1) | {"markersize": 8})
    axes.legend(frameon=False, fontsize=9)
    times = (received[0] / received[1:].max()).item()
    label(
        axes, f"The first token receives {times:.1f} times as much as any other", "token", "attention it receives (%)"
    )
    return fig


def first_words(shares: Mapping[str, Tensor]) -> Figure:
    """The share of position 0 over depth, for the same text behind different first tokens."""
    fig, (axes,) = figure(width=7.2)
    for index, (name, share) in enumerate(shares.items()):
        axes.plot(100 * share, markersize=3, label=name, **line_style(index))
    axes.legend(frameon=False, fontsize=9)
    deep = [100 * share[len(share) // 2 :].mean().item() for share in shares.values()]
    title = f"Whatever stands there: {min(deep):.0f} to {max(deep):.0f} % in the deeper half of the layers"
    label(axes, title, "layer", "attention on position 0 (%)")
    return fig


def values_over_depth(lengths: Tensor) -> Figure:
    """Length of the first token's values and of the others', (L, T)."""
    fig, (axes,) = figure(width=7.2)
    first, others = lengths[:, 0], lengths[:, 8:].mean(dim=1)
    axes.plot(first, markersize=4, label="first token", **line_style(0))
    axes.plot(others, markersize=4, label="other tokens, mean", **line_style(1))
    axes.legend(frameon=False, fontsize=9)
    half = len(first) // 2
    ratio = (others[half:] / first[half:]).median().item()
    title = f"In the deeper half its values are {ratio:.1f} times shorter than others"
    label(axes, title, "layer", "length of the values, mean over heads")
    return fig


def growth(share: Tensor) -> Figure:
    """1 / (1 − share) for (L, H): by how much all other weights grow when the first token leaves."""
    fig, (axes,) = figure(width=7.2)
    factor = 1 / (1 - share.clamp(max=0.999))
    axes.boxplot(factor.tolist(), positions=range(len(share)), widths=0.6, showfliers=False)
    axes.set_xticks(range(0, len(share), 5), [str(i) for i in range(0, len(share), 5)])
    half = len(share) // 2
    title = f"Without it all other weights grow {factor[half:].median():.1f} times from layer {half} on (median)"
    label(axes, title, "layer", "1 / (1 − share), heads of a layer")
    return fig


def streams(losses: Mapping[str, Tensor], budget: int, block: int = 64) -> Figure:
    """Perplexity of each block of a text while it streams, by cache."""
    fig, (axes,) = figure(width=7.2)
    after = {name: loss[budget:].mean().exp().item() for name, loss in losses.items()}
    for index, (name, loss) in enumerate(losses.items()):
        whole = loss[: len(loss) // block * block].view(-1, block).mean(dim=1).exp()
        middle = [block * (i + 0.5) for i in range(len(whole))]
        axes.plot(middle, whole, label=f"{name}: {after[name]:.1f}", **line_style(index))
    axes.axvline(budget, color="black", linestyle=":", linewidth=1)
    note = {"xycoords": ("data", "axes fraction"), "rotation": 90, "ha": "right", "va": "top", "fontsize": 9}
    axes.annotate("the cache is full", (budget, 0.98), **note)
    log_scale(axes, "y")
    beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    axes.legend(frameon=False, fontsize=9, title="from there on", title_fontsize=9, **beside)
    worst, best = max(after, key=after.__getitem__), min(after, key=after.__getitem__)
    title = f"From token {budget} on: {worst} {after[worst] / after[best]:.1f} times the perplexity of {best}"
    label(axes, title, "token of the text", f"perplexity, {block} tokens a point")
    return fig


def bars(values: Mapping[str, float], title: str) -> Figure:
    """The perplexity of each name as a bar; as a dot on a log scale, without lengths, where they lie far apart."""
    fig, (axes,) = figure(width=6.8, height=0.7 + 0.4 * len(values))
    names = list(values)[::-1]
    far = max(values.values()) > 8 * min(values.values())
    if far:
        axes.plot([values[name] for name in names], names, **line_style(0) | {"linestyle": "none"})
        axes.set_ylim(-0.6, len(names) - 0.4)
        log_scale(axes, "x")
    else:
        axes.barh(names, [values[name] for name in names], color=COLOURS[0], height=0.6)
    for index, name in enumerate(names):
        axes.annotate(f"  {values[name]:.1f}", (values[name], index), va="center", fontsize=9)
    axes.margins(x=0.15)
    label(axes, title, "perplexity (log scale)" if far else "perplexity")
    return fig


def places(position: Sequence[int] = DISTANT, trained: int | None = 16) -> Figure:
    """The tokens in a cache by their position in the text, and by their place in the cache."""
    fig, axes = figure(1, 2, width=7.6, height=1.1)
    query = len(position) - 1
    rows = (("in the text", list(position)), ("in the cache", list(range(len(position)))))
    far = position[-1] - position[0]
    for panel, (name, at) in zip(axes, rows, strict=True):
        panel.scatter(at[:-1], [0] * query, marker="s", s=36, color=COLOURS[0])
        panel.scatter(at[-1:], [0], marker="D", s=36, color=COLOURS[1])
        panel.set_xlim(-1, position[-1] + 2)
        panel.set_yticks([])
        panel.spines["left"].set_visible(False)
        label(panel, f"{name}: the newest token (diamond) is {at[-1] - at[0]} away from the first", "")
    if trained is not None and far > trained:
        axes[0].axvspan(trained, position[-1] + 2, color=COLOURS[3], alpha=0.25, linewidth=0)
        axes[0].annotate(
            "farther than trained", (trained, 0.9), xycoords=("data", "axes fraction"), fontsize=8, va="top"
        )
    axes[1].set_xlabel("position")
    return fig


def gate() -> Figure:
    """σ(lse − sink): what is left of the output."""
    fig, (axes,) = figure(width=6.4, height=3.0)
    difference = torch.linspace(-6, 6, 121)
    axes.plot(difference, 100 * difference.sigmoid(), color=COLOURS[0], label="read from the tokens")
    axes.plot(difference, 100 * (-difference).sigmoid(), color=COLOURS[1], linestyle="--", label="lost in the sink")
    axes.axvline(0, color=COLOURS[4], linewidth=1)
    axes.legend(frameon=False, fontsize=9)
    title = "A query that finds nothing above the sink reads nothing"
    label(axes, title, "log-sum-exp of the logits − sink", "of the attention (%)")
    return fig
