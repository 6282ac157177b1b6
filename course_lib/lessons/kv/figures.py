"""The figures of lesson 07. Each takes data, and returns a figure whose title says what the data show.

Dimension key: S moments, L layers, T tokens of a text, P predictions.
"""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.kv.analysis.power_law import PowerLaw
from course_lib.lessons.common.dots import edged
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale

HATCHES = ("", "//", "..", "xx", "\\\\", "++")
GREYS = ("#16324f", "#c8553d", "#2a9d8f", "#e9b44c", "#8d99ae", "#d9dde3")


def streams(kept: Mapping[str, Tensor], n_read: Sequence[int], where: str) -> Figure:
    """Who is in the cache while a text streams by: (S, T) for each policy. Dark is kept, light grey has left."""
    fig, axes = figure(len(kept), width=3.5, height=3.6)
    for panel, (name, rows) in zip(axes, kept.items(), strict=True):
        seen = torch.arange(rows.shape[1]) < torch.tensor(n_read)[:, None]
        shade = torch.where(rows, 1.0, torch.where(seen, 0.18, 0.0))
        extent = (0, rows.shape[1], n_read[-1], 0)
        panel.imshow(shade, cmap="Greys", vmin=0, vmax=1.1, aspect="auto", interpolation="nearest", extent=extent)
        panel.grid(visible=False)
        stays = rows[-1].nonzero().flatten()
        old = int((stays < n_read[-1] - len(stays)).sum())
        label(panel, f"{name}: {old} of {len(stays)} tokens\nthat stay are not the newest", "token of the text")
    axes[0].set_ylabel(f"tokens read ({where})")
    return fig


def excess(losses: Mapping[str, Tensor], full: Tensor, budget: int, block: int = 32) -> Figure:
    """By block of tokens, how many times the perplexity of the full cache each policy has, for (P,) losses in nats."""
    fig, (axes,) = figure(width=7.4)
    after = {}
    for index, (name, mine) in enumerate(losses.items()):
        difference = mine - full
        n = len(difference) // block
        ratio = difference[: n * block].view(n, block).mean(dim=1).exp()
        axes.plot([block * (i + 1) for i in range(n)], ratio, markersize=4, label=name, **line_style(index))
        after[name] = difference[budget:].mean().exp().item()
    axes.axvline(budget, color="black", linewidth=0.8, linestyle=":")
    beside = {"xycoords": ("data", "axes fraction"), "rotation": 90, "ha": "right", "va": "top", "fontsize": 9}
    axes.annotate("the first token leaves ", (budget, 1), **beside)
    axes.axhline(1, color=COLOURS[4], linewidth=0.8)
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    listing = ", ".join(f"{name} {value:.2f}" for name, value in after.items())
    title = f"Once {budget} slots are full, times the perplexity of the full cache:\n{listing}"
    label(axes, title, "tokens read", f"ratio, mean of {block} tokens (log scale)")
    return fig


