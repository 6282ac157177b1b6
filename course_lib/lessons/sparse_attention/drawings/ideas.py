"""Drawings of the ideas of lesson 11, each computed from a small example; nothing here was measured on a model.

Dimension key: N blocks, T tokens, k drafted tokens.
"""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.attention.delta.code import delta_code
from course_lib.attention.prefill.as_released import tokens_taken_for_blocks
from course_lib.attention.prefill.cumulative import smallest_set
from course_lib.attention.prefill.divergence import jensen_shannon
from course_lib.attention.prefill.index import always_read
from course_lib.attention.prefill.lines import where_lines_are
from course_lib.attention.speculative.accept import expected_tokens, overlap, residual
from course_lib.attention.steering.steer import steered
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.tables import percent

LOOK = {"edgecolor": COLOURS[0], "linewidth": 0.6}


def four_ways(n_columns: int = 4) -> Figure:
    """What each of the four methods leaves out of one causal attention matrix."""
    fig, panels = figure(n_columns=n_columns, n_rows=4 // n_columns, width=2.6, height=3.3)
    n, causal = 16, torch.ones(16, 16).tril()
    columns, diagonals = torch.isin(torch.arange(n), torch.tensor([5])), torch.arange(n) < 2
    reads = (where_lines_are(columns[None], diagonals[None])[0] | always_read(n)).float()
    near = (torch.arange(n)[:, None] - torch.arange(n) < 4).float() * causal
    held = torch.where((torch.rand(n, n, generator=torch.Generator().manual_seed(0)) < 0.35) | (near > 0), 1.0, 0.4)
    marked = torch.where((torch.arange(n) > 5) & (torch.arange(n) < 9), 1.0, 0.25).expand(n, n)
    kept = torch.isin(torch.arange(n), torch.tensor([1, 4, 5, 9, 12])).float() * (torch.arange(n) < 13)
    pruned = torch.maximum(kept, (torch.arange(n) >= 13).float())
    shown = {
        "FlexPrefill: other blocks\nare not read": reads,
        "DeltaLLM: keys (light) that\nhave not moved are not sent": held * causal,
        "PASTA: what is not marked\nweighs less": marked * causal,
        "VFlowOpt: most tokens of an\nimage go altogether": pruned[:, None] * pruned * causal,
    }
    for axes, (title, matrix) in zip(panels, shown.items(), strict=True):
        _matrix(axes, matrix)
        label(axes, title)
    for last in panels[-n_columns:]:
        last.set_xlabel("key")
    for first in panels[::n_columns]:
        first.set_ylabel("query")
    return fig


def _matrix(axes: Axes, matrix: Tensor) -> None:
    axes.imshow(matrix, cmap="Greys", vmin=0, vmax=1.4, interpolation="nearest")
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])


def divergence_pairs() -> Figure:
    """A guess beside the truth: close, and far."""
    fig, panels = figure(n_columns=2, width=4.2, height=2.7)
    truth = torch.tensor([[0.55, 0.05, 0.1, 0.1, 0.2], [0.0, 0.6, 0.0, 0.35, 0.05]])
    guess = torch.tensor([[0.5, 0.1, 0.1, 0.1, 0.2], [0.45, 0.1, 0.15, 0.1, 0.2]])
    for axes, p, q in zip(panels, truth, guess, strict=True):
        for shift, values, index, hatch, name in ((-0.2, q, 4, "//", "guess ā"), (0.2, p, 0, "", "truth â")):
            axes.bar(
                torch.arange(5) + shift, values, 0.38, color=COLOURS[index], hatch=hatch, edgecolor="white", label=name
            )
        root = float(jensen_shannon(p, q).sqrt())
        kind = "query-aware" if root < 0.1 else "vertical-slash"
        label(axes, f"√JSD = {root:.2f}: {kind}", "block of keys", "attention")
    panels[0].legend(frameon=False, fontsize=9.5)
    return fig


def tokens_or_blocks() -> Figure:
    """The public code counts tokens and takes that many blocks' worth: what γ = 0.9 needs, and what it gets."""
    _, (axes,) = figure(width=8.0, height=2.8)
    size, n = 16, 16
    mass = torch.full((n, size), 0.002)
    mass[:, 7] = 1.0  # one strong token in each block
    mass *= torch.linspace(1.6, 0.4, n)[:, None]
    blocks = mass.sum(dim=1)
    needed = smallest_set(blocks, 0.9)
    taken = int(tokens_taken_for_blocks((mass / mass.sum()).flatten(), 0.9, size))
    colours = [COLOURS[1] if i < taken else COLOURS[0] if needed[i] else "#dfe3e8" for i in range(n)]
    axes.bar(range(n), blocks / blocks.sum() * 100, color=colours, **LOOK)
    held = float(blocks[:taken].sum() / blocks.sum())
    title = (
        f"90 % needs {int(needed.sum())} blocks; tokens counted as blocks take {taken} (red) and hold {percent(held)}"
    )
    return label(axes, title, f"block of {size} tokens, one strong token in each", "attention (%)").figure


