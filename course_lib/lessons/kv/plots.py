"""The figures of lesson 07, for notebook and deck. A figure's title is its finding, computed from the data.

Without arguments a figure shows the stored results. The others show what a cell of the notebook measures.

Dimension key: S moments, L layers, T tokens of a text, P predictions, E evicted tokens.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.kv.analysis.power_law import PowerLaw
from course_lib.lessons.common.dots import edged
from course_lib.lessons.common.effects import log_gap, share_gap
from course_lib.lessons.common.results import listed, load_measured, percent, rows
from course_lib.lessons.common.style import COLOURS, DASHES, MARKERS, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS, Effect, of_samples
from course_lib.lessons.kv import claims
from course_lib.lessons.kv.estimates import (
    FULL,
    HEAVIEST,
    RANDOM,
    SPARED,
    SUFFICE,
    above_full,
    by_budget,
    suffices,
    sum_minus_mean,
)

Results = Mapping[str, Any]
Answers = Mapping[str, tuple[float, tuple[float, float]]]  # by policy: fraction right, and its 95 % interval
HATCHES = ("", "//", "..", "xx", "\\\\", "++")
GREYS = ("#16324f", "#c8553d", "#2a9d8f", "#e9b44c", "#8d99ae", "#d9dde3")
POLICIES = ("Window", "StreamingLLM", "H2O", "Scissorhands", "SnapKV", "TOVA", "D2O", "EMS")
MASKED = {HEAVIEST: "the heaviest", SPARED: "the heaviest except the first token", RANDOM: "as many at random"}


def streams(kept: Mapping[str, Bool[Tensor, "S T"]], n_read: Sequence[int], where: str) -> Figure:
    """Plot which tokens are in the cache while a text is read: dark is kept, light grey is evicted."""
    fig, axes = figure(len(kept), width=3.5, height=3.6)
    for panel, (name, moments) in zip(axes, kept.items(), strict=True):
        is_read = torch.arange(moments.shape[1]) < torch.tensor(n_read)[:, None]
        shade = torch.where(moments, 1.0, torch.where(is_read, 0.18, 0.0))
        extent = (0, moments.shape[1], n_read[-1], 0)
        panel.imshow(shade, cmap="Greys", vmin=0, vmax=1.1, aspect="auto", interpolation="nearest", extent=extent)
        panel.grid(visible=False)
        tokens = moments[-1].nonzero().flatten()
        n_old = int((tokens < n_read[-1] - len(tokens)).sum())
        end = f"kept tokens\nare not among the newest {len(tokens)}"
        label(panel, f"{name}: {n_old} of {len(tokens)} {end}", "token of the text")
    axes[0].set_ylabel(f"tokens read ({where})")
    return fig


def excess(losses: Mapping[str, Float[Tensor, "P"]], full: Float[Tensor, "P"], budget: int, block: int = 32) -> Figure:
    """Plot the perplexity of each policy as a multiple of the full cache's, by block of tokens."""
    fig, (axes,) = figure(width=7.4)
    ratios = {}
    for index, (name, of_policy) in enumerate(losses.items()):
        difference = of_policy - full
        n = len(difference) // block
        ratio = difference[: n * block].view(n, block).mean(dim=1).exp()
        axes.plot([block * (i + 1) for i in range(n)], ratio, markersize=4, label=name, **line_style(index))
        ratios[name] = difference[budget:].mean().exp().item()
    axes.axvline(budget, color="black", linewidth=0.8, linestyle=":")
    look = {"xycoords": ("data", "axes fraction"), "rotation": 90, "ha": "right", "va": "top", "fontsize": 9}
    axes.annotate(f"{budget} slots are full ", (budget, 1), **look)
    axes.axhline(1, color=COLOURS[4], linewidth=0.8)
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    listing = ", ".join(f"{name} {value:.2f}" for name, value in ratios.items())
    title = f"Once {budget} slots are full, times the perplexity of the full cache:\n{listing}"
    label(axes, title, "tokens read", f"ratio, mean of {block} tokens (log scale)")
    return fig


