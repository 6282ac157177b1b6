"""The figures of lesson 11 that only the deck shows: heads of the model, further stored results, and drawings."""

from functools import lru_cache
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.attention.prefill.cumulative import smallest_set
from course_lib.attention.prefill.index import always_read
from course_lib.attention.prefill.lines import on_columns, slashes, where_lines_are
from course_lib.attention.visual.canvas import NOTHING, PATCH, QUESTIONS, SIDE, WORDS, draw, question_ids
from course_lib.attention.visual.model import GRID, N_TOKENS
from course_lib.attention.visual.prune import answers, read, see
from course_lib.attention.visual.recycle import Left, recycled
from course_lib.attention.visual.training import load
from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.effects import Row, log_gap
from course_lib.lessons.common.results import Measured, listed, rows
from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label, line_style
from course_lib.lessons.common.subject import article_windows, loaded
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.sparse_attention import heads, optional_plots, plots
from course_lib.lessons.sparse_attention.estimates import drafts, prefill, visual
from course_lib.lessons.sparse_attention.estimates.rows import results
from course_lib.lessons.sparse_attention.experiments.drafts import COPYING, HALF, RUNNING
from course_lib.lessons.sparse_attention.experiments.items import READING
from course_lib.lessons.sparse_attention.experiments.steering import ON_BOTH
from course_lib.lessons.sparse_attention.experiments.visual_tokens import pruning_of
from course_lib.lessons.sparse_attention.steps import token_mask
from course_lib.lessons.sparse_attention.tables import draft_name

SHOWN = ((17, 4), (2, 2), (11, 6))  # on the first token, on recent tokens, on the query itself
LENGTH = 1024  # tokens


@lru_cache(maxsize=1)
def _heads() -> heads.Heads:
    return heads.heads_of_text(loaded()[0], article_windows(1, LENGTH, seed=0)[0])


def three_heads() -> Figure:
    """Plot what three heads of the course's model attend to."""
    return plots.maps({head: _heads().weights(head) for head in SHOWN})


def lines_of_heads() -> Figure:
    """Plot the vertical and slash sums of the three heads."""
    return plots.lines({head: _lines(_heads().weights(head, heads.BLOCK)) for head in SHOWN})


def mask_of_a_head() -> Figure:
    """Plot the blocks that hold nine tenths of what the last queries of a head attend to."""
    chosen = heads.Chosen(_heads().weights(SHOWN[2]), _lines, smallest_set, token_mask)
    return plots.mask(chosen, 0.9, SHOWN[2])


def _lines(weights: Tensor) -> tuple[Tensor, Tensor]:
    return on_columns(weights[None], block_size=1)[0], slashes(weights[None])[0]


def steered() -> Figure:
    """Plot answers of the residents by what was steered."""
    return optional_plots.answers(only=ON_BOTH)


def steered_reading() -> Figure:
    """Plot answers on SciQ by what was steered."""
    return optional_plots.answers(data=READING)


def four_ways() -> Figure:
    """Draw what each of four methods leaves out of one causal attention matrix, two by two."""
    fig, panels = figure(n_columns=2, n_rows=2, width=2.6, height=3.3)
    n, causal = 16, torch.ones(16, 16).tril()
    columns, diagonals = torch.isin(torch.arange(n), torch.tensor([5])), torch.arange(n) < 2
    reads = (where_lines_are(columns[None], diagonals[None])[0] | always_read(n)).float()
    near = (torch.arange(n)[:, None] - torch.arange(n) < 4).float() * causal
    sent = torch.where((torch.rand(n, n, generator=torch.Generator().manual_seed(0)) < 0.35) | (near > 0), 1.0, 0.4)
    highlighted = torch.where((torch.arange(n) > 5) & (torch.arange(n) < 9), 1.0, 0.25).expand(n, n)
    kept = torch.isin(torch.arange(n), torch.tensor([1, 4, 5, 9, 12])).float() * (torch.arange(n) < 13)
    kept = torch.maximum(kept, (torch.arange(n) >= 13).float())
    shown = {
        "FlexPrefill: blocks with\nlittle attention are skipped": reads,
        "DeltaLLM: channels that have\nnot changed (light) are not sent": sent * causal,
        "PASTA: tokens that are not\nhighlighted weigh less": highlighted * causal,
        "VFlowOpt: most tokens of\nan image are pruned": kept[:, None] * kept * causal,
    }
    for axes, (title, matrix) in zip(panels, shown.items(), strict=True):
        axes.imshow(matrix, cmap="Greys", vmin=0, vmax=1.4, interpolation="nearest")
        axes.grid(visible=False)
        axes.set_xticks([])
        axes.set_yticks([])
        label(axes, title)
    for last in panels[-2:]:
        last.set_xlabel("key")
    for first in panels[::2]:
        first.set_ylabel("query")
    return fig