def walk() -> Figure:
    """A channel that creeps: what is held with the last value sent, and with the neighbour, over the tokens."""
    _, (axes,) = figure(width=8.0, height=3.0)
    generator = torch.Generator().manual_seed(3)
    keys = (0.12 + 0.25 * torch.randn(40, generator=generator)).cumsum(dim=0)[:, None]
    theta = 0.6
    held = delta_code(keys, theta).keys[:, 0]
    steps = keys[:, 0].diff()
    drifted = keys[0, 0] + torch.cat([torch.zeros(1), torch.where(steps.abs() >= theta, steps, 0.0).cumsum(dim=0)])
    place = torch.arange(len(keys))
    axes.fill_between(place, keys[:, 0] - theta, keys[:, 0] + theta, color="#dfe3e8", label="within θ of the key")
    axes.plot(place, keys[:, 0], color="black", linewidth=1, label="key")
    axes.step(place, held, where="post", color=COLOURS[0], linewidth=2, label="held: the value sent last")
    axes.step(place, drifted, where="post", color=COLOURS[1], linestyle="--", linewidth=2, label="small steps left out")
    axes.legend(frameon=False, fontsize=9.5, ncols=2, loc="upper left")
    far = [float((each - keys[:, 0]).abs().max()) for each in (held, drifted)]
    title = f"Beside the value sent last: {far[0]:.2f} off at most (θ = {theta}); beside the neighbour: {far[1]:.1f}"
    return label(axes, title, "token", "one channel of the key").figure


def lowered() -> Figure:
    """The attention of one query before and after steering to two tokens."""
    fig, (axes,) = figure(width=8.0, height=2.8)
    logits = torch.tensor([3.0, 0.5, 1.2, 0.9, 1.0, 0.3, 0.8, 1.1])
    low = torch.tensor([False, True, True, False, False, True, True, True])
    both = {"before": logits.softmax(0), "log α on the others": steered(logits[None], low[None], 0.01)[0].softmax(0)}
    for index, ((name, weights), hatch) in enumerate(zip(both.items(), ("//", ""), strict=True)):
        axes.bar(
            torch.arange(8) + 0.2 * (2 * index - 1), weights, 0.38, color=COLOURS[4 - 4 * index], hatch=hatch,
            edgecolor="white", label=name,
        )  # fmt: skip
    names = ["first"] + ["marked" if not each else f"token {i}" for i, each in enumerate(low.tolist()) if i]
    axes.set_xticks(range(8), names)
    axes.legend(frameon=False, fontsize=9.5)
    before, after = (float(each[3:5].sum()) for each in both.values())
    title = f"α = 0.01: two marked tokens go from {percent(before)} to {percent(after)}; the first one is spared"
    label(axes, title, "key", "weight")
    return fig


def drafts() -> Figure:
    """Tokens a pass over the share of drafted tokens that stay, for several lengths of a draft."""
    _, (axes,) = figure(width=7.6, height=3.2)
    share = torch.linspace(0, 0.99, 100).tolist()
    for index, k in enumerate((1, 2, 4, 8)):
        look = line_style(index) | {"marker": ""}
        axes.plot(share, [expected_tokens(each, k) for each in share], label=f"k = {k}", **look)
    axes.legend(frameon=False, title="drafted tokens", fontsize=9.5)
    four, eight = (expected_tokens(0.8, k) for k in (4, 8))
    title = f"With α = 0.8, 4 drafted tokens give {four:.2f} a pass, 8 give {eight:.2f}"
    return label(axes, title, "α, the share of tokens that stay", "expected tokens a pass").figure


def overlaps() -> Figure:
    """p, q, what both share, and what is left over."""
    _, (axes,) = figure(width=7.6, height=3.0)
    p, q = torch.tensor([0.4, 0.1, 0.3, 0.15, 0.05]), torch.tensor([0.2, 0.4, 0.1, 0.2, 0.1])
    shared, left = torch.minimum(p, q), residual(p, q)
    place = torch.arange(5)
    axes.bar(place - 0.2, p, 0.38, color="white", edgecolor=COLOURS[0], linewidth=1.5, label="the model, p")
    axes.bar(place - 0.2, shared, 0.38, color=COLOURS[0], label="drafted and stays: min(p, q)")
    axes.bar(place + 0.2, q, 0.38, color=COLOURS[4], hatch="//", edgecolor="white", label="the draft, q")
    for word in left.nonzero()[:, 0].tolist():
        axes.text(word - 0.2, float(p[word]) + 0.01, f"{float(left[word]):.2f}", ha="center", fontsize=9.5)
    axes.set_xticks(range(5), [f"word {i}" for i in range(5)])
    axes.set_ylim(0, 0.52)
    axes.legend(frameon=False, fontsize=9.5)
    title = f"{percent(float(overlap(p, q)))} of the tokens stay; the rest is drawn from what p has above q (numbers)"
    return label(axes, title, "next token", "probability").figure
