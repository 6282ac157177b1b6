"""Figures of the heads that the notebook of lesson 11 looks at.

Dimension key: L layers, T tokens in N blocks, R last queries, D channels.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.attention.prefill.index import n_blocks
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.tables import percent
from course_lib.lessons.sparse_attention.live.heads import BLOCK, Chosen, Head

FAINT = 0.35  # power of the attention that is drawn, so that small numbers are seen


def block_map(weights: Float[Tensor, "T T"]) -> Float[Tensor, "N N"]:
    """The attention of each block of queries to each block of keys; rows sum to 1."""
    n_tokens, n = len(weights), n_blocks(len(weights), BLOCK)
    block = torch.arange(n_tokens) // BLOCK
    summed = torch.zeros(n, n).index_put_((block[:, None], block), weights, accumulate=True)
    return summed / torch.bincount(block)[:, None]


def maps(weights: Mapping[Head, Float[Tensor, "T T"]]) -> Figure:
    """Some heads side by side; the title of each says how many blocks hold nearly all of its attention."""
    fig, panels = figure(n_columns=len(weights), width=3.2, height=3.3)
    for axes, (head, each) in zip(panels, weights.items(), strict=True):
        shown = block_map(each)
        _map(axes, shown**FAINT)
        largest = shown.flatten().sort(descending=True).values.cumsum(0) / shown.sum()
        n = int((largest < 0.95).sum()) + 1
        causal = len(shown) * (len(shown) + 1) // 2
        label(axes, f"{named(head)}:\n{n} of {causal} blocks hold 95 %", "block of keys")
    panels[0].set_ylabel("block of queries")
    return fig


def named(head: Head) -> str:
    return f"layer {head[0]}, head {head[1]}"


def divergences(root: Float[Tensor, "L heads"], tau: float) -> Figure:
    """√JSD of each head, layer by layer; below τ it is called query-aware."""
    _, (axes,) = figure(width=8.0, height=3.0)
    layer = torch.arange(len(root))[:, None].expand(root.shape)
    below = root < tau
    axes.plot(layer[~below], root[~below], "o", color=COLOURS[4], markersize=4, label="vertical-slash")
    axes.plot(layer[below], root[below], "s", color=COLOURS[1], markersize=6, label="query-aware")
    axes.axhline(tau, color="black", linestyle=":", linewidth=1)
    axes.set_ylim(0, 0.9)
    axes.legend(frameon=False, fontsize=9.5)
    title = f"{int(below.sum())} of {root.numel()} heads lie below τ = {tau:g} (dotted)"
    return label(axes, title, "layer", "√JSD of guess and truth").figure


def needed(counts: Mapping[float, Float[Tensor, "n"]], n_blocks_: int) -> Figure:
    """How many columns of blocks each head needs for a share, heads sorted."""
    _, (axes,) = figure(width=7.4, height=3.2)
    for index, (share, each) in enumerate(counts.items()):
        look = line_style(index) | {"marker": ""}
        axes.plot(torch.linspace(0, 100, len(each)), each.sort().values, label=f"{percent(share)}", **look)
    axes.set_ylim(0, n_blocks_ + 0.5)
    axes.locator_params(axis="y", integer=True)
    axes.legend(frameon=False, title="of the attention", fontsize=9.5)
    share, most = max(counts.items())
    few = float((most <= n_blocks_ / 2).float().mean())
    title = f"{percent(few)} of the heads find {percent(share)} in half of the {n_blocks_} blocks or fewer"
    return label(axes, title, "heads, sorted (%)", "blocks of keys needed").figure


def lines(found: Mapping[Head, tuple[Float[Tensor, "T"], Float[Tensor, "T"]]]) -> Figure:
    """What each key and each distance gets, two heads on top of each other."""
    fig, (left, right) = figure(n_columns=2, width=4.8, height=3.0)
    for index, (head, (vertical, slash)) in enumerate(found.items()):
        look = line_style(index) | {"marker": ""}
        left.plot(100 * vertical.cumsum(0), label=named(head), **look)
        right.plot(100 * slash.cumsum(0), **look)
    left.legend(frameon=False, fontsize=9.5, loc="center left", bbox_to_anchor=(0.02, 0.6))
    first = {head: float(vertical[0]) for head, (vertical, _) in found.items()}
    near = {head: float(slash[:BLOCK].sum()) for head, (_, slash) in found.items()}
    one, other = max(first, key=first.get), max(near, key=near.get)
    label(left, f"{named(one)}: {percent(first[one])} to key 0", "key (token)", "attention up to it (%)")
    said = f"{named(other)}: {percent(near[other])} to the last {BLOCK} tokens"
    label(right, said, "distance (tokens)", "attention up to it (%)")
    for axes in (left, right):
        axes.set_ylim(0, 103)
    return fig


def mask(chosen: Chosen, gamma: float, head: Head) -> Figure:
    """What a head attends to, and the blocks that hold γ of it."""
    fig, (left, right) = figure(n_columns=2, width=3.6, height=3.5)
    reads = chosen.reads(gamma)
    shown = block_map(chosen.weights)
    _map(left, shown**FAINT)
    label(left, f"{named(head)}: what it attends to", "block of keys", "block of queries")
    right.imshow(reads, cmap="Greys", vmin=0, vmax=1.3, interpolation="nearest")
    right.grid(visible=False)
    right.spines[["top", "right"]].set_visible(True)
    density, held = chosen.density(reads), chosen.coverage(reads)
    said = f"γ = {gamma:g}: {percent(density)} of the entries\nhold {percent(held, 1)} of the attention"
    label(right, said, "key (token)", "query (token)")
    return fig


def sent(code: Bool[Tensor, "T D"], share: float, name: str) -> Figure:
    """Which channels of the keys are sent, token by token."""
    _, (axes,) = figure(width=8.6, height=2.8)
    axes.imshow(code.T, cmap="Greys", vmin=0, vmax=1.3, aspect="auto", interpolation="nearest")
    axes.grid(visible=False)
    often = code.float().mean(dim=0)
    title = f"{name}: {percent(share)} of the values are not sent (white); "
    title += f"by channel {percent(1 - float(often.max()))} to {percent(1 - float(often.min()))}"
    return label(axes, title, "token", "channel of the key").figure


def _map(axes: Axes, shown: Float[Tensor, "N N"]) -> None:
    axes.imshow(shown, cmap="Greys", vmin=0, interpolation="nearest")
    axes.grid(visible=False)
    axes.spines[["top", "right"]].set_visible(True)
    axes.locator_params(integer=True)
