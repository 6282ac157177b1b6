"""The figures of lesson 07 that read measured.json, the measurement made by `course reproduce kv`."""

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.dots import edged
from course_lib.lessons.common.effects import log_gap, share_gap
from course_lib.lessons.common.results import listed, load_measured, rows
from course_lib.lessons.common.style import COLOURS, DASHES, MARKERS, figure, label, log_scale
from course_lib.lessons.kv import figures
from course_lib.lessons.kv.estimates import FULL, Measured

CURVES = ("Window", "StreamingLLM", "H2O", "Scissorhands", "SnapKV", "TOVA", "D2O", "EMS")
OPEN, FILLED = "white", None  # markers of lines beyond the fifth are hollow, so that each line differs in greyscale


def results() -> Measured:
    """The committed measurement."""
    return load_measured("kv")


def _names(measured: Measured, table: str) -> list[str]:
    """The policies of a table: those of CURVES first, in that order."""
    policies = {row["policy"] for row in measured["tables"][table]} - {FULL}
    return [*(n for n in CURVES if n in policies), *sorted(policies - set(CURVES))]


def _look(index: int) -> dict[str, Any]:
    face = {"markerfacecolor": OPEN} if index >= len(MARKERS) else {}
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    return {"color": colour, "marker": marker, "linestyle": DASHES[index % len(DASHES)], "markersize": 5} | face


def compressed(measured: Measured | None = None) -> Figure:
    """Perplexity of what follows a compressed prompt, over the share of it that is kept."""
    measured = measured or results()
    fig, (axes, near) = figure(2, width=5.2, height=3.8)
    (full,) = rows(measured, "compressed", policy=FULL)
    for index, name in enumerate(_names(measured, "compressed")):
        points = sorted(rows(measured, "compressed", policy=name), key=lambda row: row["budget"])
        shares, values = [100 * row["budget"] for row in points], [row["perplexity"] for row in points]
        for panel in (axes, near) if max(values) < 2 * full["perplexity"] else (axes,):
            panel.plot(shares, values, label=name, **_look(index))
    for panel in (axes, near):
        panel.axhline(full["perplexity"], color="black", linestyle=":", linewidth=1, label="everything kept")
        log_scale(panel, "y")
    axes.legend(frameon=False, fontsize=8, ncols=2)
    label(near, "Those that stay below twice the full cache", "kept of the prompt (%)")
    least = min(row["budget"] for row in measured["tables"]["compressed"])
    best, *others = sorted(rows(measured, "compressed", budget=least), key=lambda row: row["perplexity"])
    alike = [best["policy"], *(row["policy"] for row in others if not log_gap(best, row).holds)]
    times = best["perplexity"] / full["perplexity"]
    title = (
        f"{100 * least:.0f} % of a prompt, n = {len(best['losses'])}: at best {times:.2f} times the full cache,\n"
        f"{listed(alike)}{' are not told apart' if len(alike) > 1 else ''}"
    )
    label(axes, title, "kept of the prompt (%)", "perplexity after it (log scale)")
    return fig


def by_depth(measured: Measured | None = None, task: str = "word", shares: tuple[float, ...] = (0.2, 0.5)) -> Figure:
    """Right answers by policy and by where in the prompt the needle was, at the budgets nearest to some shares."""
    measured = measured or results()
    names = [FULL, *_names(measured, "retrieval_depths")]
    budgets = {row["budget"] for row in rows(measured, "retrieval_depths", task=task) if row["policy"] != FULL}
    nearest = list(dict.fromkeys(min(budgets, key=lambda kept: abs(kept - share)) for share in shares))
    fig, axes = figure(len(nearest), width=5.4, height=0.36 * len(names) + 1.5)
    for panel, budget in zip(axes, nearest, strict=True):
        _depths_panel(panel, measured, task, budget, names)
    return fig


