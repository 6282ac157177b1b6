"""Figures of VFlowOpt on the small model that sees and answers: one image with what is left, and what was measured.

Dimension key: K visual tokens that are left.
"""

from typing import Any

import torch
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.attention.visual.canvas import NOTHING, PATCH, QUESTIONS, SIDE, WORDS, draw, question_ids
from course_lib.attention.visual.model import GRID, N_TOKENS
from course_lib.attention.visual.prune import answers, read, see
from course_lib.attention.visual.recycle import Left, recycled
from course_lib.attention.visual.training import load
from course_lib.lessons.common.dots import ERROR_BARS, SHARE_BARS, share_reach
from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label, line_style
from course_lib.lessons.common.tables import Measured, rows
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.sparse_attention.estimates import visual as found
from course_lib.lessons.sparse_attention.experiments.experiment_visual_tokens import (
    ALL,
    ALONE,
    METHOD,
    RANDOM,
    TOLD,
    pruning_of,
)
from course_lib.lessons.sparse_attention.tables.visual import results


def kept_tokens(measured: Measured | None = None, share: float = 0.25, seed: int = 3, question: int = 0) -> Figure:
    """A canvas, and what each third of the decoder reads of it, with the settings that calibration found."""
    measured = measured or results()
    model, canvas = load(), draw(1, "test", seed)
    (row,) = rows(measured, "settings", share=share, calibration=0)
    pruning, words = pruning_of(row), question_ids()[question : question + 1]
    seen = see(model, canvas.images)
    positions = read(model, seen, words, pruning).positions
    said = WORDS[answers(model, seen, words, pruning).item()]
    fig, panels = figure(n_columns=4, width=2.8, height=3.5)
    truth = WORDS[int(canvas.answers[0, question])]
    verdict = "right" if said == truth else f"wrong: {truth}"
    label(_shown(panels[0], canvas.images[0]), f"asked “{QUESTIONS[question]}”,\nsaid “{said}” ({verdict})")
    digits = set((canvas.belongs[0] < NOTHING).nonzero()[:, 0].tolist())
    for third, (axes, position) in enumerate(zip(panels[1:], positions, strict=True)):
        left = set(position[0].tolist())
        _shown(axes, canvas.images[0], position[0], _fused(seen, pruning, position[0]))
        label(
            axes,
            f"third {third + 1}: {len(left)} of {N_TOKENS} tokens,\n{len(left & digits)} of {len(digits)} of digits",
        )
    panels[1].set_xlabel("ringed: fused from pruned ones", fontsize=9)
    return fig


def _fused(seen: Any, pruning: Any, position: Int[Tensor, "K"]) -> set[int]:
    """The tokens of these that are no longer what the encoder gave: cells of pruned ones."""
    if pruning.side is None:
        return set()
    left = Left(seen.tokens, torch.arange(N_TOKENS)[None], pruning.score(seen.evidence))
    after = recycled(left, pruning.ratios.counts(N_TOKENS)[0], pruning.side)
    changed = (after.tokens != seen.tokens[0, after.position[0]]).any(dim=2)[0]
    return set(after.position[0, changed].tolist()) & set(position.tolist())


def _shown(
    axes: Axes, image: Tensor, position: Int[Tensor, "K"] | None = None, fused: frozenset[int] | set[int] = frozenset()
) -> Axes:
    """The image in grey; patches that are not left are hatched over, fused ones get a ring."""
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


def accuracy_over_share(measured: Measured | None = None) -> Figure:
    """Accuracy by share of the tokens that the layers read: VFlowOpt, each score alone, random, and who is told."""
    measured = measured or results()
    columns, whole = found.shares(measured), found.dense(measured)
    fig, (axes,) = figure(width=7.4, height=4.2)
    axes.axhline(100 * whole["accuracy"], color="0.5", linewidth=1, linestyle=":")
    axes.annotate(ALL, (100 * min(columns), 100 * whole["accuracy"]), (0, 4), textcoords="offset points", fontsize=9)
    for index, method in enumerate((METHOD, *ALONE, RANDOM, TOLD)):
        right = [sum(found.questions(found.at(measured, method, share))) for share in columns]
        heights = [100 * each / whole["n"] for each in right]
        errors = list(zip(*(share_reach(each, whole["n"]) for each in right), strict=True))
        places = [100 * share for share in columns]
        axes.errorbar(places, heights, errors, capsize=3, label=method, **line_style(index))
    least = min(columns)
    own, blind = (sum(found.questions(found.at(measured, m, least))) / whole["n"] for m in (METHOD, RANDOM))
    title = f"With {100 * least:.0f} % of the tokens VFlowOpt answers {100 * own:.0f} % rightly,\n"
    title += f"random tokens {100 * blind:.0f} %, all tokens {100 * whole['accuracy']:.0f} %"
    label(axes, title, "visual tokens read, mean over layers (%)", f"right answers (%)\n({SHARE_BARS})")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    return fig


def what_parts_add(measured: Measured | None = None) -> Figure:
    """Points of accuracy that each part of VFlowOpt adds, by share of the tokens."""
    measured = measured or results()
    by_part = {**found.parts(measured), "calibration": found.ahead(measured, found.BY_HAND)}
    del by_part["attention"]  # without it entropy is the score, which the other figure shows too
    fig, (axes,) = figure(width=7.4, height=3.9)
    axes.axhline(0, color="0.5", linewidth=1)
    columns = found.shares(measured)
    for index, (part, effects) in enumerate(by_part.items()):
        places = [place + 0.14 * (index - 2) for place in range(len(columns))]
        heights = [100 * effects[share].value for share in columns]
        errors = [100 * ERRORS * effects[share].error for share in columns]
        look = {"color": COLOURS[index], "marker": MARKERS[index], "linestyle": "none"}
        axes.errorbar(places, heights, errors, capsize=3, label=part, **look)
    axes.set_xticks(range(len(columns)), [f"{100 * share:.0f}" for share in columns])
    clear = [part for part, effects in by_part.items() if any(effect.holds for effect in effects.values())]
    title = f"Clearly worth something at one share or more:\n{', '.join(clear) if clear else 'no part'}"
    label(axes, title, "visual tokens read, mean over layers (%)", f"points that the part adds\n({ERROR_BARS})")
    axes.legend(frameon=False, fontsize=9, ncols=len(by_part))
    return fig


def calibration(measured: Measured) -> Figure:
    """The best cosine so far over the settings tried, and the same settings' cosine on questions that were not seen."""
    columns = found.shares(measured)
    fig, (axes,) = figure(width=6.8, height=3.6)
    gaps, n = [], measured["sizes"]["calibration"]
    for index, share in enumerate(columns):
        (row,) = rows(measured, "settings", share=share, calibration=0)
        (own,) = rows(measured, "answers", method=METHOD, share=share, calibration=0)
        best = torch.tensor(row["tried"]).cummax(dim=0).values
        look = line_style(index) | {"marker": None}
        axes.plot(range(1, len(best) + 1), best, drawstyle="steps-post", label=f"{100 * share:.0f} %", **look)
        axes.plot(len(best) + 1.5, own["cosine"], color=look["color"], marker=MARKERS[index], markersize=5)
        gaps.append(abs(row["cosine"] - own["cosine"]))
    title = f"The cosine on unseen canvases (marks) is within {max(gaps):.3f}\nof that on the {n} of the calibration"
    label(axes, title, "settings tried", "best mean cosine of the last\nword's vector")
    axes.legend(frameon=False, fontsize=9, title="tokens read", loc="lower right", ncols=2)
    return fig