def by_head(measured: Measured | None = None) -> Figure:
    """Plot the density of each head, with a ring where a head was query-aware on most texts."""
    measured = measured or results("sparse_attention")
    layers = measured["tables"]["heads"]
    fig, (axes,) = figure(width=9.0, height=3.4)
    axes.grid(False)
    density = list(zip(*(row["density"] for row in layers), strict=True))  # heads, layers
    image = axes.imshow(
        [[100 * share for share in row] for row in density], cmap="Greys", vmin=0, vmax=100, aspect="auto"
    )
    fig.colorbar(image, ax=axes, label="blocks read (%)", pad=0.01)
    aware = [
        (row["layer"], head) for row in layers for head, share in enumerate(row["query_aware"]) if share > prefill.AWARE
    ]
    if aware:
        places = list(zip(*aware, strict=True))
        axes.scatter(*places, s=70, facecolors="none", edgecolors="#c8553d", linewidths=1.8)
    axes.set_yticks(range(len(density)))
    first, *_, last = (fmean(share for row in part for share in row["density"]) for part in prefill.thirds(layers))
    title = (
        f"The first third of the layers reads {100 * first:.0f} % of its blocks, the last {100 * last:.0f} %;\n"
        f"{len(aware)} of {len(layers) * len(density)} heads are query-aware (rings)"
    )
    return label(axes, title, "layer", "head").figure


def rivals(measured: Measured | None = None) -> Figure:
    """Plot the cost of rules that read the same number of blocks."""
    measured = measured or results("sparse_attention")
    mine = prefill.chosen(measured)
    others = prefill.of_same_density(measured)
    _, (axes,) = figure(width=7.2, height=2.6)
    for place, row in enumerate((mine, *others)):
        _dot(axes, measured, -place, row)
    axes.set_yticks([-place for place in range(len(others) + 1)], [row["rule"] for row in (mine, *others)])
    axes.set_ylim(-len(others) - 0.5, 0.5)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.margins(x=0.15)
    worse = [row["rule"] for row in others if log_gap(mine, row).holds]
    share = f"{100 * prefill.density(mine):.0f} % of the blocks"
    title = f"{share}: clearly worse than FlexPrefill: {listed(worse) if worse else 'none'}"
    return label(axes, title, f"loss increase (nats per token; {ERROR_BARS})").figure


def _dot(axes: Axes, measured: Measured, place: int, row: Row) -> None:
    effect = prefill.above(measured, row)
    axes.errorbar(effect.value, place, xerr=ERRORS * effect.error, capsize=3, **line_style(0))
    axes.annotate(f"{effect.value:+.3f}", (effect.value, place), xytext=(0, 5), textcoords="offset points", fontsize=9)


def passes(measured: Measured | None = None) -> Figure:
    """Plot tokens per pass, measured and predicted from α of the given text, on running text and on copying."""
    measured = measured or results("drafts")
    fig, panels = figure(n_columns=2, width=5.0, height=3.2)
    names = drafts.drafts(measured)
    for axes, kind in zip(panels, (RUNNING, COPYING), strict=True):
        for place, draft in enumerate(names):
            mean, error = drafts.tokens_a_pass(measured, draft, kind)
            name = "" if place else "measured"
            axes.errorbar(mean, -place, xerr=ERRORS * error, capsize=3, label=name, **line_style(0))
            predicted = drafts.expected(measured, draft, kind)
            name = "" if place else "predicted from α of\nthe given text"
            axes.plot(predicted, -place, "|", markersize=18, color=COLOURS[1], label=name)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xlim(0.8, measured["sizes"]["k"] + 1.2)
        axes.set_yticks(
            [-place for place in range(len(names))],
            list(map(draft_name, names)) if kind == RUNNING else [""] * len(names),
        )
        axes.set_ylim(-len(names) + 0.4, 0.6)
        best = max(set(names) - {HALF} or names, key=lambda draft: drafts.tokens_a_pass(measured, draft, kind)[0])
        loads = 100 / drafts.tokens_a_pass(measured, best, kind)[0]
        title = f"{kind.capitalize()}: {loads:.0f} weight loads per 100 tokens\n(fewest, with {draft_name(best)})"
        label(axes, title, f"tokens per pass ({ERROR_BARS})")
    panels[0].legend(frameon=False, fontsize=9, loc="upper right")
    return fig