def mass_by_rank(mass: Float[Tensor, "L T"], layers: Sequence[int]) -> Figure:
    """Plot the fraction of all attention that a token receives over its rank, for some layers.

    A power of the rank is fitted to the middle one of them, from the second rank to half of all.
    """
    fig, (axes,) = figure(width=7.2)
    ordered = mass.sort(dim=1, descending=True).values
    for index, layer in enumerate(layers):
        look = line_style(index) | {"marker": ""}
        axes.plot(range(1, ordered.shape[1] + 1), 100 * ordered[layer], label=f"layer {layer}", **look)
    axes.axhline(100 / mass.shape[1], color="black", linewidth=1.0, linestyle=":", label="even attention")
    middle = layers[len(layers) // 2]
    law = PowerLaw.fit(ordered[middle], 2, mass.shape[1] // 2)
    rank = torch.arange(law.first, law.last + 1).double()
    shift = (ordered[middle, law.first - 1 : law.last].double().log() - law.slope * rank.log()).mean()
    look = {"color": "black", "linewidth": 2.2, "alpha": 0.35}
    name = f"layer {middle} fitted: rank to the power {law.slope:.2f}"
    axes.plot(rank, 100 * (law.slope * rank.log() + shift).exp(), label=name, **look)
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False, fontsize=9)
    n = round(0.05 * mass.shape[1])
    few = 100 * ordered[:, :n].sum(dim=1)
    title = f"5 % of the tokens receive {few.min():.0f} to {few.max():.0f} % of all attention, by layer"
    label(axes, title, "rank of the token (log scale)", "fraction of all attention (%, log scale)")
    return fig


def receivers(by_kind: Mapping[str, Float[Tensor, "L"]]) -> Figure:
    """Plot the fraction of all attention by kind of token and layer, stacked."""
    fig, (axes,) = figure(width=7.4)
    below = torch.zeros(len(next(iter(by_kind.values()))))
    by_kind = {"neighbours" if kind == "near" else kind: part for kind, part in by_kind.items() if part.any()}
    for index, (kind, part) in enumerate(by_kind.items()):
        look = {"facecolor": GREYS[index % len(GREYS)], "hatch": HATCHES[index % len(HATCHES)], "edgecolor": "white"}
        # One outline for all layers: with a hatched bar for each of them the slide took minutes to print.
        edges, above = torch.arange(len(part) + 1) - 0.5, below + part
        look |= {"baseline": 100 * below.numpy(), "fill": True, "label": kind, "linewidth": 0}
        axes.stairs(100 * above.numpy(), edges.numpy(), **look)
        below = above
    axes.grid(visible=False)
    axes.set_ylim(0, 118)
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, fontsize=8, ncols=6, loc="upper center")
    means = ", ".join(f"{kind} {100 * part.mean():.0f} %" for kind, part in by_kind.items() if part.mean() >= 0.02)
    label(axes, f"Mean over the layers: {means}", "layer", "fraction of all attention (%)")
    return fig


def answers(protocols: Mapping[str, Answers], n: int) -> Figure:
    """Plot the right answers to n questions with 95 % intervals, by protocol and policy.

    The first protocol leaks the answer, and may have fewer policies.
    """
    fig, (axes,) = figure(width=7.2)
    names = list(max(protocols.values(), key=len))
    for index, (protocol, by_policy) in enumerate(protocols.items()):
        at = [i for i, name in enumerate(names) if name in by_policy]
        right, (low, high) = [100 * by_policy[names[i]][0] for i in at], _errors([by_policy[names[i]] for i in at])
        look = {"color": COLOURS[index], "hatch": HATCHES[index], "label": protocol, "capsize": 3}
        places = [i + 0.36 * (index - (len(protocols) - 1) / 2) for i in at]
        edged(axes.bar(places, right, 0.34, yerr=[low, high], **look))
    axes.set_xticks(range(len(names)), names, fontsize=10 if len(names) < 6 else 8)
    axes.set_ylim(0, 128)
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="upper left")
    (first, leaked), *fair = protocols.items()
    more = [leaked[name][0] - by_policy[name][0] for _, by_policy in fair for name in by_policy if name in leaked]
    title = f"{first.capitalize()}: up to {100 * max(more, default=0.0):.0f} points more than in the fair test"
    label(axes, title, "", f"right answers (%), n = {n}")
    return fig


