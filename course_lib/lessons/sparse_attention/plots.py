"""The figures of lesson 11 on FlexPrefill and speculative decoding, for notebook and deck.

A figure's title is its finding, computed from the data. Without arguments a figure shows the stored results.

Dimension key: L layers, T tokens in N blocks, R last queries.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.attention.prefill.as_released import tokens_taken_for_blocks
from course_lib.attention.prefill.cumulative import smallest_set
from course_lib.attention.prefill.divergence import jensen_shannon
from course_lib.attention.prefill.index import n_blocks
from course_lib.attention.speculative.accept import expected_tokens, overlap, residual
from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row, of_repetitions
from course_lib.lessons.common.results import Measured, listed, load_bench, percent
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.sparse_attention.estimates import clock, prefill
from course_lib.lessons.sparse_attention.estimates.rows import results
from course_lib.lessons.sparse_attention.heads import BLOCK, Chosen, Head

FAINT = 0.35  # power of the attention that is drawn, so that small numbers are visible
TAU = 0.1  # FlexPrefill's threshold for query-aware heads


def named(head: Head) -> str:
    return f"layer {head[0]}, head {head[1]}"


# Heads of one text


def maps(weights: Mapping[Head, Float[Tensor, "T T"]]) -> Figure:
    """Plot the attention of some heads, block by block; a title counts the blocks that hold 95 % of it."""
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


def block_map(weights: Float[Tensor, "T T"]) -> Float[Tensor, "N N"]:
    """Sum the attention from each block of queries to each block of keys; rows sum to 1."""
    n_tokens, n = len(weights), n_blocks(len(weights), BLOCK)
    block = torch.arange(n_tokens) // BLOCK
    summed = torch.zeros(n, n).index_put_((block[:, None], block), weights, accumulate=True)
    return summed / torch.bincount(block)[:, None]


def _map(axes: Axes, shown: Float[Tensor, "N N"]) -> None:
    axes.imshow(shown, cmap="Greys", vmin=0, interpolation="nearest")
    axes.grid(visible=False)
    axes.spines[["top", "right"]].set_visible(True)
    axes.locator_params(integer=True)


def divergence_pairs() -> Figure:
    """Plot two made-up heads: one whose guess is close to the truth, and one whose guess is far from it."""
    fig, panels = figure(n_columns=2, width=4.2, height=2.7)
    truth = torch.tensor([[0.55, 0.05, 0.1, 0.1, 0.2], [0.0, 0.6, 0.0, 0.35, 0.05]])
    guess = torch.tensor([[0.5, 0.1, 0.1, 0.1, 0.2], [0.45, 0.1, 0.15, 0.1, 0.2]])
    for axes, p, q in zip(panels, truth, guess, strict=True):
        for shift, values, index, hatch, name in ((-0.2, q, 4, "//", "guess ā"), (0.2, p, 0, "", "truth â")):
            axes.bar(
                torch.arange(5) + shift, values, 0.38, color=COLOURS[index], hatch=hatch, edgecolor="white", label=name
            )
        root = float(jensen_shannon(p, q).sqrt())
        kind = "query-aware" if root < TAU else "vertical-slash"
        label(axes, f"√JSD = {root:.2f}: {kind}", "block of keys", "attention")
    panels[0].legend(frameon=False, fontsize=9.5)
    return fig


def divergences(root: Float[Tensor, "L heads"], tau: float = TAU) -> Figure:
    """Plot √JSD of each head, layer by layer; a head below τ is query-aware."""
    _, (axes,) = figure(width=8.0, height=3.0)
    layer = torch.arange(len(root))[:, None].expand(root.shape)
    below = root < tau
    axes.plot(layer[~below], root[~below], "o", color=COLOURS[4], markersize=4, label="vertical-slash")
    axes.plot(layer[below], root[below], "s", color=COLOURS[1], markersize=6, label="query-aware")
    axes.axhline(tau, color="black", linestyle=":", linewidth=1)
    axes.set_ylim(0, 0.9)
    axes.legend(frameon=False, fontsize=9.5)
    title = f"{int(below.sum())} of {root.numel()} heads are below τ = {tau:g} (dotted)"
    return label(axes, title, "layer", "√JSD of guess and truth").figure


def needed(counts: Mapping[float, Float[Tensor, "n"]], n_columns: int) -> Figure:
    """Plot how many columns of blocks each head needs for a fraction of its attention, heads sorted."""
    _, (axes,) = figure(width=7.4, height=3.2)
    for index, (gamma, each) in enumerate(counts.items()):
        look = line_style(index) | {"marker": ""}
        axes.plot(torch.linspace(0, 100, len(each)), each.sort().values, label=f"γ = {gamma:g}", **look)
    axes.set_ylim(0, n_columns + 0.5)
    axes.locator_params(axis="y", integer=True)
    axes.legend(frameon=False, fontsize=9.5)
    gamma, most = max(counts.items())
    few = float((most <= n_columns / 2).float().mean())
    title = f"For γ = {gamma:g}, half of the {n_columns} blocks are enough for {percent(few)} of the heads"
    return label(axes, title, "heads, sorted (%)", "blocks of keys needed").figure


def tokens_or_blocks() -> Figure:
    """Plot what γ = 0.9 needs in a made-up head, and how much the released code takes: it counts tokens."""
    _, (axes,) = figure(width=8.0, height=2.8)
    size, n = 16, 16
    mass = torch.full((n, size), 0.002)
    mass[:, 7] = 1.0  # one strong token in each block
    mass *= torch.linspace(1.6, 0.4, n)[:, None]
    blocks = mass.sum(dim=1)
    needed_blocks = smallest_set(blocks, 0.9)
    taken = int(tokens_taken_for_blocks((mass / mass.sum()).flatten(), 0.9, size))
    colours = [COLOURS[1] if i < taken else COLOURS[0] if needed_blocks[i] else "#dfe3e8" for i in range(n)]
    axes.bar(range(n), blocks / blocks.sum() * 100, color=colours, edgecolor=COLOURS[0], linewidth=0.6)
    held = float(blocks[:taken].sum() / blocks.sum())
    title = f"90 % needs {int(needed_blocks.sum())} blocks; counted as tokens, {taken} (red) that hold {percent(held)}"
    return label(axes, title, f"block of {size} tokens, one strong token in each", "attention (%)").figure


def lines(found: Mapping[Head, tuple[Float[Tensor, "T"], Float[Tensor, "T"]]]) -> Figure:
    """Plot the attention up to each key, and up to each distance, for some heads."""
    fig, (left, right) = figure(n_columns=2, width=4.8, height=3.0)
    for index, (head, (vertical, slash)) in enumerate(found.items()):
        look = line_style(index) | {"marker": ""}
        left.plot(100 * vertical.cumsum(0), label=named(head), **look)
        right.plot(100 * slash.cumsum(0), **look)
    left.legend(frameon=False, fontsize=9.5, loc="center left", bbox_to_anchor=(0.02, 0.6))
    first = {head: float(vertical[0]) for head, (vertical, _) in found.items()}
    near = {head: float(slash[:BLOCK].sum()) for head, (_, slash) in found.items()}
    one, other = max(first, key=first.get), max(near, key=near.get)
    label(left, f"{named(one)}: {percent(first[one])} on key 0", "key (token)", "attention up to it (%)")
    title = f"{named(other)}: {percent(near[other])} on the last {BLOCK} tokens"
    label(right, title, "distance (tokens)", "attention up to it (%)")
    for axes in (left, right):
        axes.set_ylim(0, 103)
    return fig


def mask(chosen: Chosen, gamma: float, head: Head) -> Figure:
    """Plot what a head attends to, and the blocks that hold γ of it."""
    fig, (left, right) = figure(n_columns=2, width=3.6, height=3.5)
    reads = chosen.reads(gamma)
    _map(left, block_map(chosen.weights) ** FAINT)
    label(left, f"{named(head)}: its attention", "block of keys", "block of queries")
    right.imshow(reads, cmap="Greys", vmin=0, vmax=1.3, interpolation="nearest")
    right.grid(visible=False)
    right.spines[["top", "right"]].set_visible(True)
    density, coverage = chosen.density(reads), chosen.coverage(reads)
    title = f"γ = {gamma:g}: {percent(density)} of the entries\nhold {percent(coverage, 1)} of the attention"
    label(right, title, "key (token)", "query (token)")
    return fig


# FlexPrefill, measured


def over_gamma(measured: Measured | None = None) -> Figure:
    """Plot the fraction of the blocks that is read and what that costs, over γ, one line per length."""
    measured = measured or results("sparse_attention")
    fig, (left, right) = figure(n_columns=2, width=5.0, height=3.6)
    lengths = sorted({row["tokens"] for row in prefill.flex(measured)})
    for index, length in enumerate(lengths):
        found = prefill.flex(measured, length)
        gammas, look = [row["gamma"] for row in found], line_style(index)
        left.plot(gammas, [100 * prefill.density(row) for row in found], label=f"{length} tokens", **look)
        effects = [prefill.above(measured, row) for row in found]
        bars = [ERRORS * effect.error for effect in effects]
        shift = 0.003 * (index - len(lengths) // 2)  # so that bars do not hide each other
        places = [gamma + shift for gamma in gammas]
        right.errorbar(places, [effect.value for effect in effects], bars, capsize=3, **look)
    for axes in (left, right):
        axes.set_xticks(sorted({row["gamma"] for row in prefill.flex(measured)}))
    left.set_ylim(0, 100)
    right.axhline(0, color="black", linewidth=0.8)
    left.legend(frameon=False, fontsize=9, loc="lower right")
    label(left, _densities(measured, lengths), "γ", "blocks read (%)")
    label(right, _largest_cost(measured), "γ", f"loss increase (nats per token;\n{ERROR_BARS})")
    return fig


def _densities(measured: Measured, lengths: list[int]) -> str:
    gamma = measured["sizes"]["gamma"]
    shares = {row["tokens"]: prefill.density(row) for row in prefill.flex(measured) if row["gamma"] == gamma}
    ends = dict.fromkeys((lengths[0], lengths[-1]))
    parts = [f"{100 * shares[length]:.0f} % at {length}" for length in ends if length in shares]
    return f"γ = {gamma} reads {listed(parts)} tokens"


def _largest_cost(measured: Measured) -> str:
    effects = [prefill.above(measured, row) for row in prefill.flex(measured)]
    n = sum(prefill.below(prefill.CLOSE, measured, row).holds for row in prefill.flex(measured))
    worst = math.exp(max(effect.value for effect in effects)) - 1
    return f"At most {100 * worst:.1f} % more perplexity; {n} of {len(effects)} within {100 * prefill.CLOSE:.0f} %"


def over_density(bench: Measured | None = None) -> Figure:
    """Plot the speedup over dense attention by the fraction of blocks read, with the choice of blocks and without."""
    bench = bench or load_bench("cpu_sparse_prefill")
    fig, panels = figure(n_columns=2, width=4.8, height=3.6)
    sides = {"choosing and reading": clock.CHOSEN_AND_READ, "reading alone": clock.READ}
    least = min(row["density"] for row in clock.timed(bench, clock.READ))
    for axes, (name, side) in zip(panels, sides.items(), strict=True):
        found = clock.timed(bench, side)
        shares = [row["density"] for row in found]
        edge = [min(shares) + i * (max(shares) - min(shares)) / 50 for i in range(51)]
        bound = [1 / share for share in edge]
        axes.plot([100 * share for share in edge], bound, color="0.5", linewidth=1, label="1 / density")
        for index, length in enumerate(sorted({row["tokens"] for row in found})):
            _speedups(axes, [row for row in found if row["tokens"] == length], f"{length} tokens", index)
        axes.axhline(1, color="black", linestyle=":", linewidth=1)
        axes.set_ylim(0, 1.05 / least)
        faster = sum(of_repetitions(row).holds for row in found)
        label(axes, f"{name.capitalize()}: faster in {faster} of {len(found)}", "blocks read (%)")
    panels[0].set_ylabel("speedup over dense attention\n(bars: 10 and 90 % of repetitions)")
    panels[1].legend(frameon=False, fontsize=9, loc="upper right")
    return fig


def _speedups(axes: Axes, found: list[Row], name: str, index: int) -> None:
    found = sorted(found, key=lambda row: row["density"])
    heights = [row["times_anchor"] for row in found]
    bars = [[abs(row["times_anchor"] - row[f"times_anchor_{end}"]) for row in found] for end in ("low", "high")]
    places = [100 * row["density"] for row in found]
    axes.errorbar(places, heights, bars, capsize=3, label=name, **line_style(index))


# Speculative decoding


def overlaps() -> Figure:
    """Plot two made-up distributions p and q, their overlap, and the residual from which a rejected token is drawn."""
    _, (axes,) = figure(width=7.6, height=3.0)
    p, q = torch.tensor([0.4, 0.1, 0.3, 0.15, 0.05]), torch.tensor([0.2, 0.4, 0.1, 0.2, 0.1])
    left = residual(p, q)
    place = torch.arange(5)
    axes.bar(place - 0.2, p, 0.38, color="white", edgecolor=COLOURS[0], linewidth=1.5, label="target model, p")
    axes.bar(place - 0.2, torch.minimum(p, q), 0.38, color=COLOURS[0], label="min(p, q)")
    axes.bar(place + 0.2, q, 0.38, color=COLOURS[4], hatch="//", edgecolor="white", label="draft, q")
    for token in left.nonzero()[:, 0].tolist():
        axes.text(token - 0.2, float(p[token]) + 0.01, f"+{float((p - q)[token]):.2f}", ha="center", fontsize=9.5)
    axes.set_xticks(range(5), [f"token {i}" for i in range(5)])
    axes.set_ylim(0, 0.52)
    axes.legend(frameon=False, fontsize=9.5)
    n_short = int((left > 0).sum())
    title = f"p and q overlap by {percent(float(overlap(p, q)))}; the draft gives too little to {n_short} tokens (+)"
    return label(axes, title, "next token", "probability").figure


def exactness(
    p: Float[Tensor, "V"], q: Float[Tensor, "V"], output: Float[Tensor, "V"], tokens: Sequence[str]
) -> Figure:
    """Plot the distributions of the target model, of the draft, and of the tokens that come out."""
    _, (axes,) = figure(width=7.4, height=3.0)
    bars = {"target model, p": p, "draft, q": q, "output": output}
    for index, ((name, values), hatch) in enumerate(zip(bars.items(), ("", "//", ".."), strict=True)):
        places = [token + 0.27 * (index - 1) for token in range(len(tokens))]
        axes.bar(places, values.tolist(), 0.25, label=name, color=COLOURS[index], hatch=hatch, edgecolor="white")
    axes.set_xticks(range(len(tokens)), tokens)
    axes.legend(frameon=False, fontsize=9.5)
    title = f"The output differs from p by {float((p - output).abs().max()):.3f} at most"
    return label(axes, title, "next token", "probability").figure


def tokens_per_pass() -> Figure:
    """Plot the expected tokens per pass by acceptance rate, for several numbers of drafted tokens."""
    _, (axes,) = figure(width=7.6, height=3.2)
    rates = torch.linspace(0, 0.99, 100).tolist()
    for index, k in enumerate((1, 2, 4, 8)):
        look = line_style(index) | {"marker": ""}
        axes.plot(rates, [expected_tokens(each, k) for each in rates], label=f"k = {k}", **look)
    axes.legend(frameon=False, title="drafted tokens", fontsize=9.5)
    four, eight = (expected_tokens(0.8, k) for k in (4, 8))
    title = f"With α = 0.8, 4 drafted tokens give {four:.2f} tokens per pass, 8 give {eight:.2f}"
    return label(axes, title, "acceptance rate α", "expected tokens per pass").figure