def _depths_panel(axes: Axes, measured: Measured, task: str, budget: float, names: list[str]) -> None:
    """Of one budget; the title counts the policies that clearly know less of the middle than of the end."""
    cells = {
        (row["policy"], row["depth"]): row
        for row in rows(measured, "retrieval_depths", task=task)
        if row["policy"] == FULL or row["budget"] == budget
    }
    depths = sorted({depth for _, depth in cells})
    table = torch.tensor([[cells[name, depth]["exact"] for depth in depths] for name in names])
    axes.imshow(table, cmap="Greys", vmin=0, vmax=1.25, aspect="auto")
    axes.grid(visible=False)
    for row in range(len(names)):
        for column in range(len(depths)):
            share = table[row, column].item()
            look = {"ha": "center", "va": "center", "fontsize": 9, "color": "white" if share > 0.6 else "black"}
            axes.text(column, row, f"{100 * share:.0f}", **look)
    axes.set_xticks(range(len(depths)), [f"{100 * depth:.0f} %" for depth in depths])
    axes.set_yticks(range(len(names)), names)
    n, middle, end = cells[FULL, depths[0]]["n"], depths[len(depths) // 2], depths[-1]
    less = [share_gap(cells[name, end]["exact"], cells[name, middle]["exact"], n).holds for name in names[1:]]
    title = f"{100 * budget:.0f} % kept, {n} needles a depth: {sum(less)} of {len(less)}\n"
    title += "clearly know less of the middle than of the end"
    label(axes, title, "depth of the needle (right answers in %)")


def answers(measured: Measured | None = None) -> Figure:
    """The leak: the same needles, asked for in the prompt and after the eviction."""
    measured = measured or results()
    leaked = measured["tables"]["leak"]
    names = {(row["policy"], row["budget"]): f"{row['policy']}\n{100 * row['budget']:.0f} %" for row in leaked}
    fair = {key: rows(measured, "retrieval", task="word", policy=key[0], budget=key[1])[0] for key in names}
    early = {(row["policy"], row["budget"]): row for row in leaked}
    protocols = {"asked in the prompt": early, "asked after the eviction": fair}
    return figures.answers(
        {
            protocol: {names[key]: (row["exact"], (row["low"], row["high"])) for key, row in cells.items()}
            for protocol, cells in protocols.items()
        },
        leaked[0]["n"],
    )


def second_needle(measured: Measured | None = None) -> Figure:
    """Two questions one after the other: the second asks for what the first did not."""
    measured = measured or results()
    table_rows = measured["tables"]["second_needle"]
    names = list(dict.fromkeys(row["policy"] for row in table_rows))
    fig, (axes,) = figure(width=7.6, height=3.4)
    for index, question in enumerate((1, 2)):
        these = [rows(measured, "second_needle", policy=name, question=question)[0] for name in names]
        places = [i + 0.38 * (index - 0.5) for i in range(len(names))]
        share = [100 * row["exact"] for row in these]
        error = [
            [max(0.0, 100 * (row["exact"] - row["low"])) for row in these],
            [max(0.0, 100 * (row["high"] - row["exact"])) for row in these],
        ]
        look = {"color": COLOURS[index], "hatch": ("", "//")[index], "capsize": 3}
        edged(axes.bar(places, share, 0.36, yerr=error, label=("first question", "second question")[index], **look))
    axes.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names], fontsize=8)
    axes.set_ylim(0, 128)
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, ncols=2, loc="upper left")
    second = {name: rows(measured, "second_needle", policy=name, question=2)[0]["exact"] for name in names}
    listing = ", ".join(f"{name} {100 * share:.0f} %" for name, share in second.items() if name in (FULL, "H2O"))
    recycled = {name: share for name, share in second.items() if name.startswith("recycled, ")}
    each = ", ".join(f"{name.removeprefix('recycled, ')} {100 * share:.0f} %" for name, share in recycled.items())
    title = f"The second question, n = {table_rows[0]['n']}: {listing};\nrecycled: {each}"
    label(axes, title, "", "right answers (%)")
    return fig


def persistence(measured: Measured | None = None, start: str = "text") -> Figure:
    """Scissorhands' persistence ratio over depth, beside chance."""
    layers = rows(measured or results(), "attention", start=start)
    ratio, chance = (torch.tensor([row[key] for row in layers]) for key in ("persistence_any", "pivotal_any"))
    return figures.persistence(ratio, chance)