def _errors(of_policies: Sequence[tuple[float, tuple[float, float]]]) -> tuple[list[float], list[float]]:
    """Return the lengths of the error bars below and above, in per cent."""
    below = [max(0.0, 100 * (right - low)) for right, (low, _) in of_policies]
    return below, [max(0.0, 100 * (high - right)) for right, (_, high) in of_policies]


def by_depth(results: Results | None = None, task: str = "word", budgets: tuple[float, ...] = (0.2, 0.5)) -> Figure:
    """Plot the right answers by policy and by the depth of the needle, at the measured budgets nearest to `budgets`."""
    results = results or load_measured("kv")
    names = [FULL, *_policies(results, "retrieval_depths")]
    measured = {row["budget"] for row in rows(results, "retrieval_depths", task=task) if row["policy"] != FULL}
    nearest_budgets = list(dict.fromkeys(min(measured, key=lambda kept: abs(kept - each)) for each in budgets))
    fig, axes = figure(len(nearest_budgets), width=5.4, height=0.36 * len(names) + 1.5)
    for panel, budget in zip(axes, nearest_budgets, strict=True):
        _depths_panel(panel, results, task, budget, names)
    return fig


def _depths_panel(axes: Axes, results: Results, task: str, budget: float, names: list[str]) -> None:
    """Draw one budget; the title counts the policies that find clearly fewer needles in the middle than at the end."""
    cells = {
        (row["policy"], row["depth"]): row
        for row in rows(results, "retrieval_depths", task=task)
        if row["policy"] == FULL or row["budget"] == budget
    }
    depths = sorted({depth for _, depth in cells})
    table = torch.tensor([[cells[name, depth]["exact"] for depth in depths] for name in names])
    axes.imshow(table, cmap="Greys", vmin=0, vmax=1.25, aspect="auto")
    axes.grid(visible=False)
    for row in range(len(names)):
        for column in range(len(depths)):
            right = table[row, column].item()
            look = {"ha": "center", "va": "center", "fontsize": 9, "color": "white" if right > 0.6 else "black"}
            axes.text(column, row, f"{100 * right:.0f}", **look)
    axes.set_xticks(range(len(depths)), [f"{100 * depth:.0f} %" for depth in depths])
    axes.set_yticks(range(len(names)), names)
    n, middle, end = cells[FULL, depths[0]]["n"], depths[len(depths) // 2], depths[-1]
    fewer = [share_gap(cells[name, end]["exact"], cells[name, middle]["exact"], n).holds for name in names[1:]]
    title = f"{100 * budget:.0f} % kept, {n} needles per depth: {sum(fewer)} of {len(fewer)}\n"
    title += "find clearly fewer in the middle than at the end"
    label(axes, title, "depth of the needle (right answers in %)")


def compressed(results: Results | None = None) -> Figure:
    """Plot the perplexity of the text after a compressed prompt over the fraction of the prompt that is kept."""
    results = results or load_measured("kv")
    fig, (axes, near) = figure(2, width=5.2, height=3.8)
    (full,) = rows(results, "compressed", policy=FULL)
    for index, name in enumerate(_policies(results, "compressed")):
        points = by_budget(results, "compressed", policy=name)
        kept, values = [100 * row["budget"] for row in points], [row["perplexity"] for row in points]
        for panel in (axes, near) if max(values) < 2 * full["perplexity"] else (axes,):
            panel.plot(kept, values, label=name, **_look(index))
    for panel in (axes, near):
        panel.axhline(full["perplexity"], color="black", linestyle=":", linewidth=1, label="everything kept")
        log_scale(panel, "y")
    axes.legend(frameon=False, fontsize=8, ncols=2)
    label(near, "The policies below twice the full cache", "kept of the prompt (%)")
    least = min(row["budget"] for row in results["tables"]["compressed"])
    best, *others = sorted(rows(results, "compressed", budget=least), key=lambda row: row["perplexity"])
    alike = [best["policy"], *(row["policy"] for row in others if not log_gap(best, row).holds)]
    times = best["perplexity"] / full["perplexity"]
    end = " do not differ significantly" if len(alike) > 1 else ""
    title = f"{100 * least:.0f} % of a prompt, n = {len(best['losses'])}: at best {times:.2f} times the full cache,\n"
    label(axes, f"{title}{listed(alike)}{end}", "kept of the prompt (%)", "perplexity after it (log scale)")
    return fig


def _policies(results: Results, table: str) -> list[str]:
    """Return the policies of a table, those of POLICIES first and in that order."""
    names = {row["policy"] for row in results["tables"][table]} - {FULL}
    return [*(name for name in POLICIES if name in names), *sorted(names - set(POLICIES))]


def _look(index: int) -> dict[str, Any]:
    """Return the style of a line; from the sixth on, markers are hollow, so that lines differ in greyscale as well."""
    face = {"markerfacecolor": "white"} if index >= len(MARKERS) else {}
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    return {"color": colour, "marker": marker, "linestyle": DASHES[index % len(DASHES)], "markersize": 5} | face


def enough(axes: Axes, results: Results | None = None) -> None:
    """Plot the perplexity when each query reads only its largest weights, over the fraction that it reads."""
    results = results or load_measured("kv", "heavy")
    table = sorted(results["tables"]["enough"], key=lambda row: row["share"])
    _log_points(axes, [(row["share"], above_full(row)) for row in table], "its own largest weights", 0)
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":", label="all weights")
    axes.set_ylim(bottom=0.99)
    axes.legend(frameon=False, fontsize=9, title="each query reads", alignment="left")
    five = suffices(results)
    same = percent(sum(five["same"]) / len(five["same"]))
    title = f"{100 * SUFFICE:.0f} % of the tokens: {math.exp(above_full(five).value):.2f} times the perplexity;\n"
    title += f"{same} of the next tokens the same, n = {len(five['losses'])} texts"
    label(axes, title, "tokens that each query reads (%)", "times the full perplexity")