def mass_by_rank(mass: Tensor, layers: Sequence[int]) -> Figure:
    """Share of all attention by rank of the token that receives it, (L, T), for some layers; a power of the rank
    is fitted to the middle one, from the second rank to half of all.
    """
    fig, (axes,) = figure(width=7.2)
    ordered = mass.sort(dim=1, descending=True).values
    for index, layer in enumerate(layers):
        look = line_style(index) | {"marker": ""}
        axes.plot(range(1, ordered.shape[1] + 1), 100 * ordered[layer], label=f"layer {layer}", **look)
    axes.axhline(100 / mass.shape[1], color="black", linewidth=1.0, linestyle=":", label="an even share")
    middle = ordered[layers[len(layers) // 2]]
    law = PowerLaw.fit(middle, 2, len(middle) // 2)
    rank = torch.arange(law.first, law.last + 1).double()
    shift = (middle[law.first - 1 : law.last].double().log() - law.slope * rank.log()).mean()
    fitted = 100 * (law.slope * rank.log() + shift).exp()
    axes.plot(
        rank,
        fitted,
        color="black",
        linewidth=2.2,
        alpha=0.35,
        label=f"layer {layers[len(layers) // 2]} fitted: rank to the power {law.slope:.2f}",
    )
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False, fontsize=9)
    n = round(0.05 * mass.shape[1])
    few = 100 * ordered[:, :n].sum(dim=1)
    title = f"5 % of the tokens receive {few.min():.0f} to {few.max():.0f} % of all attention, by layer"
    label(axes, title, "rank of the token (log scale)", "share of all attention (%, log scale)")
    return fig


def by_head(sparsity: Tensor) -> Figure:
    """Share of a text's weights that are negligible, (L, A): a dot a head, and the mean of its layer."""
    fig, (axes,) = figure(width=7.2, height=3.4)
    layers = range(len(sparsity))
    for head in sparsity.T:
        axes.plot(layers, 100 * head, color="black", linestyle="none", marker=".", markersize=5, alpha=0.45)
    axes.plot(layers, 100 * sparsity.mean(dim=1), label="mean of the layer", **(line_style(0) | {"marker": ""}))
    axes.legend(frameon=False, fontsize=9)
    apart = 100 * (sparsity.amax(dim=1) - sparsity.amin(dim=1))
    title = f"First and last head of a layer lie {apart.min():.0f} to {apart.max():.0f} points apart, in one text"
    label(axes, title, "layer", "negligible weights of a head (%)")
    return fig


def who_receives(by_kind: Mapping[str, Tensor]) -> Figure:
    """Share of all attention by kind of token over depth, (L,) each, stacked."""
    fig, (axes,) = figure(width=7.4)
    below = torch.zeros(len(next(iter(by_kind.values()))))
    by_kind = {"neighbours" if kind == "near" else kind: share for kind, share in by_kind.items() if share.any()}
    for index, (kind, share) in enumerate(by_kind.items()):
        look = {"facecolor": GREYS[index % len(GREYS)], "hatch": HATCHES[index % len(HATCHES)], "edgecolor": "white"}
        # One outline for all layers: with a hatched bar for each of them the slide took minutes to print.
        edges, above = torch.arange(len(share) + 1) - 0.5, below + share
        axes.stairs(
            100 * above.numpy(), edges.numpy(), baseline=100 * below.numpy(), fill=True, label=kind, linewidth=0, **look
        )
        below = above
    axes.grid(visible=False)
    axes.set_ylim(0, 118)
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, fontsize=8, ncols=6, loc="upper center")
    shares = ", ".join(f"{kind} {100 * share.mean():.0f} %" for kind, share in by_kind.items() if share.mean() >= 0.02)
    label(axes, f"Mean over the layers: {shares}", "layer", "share of all attention (%)")
    return fig


def answers(protocols: Mapping[str, Mapping[str, tuple[float, tuple[float, float]]]], n: int) -> Figure:
    """Share of right answers to n questions with 95 % intervals, by protocol and policy.

    The first protocol leaks, and may have fewer policies.
    """
    fig, (axes,) = figure(width=7.2)
    names = list(max(protocols.values(), key=len))
    for index, (protocol, rows) in enumerate(protocols.items()):
        here = [i for i, name in enumerate(names) if name in rows]
        share, (low, high) = [100 * rows[names[i]][0] for i in here], _errors([rows[names[i]] for i in here])
        look = {"color": COLOURS[index], "hatch": HATCHES[index], "label": protocol, "capsize": 3}
        places = [i + 0.36 * (index - (len(protocols) - 1) / 2) for i in here]
        edged(axes.bar(places, share, 0.34, yerr=[low, high], **look))
    axes.set_xticks(range(len(names)), names, fontsize=10 if len(names) < 6 else 8)
    axes.set_ylim(0, 128)
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="upper left")
    (first, leaked), *fair = protocols.items()
    more = [leaked[name][0] - rows[name][0] for _, rows in fair for name in rows if name in leaked]
    title = f"{first.capitalize()}: up to {100 * max(more, default=0.0):.0f} points more than the cache knows"
    label(axes, title, "", f"right answers (%), n = {n}")
    return fig


def _errors(rows: Sequence[tuple[float, tuple[float, float]]]) -> tuple[list[float], list[float]]:
    """Lengths of the error bars below and above, in per cent."""
    below = [max(0.0, 100 * (share - low)) for share, (low, _) in rows]
    return below, [max(0.0, 100 * (high - share)) for share, (_, high) in rows]


def persistence(ratio: Tensor, chance: Tensor) -> Figure:
    """Of the tokens that matter later, the share that mattered before, over depth, beside what chance would give."""
    fig, (axes,) = figure(width=7.2)
    axes.plot(100 * ratio, markersize=4, label="mattered before", **line_style(0))
    axes.plot(100 * chance, markersize=4, label="by chance", **line_style(1))
    axes.axhline(95, color=COLOURS[4], linestyle=":", label="95 %, the paper's mark")
    axes.set_ylim(0, 105)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    above = int((ratio > 0.95).sum())
    title = f"Above 95 % in {above} of {len(ratio)} layers; chance alone gives {100 * chance.mean():.0f} % on average"
    label(axes, title, "layer", "share of the tokens that matter later (%)")
    return fig


def nearest(cosines: Mapping[str, Tensor], width: float = 7.2, height: float = 3.6) -> Figure:
    """Of tokens that leave, the cosine with the nearest that stays: median over depth, (L, tokens) each."""
    fig, (axes,) = figure(width=width, height=height)
    for index, (name, values) in enumerate(cosines.items()):
        axes.plot(values.median(dim=1).values, markersize=4, label=name, **line_style(index))
        low, high = values.quantile(0.1, dim=1), values.quantile(0.9, dim=1)
        axes.fill_between(range(len(values)), low, high, color=COLOURS[index], alpha=0.15, linewidth=0)
    axes.set_ylim(0, 1.05)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    medians = ", ".join(f"{name} {values.median():.2f}" for name, values in cosines.items())
    label(axes, f"Nearest that stays, median cosine:\n{medians}", "layer", "cosine (median, 10 to 90 % shaded)")
    return fig


def sizes_by_layer(sizes: Mapping[str, Sequence[int]]) -> Figure:
    """Slots of each layer under several ways to divide a budget."""
    fig, (axes,) = figure(width=7.2, height=3.0)
    for index, (name, slots) in enumerate(sizes.items()):
        hollow = {"markersize": 7, "markerfacecolor": "none"} if index == len(sizes) - 1 else {"markersize": 4}
        axes.plot(slots, label=f"{name}: {sum(slots)} in all", **line_style(index) | hollow)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    ranges = "; ".join(f"{name} {min(slots)} to {max(slots)}" for name, slots in sizes.items() if len(set(slots)) > 1)
    label(axes, f"Slots by layer: {ranges}", "layer", "slots of each head")
    return fig
