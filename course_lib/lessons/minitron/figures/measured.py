"""The figures of lesson 05 that read what `course reproduce minitron` measured."""

import math

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from course_lib.lessons.common.dots import ERROR_BARS, reach
from course_lib.lessons.common.effects import log_gap
from course_lib.lessons.common.results import listed, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS, Effect
from course_lib.lessons.minitron import results
from course_lib.lessons.minitron.results import Measured

SETS = {"one of every group": "one of\nevery group", "a whole group": "a whole\ngroup", "any": "any three\nof a block"}
FAR = 4  # times the dense perplexity after learning: beyond that a way is named, not drawn


def scores(measured: Measured | None = None) -> Figure:
    """By cut: how many times the dense perplexity each score's choice has, beside choices by lot."""
    measured = measured or results.results()
    fig, (axes,) = figure(width=8.4, height=4.2)
    every = results.cuts(measured)
    for place, cut in enumerate(every[::-1]):
        drawn = results.lots(measured, cut)
        n = len(drawn[0]["losses"])
        by_lot = [results.times_dense(measured, row, n) for row in drawn]
        axes.plot(by_lot, [place] * len(drawn), "|", color=COLOURS[4], markersize=11, label="by lot")
        for index, (score, name) in enumerate(results.SCORES.items()):
            if row := results.scored(measured, cut, *score):
                look = line_style(index) | {"linestyle": "none", "markersize": 7}
                axes.plot(results.times_dense(measured, row, n), place + 0.22, label=name, **look)
    axes.set_yticks(range(len(every)), [results.name_of(cut).replace(", ", ",\n") for cut in every[::-1]])
    axes.set_ylim(-0.5, len(every) - 0.3)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    entries = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    fig.legend(entries.values(), entries.keys(), frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    clear = {cut: effect.holds for cut, effect in results.than_lots(measured).items()}
    n_draws = min(len(results.lots(measured, cut)) for cut in every)
    title = (
        f"Sizes of activations choose clearly better than lots in {sum(clear.values())} of {len(clear)} cuts;\n"
        f"at least {n_draws} draws of each"
    )
    label(axes, title, f"times the dense perplexity, {n} windows (log scale)")
    return fig


def width_or_depth(measured: Measured | None = None) -> Figure:
    """Perplexity at equal parameters, before any learning and after some steps, by what left."""
    measured = measured or results.results()
    fig, (axes,) = figure(width=7.2, height=3.8)
    ways, whole = results.ways(measured), results.dense(measured)["perplexity"]
    steps = max(ways["neurons"])
    near = {name: by_step for name, by_step in ways.items() if by_step[steps]["perplexity"] < FAR * whole}
    for index, (name, by_step) in enumerate(near.items()):
        values = [row["perplexity"] for row in by_step.values()]
        axes.plot(range(len(values)), values, label=f"{name}, {values[0]:.1f} to {values[-1]:.1f}", **line_style(index))
    axes.axhline(whole, color=COLOURS[4], linestyle=":", label=f"dense, {whole:.1f}")
    axes.set_xticks((0, 1), ("cut", f"after {steps} steps"))
    axes.set_xlim(-0.1, 1.1)
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    after = results.width_over_depth(measured, after=True)
    ahead = listed([name for name, effect in after.items() if effect.fails] or ["none"])
    outside = "; ".join(
        f"{name}: {by_step[0]['perplexity']:,.0f} to {by_step[steps]['perplexity']:,.0f}"
        for name, by_step in ways.items()
        if name not in near
    )
    label(axes, f"After {steps} steps, clearly ahead of fewer neurons: {ahead}", "", "perplexity (log scale)")
    if outside:
        axes.set_xlabel(f"not shown: {outside}")
    return fig


def learning(measured: Measured) -> Figure:
    """Loss above the dense model over the steps of a long run by KL, and the short run whose rate fell in 40 steps."""
    fig, (axes,) = figure(width=7.2, height=3.6)
    looks, whole = results.curve(measured), results.dense(measured)
    (short,) = [row for row in rows(measured, "equal_parameters", name="neurons") if row["steps"]]
    runs = {"one run": [(row["step"], row) for row in looks]}
    runs[f"a run of {short['steps']} steps in all"] = [(short["steps"], short)]
    for index, (name, points) in enumerate(runs.items()):
        gaps = [log_gap(whole, row) for _, row in points]
        look = line_style(index) | ({"linestyle": "none", "markersize": 8} if index else {})
        errors = [ERRORS * gap.error for gap in gaps]
        axes.errorbar([step for step, _ in points], [gap.value for gap in gaps], errors, capsize=3, label=name, **look)
    axes.set_ylim(0)
    axes.legend(frameon=False, fontsize=9)
    values = [row["perplexity"] for row in looks]
    title = (
        f"{looks[-1]['step']} steps, {looks[-1]['tokens']:,} tokens: perplexity {values[0]:.1f} becomes "
        f"{values[-1]:.1f};\n{100 * results.left(measured):.0f} % of the distance to the dense model, in nats, is left"
    )
    label(axes, title, "steps of 512 tokens", f"nats a token above dense\n({ERROR_BARS})")
    return fig


def heads(measured: Measured) -> Figure:
    """A third of the heads silenced: three sets by score and by lot, and two of them one block at a time."""
    fig, (left_axes, right_axes) = figure(n_columns=2, width=5.2, height=3.8)
    sets = list(dict.fromkeys(row["set"] for row in rows(measured, "heads")))
    for place, which in enumerate(sets[::-1]):
        drawn = rows(measured, "heads", set=which, chosen="random")
        n = len(drawn[0]["losses"])
        (chosen,) = rows(measured, "heads", set=which, chosen="score")
        by_lot = [results.times_dense(measured, row, n) for row in drawn]
        left_axes.plot(by_lot, [place] * len(by_lot), "|", color=COLOURS[4], markersize=13, label="by lot")
        look = line_style(0) | {"linestyle": "none", "markersize": 7}
        left_axes.plot(results.times_dense(measured, chosen, n), place + 0.2, label="lowest by score", **look)
    left_axes.set_yticks(range(len(sets)), [SETS.get(which, which) for which in sets[::-1]])
    left_axes.set_ylim(-0.5, len(sets) - 0.3)
    log_scale(left_axes, "x")
    handles = dict(zip(*reversed(left_axes.get_legend_handles_labels()), strict=True))
    left_axes.legend(handles.values(), handles.keys(), frameon=False, fontsize=9)
    better = [SETS.get(which, which).replace("\n", " ") for which in sets if _beside_lots(measured, which).holds]
    title = f"The score chooses clearly better than lots:\n{listed(better) if better else 'in none of the three sets'}"
    label(left_axes, title, "times the dense perplexity (log scale)")
    costs = {}
    for index, which in enumerate(dict.fromkeys(row["set"] for row in rows(measured, "heads_by_block"))):
        by_block = rows(measured, "heads_by_block", set=which)
        costs[which] = [math.log(results.times_dense(measured, row, len(row["losses"]))) for row in by_block]
        right_axes.plot(
            [row["block"] for row in by_block], costs[which], markersize=4, label=which, **line_style(index)
        )
    right_axes.axhline(0, color=COLOURS[4], linestyle=":")
    right_axes.legend(frameon=False, fontsize=9)
    each = next(iter(costs))
    worst = max(range(len(costs[each])), key=costs[each].__getitem__)
    title = f"One block at a time: block {worst} costs most,\n{costs[each][worst]:+.2f} nats without {each}"
    label(right_axes, title, "block", "nats a token above dense")
    return fig


def _beside_lots(measured: Measured, which: str) -> Effect:
    (chosen,) = rows(measured, "heads", set=which, chosen="score")
    return results.beside_lots(chosen, rows(measured, "heads", set=which, chosen="random"))


def repaired(measured: Measured) -> Figure:
    """1126 neurons: the cut, the refit at two dampings, and both after learning."""
    fig, (axes,) = figure(width=7.2, height=3.2)
    plain = results.scored(measured, ("neurons", 1126))
    refits = [row for row in rows(measured, "refit", setting=results.BEST) if row["steps"] == 0]
    learnt = results.ways(measured)["neurons"]
    steps = max(learnt)
    (both,) = [row for row in rows(measured, "refit", setting=results.BEST) if row["steps"]]
    lines = {"cut": plain} | {f"cut, refit with λ = {row['damping']:g}": row for row in refits}
    lines |= {f"cut, {steps} steps": learnt[steps], f"cut, refit, {steps} steps": both}
    for place, row in enumerate(reversed(lines.values())):
        below, above = reach(row["perplexity"], row["standard_error"])
        axes.errorbar(row["perplexity"], place, xerr=[[below], [above]], capsize=3, **line_style(0))
        axes.annotate(f" {row['perplexity']:.1f}", (row["perplexity"] + above, place), va="center", fontsize=9)
    axes.set_yticks(range(len(lines)), list(lines)[::-1])
    axes.set_ylim(-0.6, len(lines) - 0.4)
    log_scale(axes, "x")
    axes.margins(x=0.12)
    before, after = log_gap(refits[-1], plain), log_gap(both, learnt[steps])
    title = (
        f"The refit gains {before.value:.3f} ± {before.error:.3f} nats at once,\n"
        f"and {after.value:+.3f} ± {after.error:.3f} after {steps} steps of learning"
    )
    label(axes, title, f"perplexity (log scale; {ERROR_BARS})")
    return fig