def masked(results: Results | None = None) -> Figure:
    """Plot the perplexity when some tokens of every head are masked, over the fraction that is masked."""
    results = results or load_measured("kv", "heavy")
    fig, (axes,) = figure(width=7.2)
    for index, (which, name) in enumerate(MASKED.items()):
        table = sorted(rows(results, "masked", which=which), key=lambda row: row["share"])
        _log_points(axes, [(row["share"], above_full(row)) for row in table], name, index)
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False, fontsize=9, title="masked", alignment="left")
    most = max(row["share"] for row in results["tables"]["masked"])
    at_most = {which: above_full(rows(results, "masked", which=which, share=most)[0]) for which in MASKED}
    times = {which: math.exp(effect.value) for which, effect in at_most.items()}
    title = f"{100 * most:.0f} % masked: {times[HEAVIEST]:.3g} times the perplexity; without the first token "
    title += f"{times[SPARED]:.2f},\nat random {times[RANDOM]:.2f}; n = {at_most[RANDOM].n} texts"
    label(axes, title, "tokens masked in each head (%, log scale)", "times the full perplexity (log scale)")
    return fig


def _log_points(axes: Axes, points: Sequence[tuple[float, Effect]], name: str, index: int) -> None:
    """Draw multiples of the full perplexity, with two standard errors, over a fraction in per cent."""
    middle = [math.exp(effect.value) for _, effect in points]
    low = [at - math.exp(effect.value - ERRORS * effect.error) for at, (_, effect) in zip(middle, points, strict=True)]
    high = [math.exp(effect.value + ERRORS * effect.error) - at for at, (_, effect) in zip(middle, points, strict=True)]
    x = [100 * fraction for fraction, _ in points]
    axes.errorbar(x, middle, yerr=[low, high], capsize=3, markersize=5, label=name, **line_style(index))


def bias(results: Results | None = None) -> Figure:
    """Plot where the kept tokens of a prompt lie when ranked by sum and by mean, and what the mean changes."""
    results = results or load_measured("kv", "heavy")
    fig, (where, what) = figure(2, width=4.6, height=3.4)
    for index, score in enumerate(("sum", "mean")):
        table = by_budget(results, "bias", score=score)
        effects = [of_samples(row["first_quarter"]) for row in table]
        early, errors = [100 * effect.value for effect in effects], [100 * ERRORS * effect.error for effect in effects]
        kept = [100 * row["budget"] for row in table]
        where.errorbar(kept, early, yerr=errors, capsize=3, label=f"by the {score}", **line_style(index))
    where.axhline(25, color="black", linewidth=0.8, linestyle=":", label="a quarter")
    where.set_ylim(0, 100)
    where.legend(frameon=False, fontsize=9)
    more, lower = (list(sum_minus_mean(results, column).values()) for column in ("first_quarter", "losses"))
    errors = [ERRORS * effect.error for effect in lower]
    what.errorbar(kept, [effect.value for effect in lower], yerr=errors, capsize=3, **line_style(2))
    what.axhline(0, color="black", linewidth=0.8, linestyle=":")
    points = ", ".join(f"{100 * effect.value:.0f}" for effect in more)
    title = f"The sum keeps more old tokens,\nby {points} points"
    label(where, title, "kept of the prompt (%)", "in the first quarter (%)")
    verdict = claims.MEANS_READ_BETTER.judge(results).words.partition(" (")[0]
    label(what, f"Lower perplexity by the mean:\n{verdict}", "kept of the prompt (%)", "log-perplexity lower by")
    return fig