def kept_tokens(measured: Measured | None = None, share: float = 0.25, seed: int = 3, question: int = 0) -> Figure:
    """Plot a canvas, and what each third of the decoder reads of it, with the calibrated settings."""
    measured = measured or results("visual_tokens")
    model, canvas = load(), draw(1, "test", seed)
    (row,) = rows(measured, "settings", share=share, calibration=0)
    pruning, words = pruning_of(row), question_ids()[question : question + 1]
    seen = see(model, canvas.images)
    positions = read(model, seen, words, pruning).positions
    answer = WORDS[answers(model, seen, words, pruning).item()]
    fig, panels = figure(n_columns=4, width=2.8, height=3.5)
    truth = WORDS[int(canvas.answers[0, question])]
    verdict = "right" if answer == truth else f"wrong: {truth}"
    label(_shown(panels[0], canvas.images[0]), f"question “{QUESTIONS[question]}”,\nanswer “{answer}” ({verdict})")
    digits = set((canvas.belongs[0] < NOTHING).nonzero()[:, 0].tolist())
    for third, (axes, position) in enumerate(zip(panels[1:], positions, strict=True)):
        left = set(position[0].tolist())
        _shown(axes, canvas.images[0], position[0], _fused(seen, pruning, position[0]))
        label(
            axes,
            f"third {third + 1}: {len(left)} of {N_TOKENS} tokens,\n{len(left & digits)} of {len(digits)} of digits",
        )
    panels[1].set_xlabel("ring: fused from pruned tokens", fontsize=9)
    return fig


def _fused(seen: Any, pruning: Any, position: Int[Tensor, "K"]) -> set[int]:
    """Return the tokens that are fused from pruned ones."""
    if pruning.side is None:
        return set()
    left = Left(seen.tokens, torch.arange(N_TOKENS)[None], pruning.score(seen.evidence))
    after = recycled(left, pruning.ratios.counts(N_TOKENS)[0], pruning.side)
    changed = (after.tokens != seen.tokens[0, after.position[0]]).any(dim=2)[0]
    return set(after.position[0, changed].tolist()) & set(position.tolist())


def _shown(
    axes: Axes, image: Tensor, position: Int[Tensor, "K"] | None = None, fused: frozenset[int] | set[int] = frozenset()
) -> Axes:
    """Draw the image in grey; pruned patches are shaded, fused ones get a ring."""
    axes.imshow(image, cmap="Greys", vmin=0, vmax=255, extent=(0, SIDE, SIDE, 0))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines[["top", "right"]].set_visible(True)
    if position is not None:
        there = torch.zeros(N_TOKENS, dtype=torch.bool)
        there[position] = True
        shade = there.view(GRID, GRID).logical_not().float()
        axes.imshow(shade, cmap="Blues", vmin=0, vmax=1.6, alpha=0.75 * shade, extent=(0, SIDE, SIDE, 0))
    for token in fused:
        centre = ((token % GRID + 0.5) * PATCH, (token // GRID + 0.5) * PATCH)
        axes.scatter(*centre, s=26, facecolors="none", edgecolors=COLOURS[1], linewidths=1.4)
    return axes


def what_parts_add(measured: Measured | None = None) -> Figure:
    """Plot the percentage points that each part of VFlowOpt adds, by the fraction of the tokens."""
    measured = measured or results("visual_tokens")
    by_part = {**visual.parts(measured), "calibration": visual.ahead(measured, visual.BY_HAND)}
    del by_part["attention"]  # without it entropy is the score, which the other figure shows too
    fig, (axes,) = figure(width=7.4, height=3.9)
    axes.axhline(0, color="0.5", linewidth=1)
    columns = visual.shares(measured)
    for index, (part, effects) in enumerate(by_part.items()):
        places = [place + 0.14 * (index - 2) for place in range(len(columns))]
        heights = [100 * effects[share].value for share in columns]
        errors = [100 * ERRORS * effects[share].error for share in columns]
        look = {"color": COLOURS[index], "marker": MARKERS[index], "linestyle": "none"}
        axes.errorbar(places, heights, errors, capsize=3, label=part, **look)
    axes.set_xticks(range(len(columns)), [f"{100 * share:.0f}" for share in columns])
    clear = [part for part, effects in by_part.items() if any(effect.holds for effect in effects.values())]
    title = f"Parts with a clear gain at one fraction or more:\n{', '.join(clear) if clear else 'no part'}"
    label(axes, title, "visual tokens read, mean over layers (%)", f"percentage points added\n({ERROR_BARS})")
    axes.legend(frameon=False, fontsize=9, ncols=len(by_part))
    return fig
