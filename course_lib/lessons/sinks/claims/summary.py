"""What to take home from lesson 08, as a table for a slide: the published number, ours, and the verdict."""

import math

from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure
from course_lib.lessons.common.tables import load_published, rows
from course_lib.lessons.common.verdicts import of_samples, verdict
from course_lib.lessons.sinks import tables
from course_lib.lessons.sinks.claims import four_ways, further, measured, trained, training, ways

WIDTHS = (0.40, 0.22, 0.20, 0.18)
HEAD = ("claim", "published", "here", "verdict")


def take_home() -> Figure:
    """A row a claim; each number of ours is read from a committed result."""
    lines = [HEAD, _collapse(), _one_sink(), _newlines(), _too_far(), _afresh(), _trained()]
    fig, (axes,) = figure(width=10.4, height=0.55 * len(lines))
    axes.axis("off")
    axes.set_xlim(0, 1)
    axes.set_ylim(len(lines), 0)
    for place, line in enumerate(lines):
        left = 0.0
        for width, cell in zip(WIDTHS, line, strict=True):
            weight = "bold" if place == 0 else "normal"
            axes.text(left, place + 0.5, cell, va="center", fontsize=10, fontweight=weight)
            left += width
        axes.axhline(place + 1, color=COLOURS[4], linewidth=0.6)
    return fig


def _short(effects) -> str:
    """The verdict without what would have to be done."""
    return verdict(effects, larger_models=True).split(" (")[0]


def _collapse() -> tuple[str, ...]:
    window, full = measured.by_block(measured.results(), "0 sinks", measured.EVERYTHING)
    lost = window - full
    published = {row["way"]: row["perplexity"] for row in load_published("sinks")["tables"]["ways"]}
    theirs = f"{published[four_ways.WINDOW]:,.0f} against {published[four_ways.STREAMING]:.2f}"
    claim = "a window without its first token collapses"
    return claim, theirs, f"{lost.mean().exp():.1f} times", _short(of_samples(lost, math.log(tables.COLLAPSED)))


def _one_sink() -> tuple[str, ...]:
    one, four = measured.by_block(measured.results(), "1 sink", "4 sinks")
    published = {row["sinks"]: row["perplexity"] for row in load_published("sinks")["tables"]["sinks"]}
    more = one - four
    theirs, ours = f"{published[1]} against {published[4]}", f"{100 * more.mean():+.2f} % against four"
    word = _short(further.one_sink(measured.results()))
    return "one sink is not enough, four are (by over 1 %)", theirs, ours, word


def _newlines() -> tuple[str, ...]:
    newlines, own, window = measured.by_block(measured.results(), "4 newlines", "4 sinks", "0 sinks")
    published = {row["cache"]: row["perplexity"] for row in load_published("sinks")["tables"]["window"]}
    theirs = f"{published['4 newlines + 1020']:.2f} against {published['4 + 1020']:.2f}"
    share = 100 * (window - newlines).mean() / (window - own).mean()
    effect = of_samples((window - newlines) - tables.ALMOST * (window - own))
    return "any tokens will do: four newlines", theirs, f"{share:.0f} % of the effect", _short(effect)


def _too_far() -> tuple[str, ...]:
    farthest = max(row["gap"] for row in rows(measured.results(), "gaps"))
    original, rolling = (rows(measured.results(), "gaps", positions=p, gap=farthest)[0] for p in _POSITIONS)
    ours = f"{original['perplexity']:.0f} against {rolling['perplexity']:.0f}, n = {len(rolling['losses'])}"
    word = _short(further.far_away(measured.results()))
    return "far sinks need positions of the cache", "section 3.2", ours, word


_POSITIONS = ("original", "rolling")


def _afresh() -> tuple[str, ...]:
    found = ways.results()
    more = ways.losses(found, four_ways.STREAMING) - ways.losses(found, four_ways.AFRESH)
    published = {row["way"]: row["perplexity"] for row in load_published("sinks")["tables"]["ways"]}
    theirs = f"{published[four_ways.STREAMING]:.2f} against {published[four_ways.AFRESH]:.2f}"
    claim = f"a stream is at most {100 * (ways.WITHIN - 1):.0f} % above a fresh window"
    return claim, theirs, f"{more.mean().exp():.2f} times", _short(of_samples(math.log(ways.WITHIN) - more))


def _trained() -> tuple[str, ...]:
    found = training.results()
    cost, _ = training.cost(found, "learnable sink", 1)
    claim = "a learned token is enough, if trained from the start"
    return claim, "18.01 against 18.02", f"{cost:+.1f} % against four", _short(trained.own_slot(found))