def persistence(results: Results | None = None, start: str = "text") -> Figure:
    """Plot the fraction of the pivotal tokens that were pivotal before, over depth, and what chance would give."""
    layers = rows(results or load_measured("kv", "kv_further"), "attention", start=start)
    ratio, chance = (torch.tensor([row[key] for row in layers]) for key in ("persistence_any", "pivotal_any"))
    fig, (axes,) = figure(width=7.2)
    axes.plot(100 * ratio, markersize=4, label="pivotal before", **line_style(0))
    axes.plot(100 * chance, markersize=4, label="by chance", **line_style(1))
    axes.axhline(95, color=COLOURS[4], linestyle=":", label="95 %, the paper's mark")
    axes.set_ylim(0, 105)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    above = int((ratio > 0.95).sum())
    title = f"Above 95 % in {above} of {len(ratio)} layers; chance alone gives {100 * chance.mean():.0f} % on average"
    label(axes, title, "layer", "fraction of the later pivotal tokens (%)")
    return fig


def nearest(cosines: Mapping[str, Float[Tensor, "L E"]], width: float = 7.2, height: float = 3.6) -> Figure:
    """Plot the median cosine of an evicted key or value with the nearest one that is kept, over depth."""
    fig, (axes,) = figure(width=width, height=height)
    for index, (name, values) in enumerate(cosines.items()):
        axes.plot(values.median(dim=1).values, markersize=4, label=name, **line_style(index))
        low, high = values.quantile(0.1, dim=1), values.quantile(0.9, dim=1)
        axes.fill_between(range(len(values)), low, high, color=COLOURS[index], alpha=0.15, linewidth=0)
    axes.set_ylim(0, 1.05)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    medians = ", ".join(f"{name} {values.median():.2f}" for name, values in cosines.items())
    label(axes, f"Nearest kept neighbour, median cosine:\n{medians}", "layer", "cosine (median, 10 to 90 % shaded)")
    return fig


def second_needle(results: Results | None = None) -> Figure:
    """Plot the right answers to two questions about the same text, asked one after the other."""
    results = results or load_measured("kv")
    names = list(dict.fromkeys(row["policy"] for row in results["tables"]["second_needle"]))
    fig, (axes,) = figure(width=7.6, height=3.4)
    for index, question in enumerate((1, 2)):
        of_question = [rows(results, "second_needle", policy=name, question=question)[0] for name in names]
        right = [100 * row["exact"] for row in of_question]
        error = _errors([(row["exact"], (row["low"], row["high"])) for row in of_question])
        look = {"color": COLOURS[index], "hatch": HATCHES[index], "capsize": 3}
        look["label"] = ("first question", "second question")[index]
        edged(axes.bar([i + 0.38 * (index - 0.5) for i in range(len(names))], right, 0.36, yerr=error, **look))
    axes.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names], fontsize=8)
    axes.set_ylim(0, 128)
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, ncols=2, loc="upper left")
    second = {row["policy"]: percent(row["exact"]) for row in rows(results, "second_needle", question=2)}
    listing = ", ".join(f"{name} {right}" for name, right in second.items() if name in (FULL, "H2O"))
    recycled = {name: right for name, right in second.items() if name.startswith("recycled, ")}
    each = ", ".join(f"{name.removeprefix('recycled, ')} {right}" for name, right in recycled.items())
    title = f"The second question, n = {of_question[0]['n']}: {listing};\nrecycled: {each}"
    label(axes, title, "", "right answers (%)")
    return fig
