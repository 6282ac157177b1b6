"""The figures of lesson 01 that only the deck shows: drawings, published numbers, and further stored results."""

import torch
from matplotlib.figure import Figure

from course_lib.lessons.common.dots import error_bars
from course_lib.lessons.common.drawn_tables import drawn_claims
from course_lib.lessons.common.results import load_bench, load_measured, load_published, percent, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS, of_samples
from course_lib.lessons.patterns import claims
from course_lib.lessons.patterns.experiments.budget import BUDGET, stored
from course_lib.lessons.patterns.experiments.patterns import mask_bits, six_patterns, squares_kept, stored_perplexities
from course_lib.lessons.patterns.plots import bits, draw_cells, draw_list, example_weight, prepare, rounded
from course_lib.measure.roofline import H100, Device
from course_lib.sparsity.formats import NofMPacked
from course_lib.sparsity.patterns import Block, Columns, NofM, Pattern, Rows, Unstructured
from course_lib.sparsity.speed import speed_limits

GREY = "#5c6773"


def six() -> Figure:
    """Draw one random 16 × 16 matrix under six patterns at half: dark is kept."""
    score = torch.rand(16, 16, generator=torch.Generator().manual_seed(0))
    kinds: dict[str, Pattern] = {
        "single weights": Unstructured(0.5),
        "2:4": NofM(2, 4),
        "4 × 4": Block(4, 4, 0.5),
        "8 × 8": Block(8, 8, 0.5),
        "columns": Columns(0.5),
        "rows": Rows(0.5),
    }
    fig, panels = figure(2, 3, width=2.3, height=2.3)
    for axes, (name, pattern) in zip(panels, kinds.items(), strict=True):
        axes.imshow(pattern.keep(score), cmap="Greys", vmin=0, vmax=1.25, interpolation="nearest")
        axes.axis("off")
        axes.set_title(name, loc="left", fontsize=12)
    return fig


def freedom(weight: torch.Tensor | None = None) -> Figure:
    """Plot what each pattern keeps of the squares over the bits per weight that identify one of its masks."""
    weight = example_weight() if weight is None else weight
    fig, (axes,) = figure(width=5.6, height=4.2)
    patterns = six_patterns(0.5)
    n_bits = {name: mask_bits(pattern, *weight.shape) for name, pattern in patterns.items()}
    for index, (name, pattern) in enumerate(patterns.items()):
        point = (n_bits[name], squares_kept(weight, pattern))
        axes.plot(*point, **(line_style(index) | {"linestyle": "none", "markersize": 8}))
        is_left = n_bits[name] < 0.1
        offset = {"xytext": (9 if is_left else -9, -3), "textcoords": "offset points"}
        axes.annotate(name, point, fontsize=9, ha="left" if is_left else "right", **offset)
    axes.set_xscale("log")
    axes.set_xticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
    axes.minorticks_off()
    axes.set_ylim(0.45, 1.0)
    axes.margins(x=0.2)
    first, *_, last = n_bits
    title = f"Bits per weight that identify a mask:\n{n_bits[first]:.2g} for {first}, {n_bits[last]:.1g} for {last}"
    label(axes, title, "bits per weight (log scale)", "fraction of the squares kept")
    return fig


def square_kept_curves(weight: torch.Tensor | None = None) -> Figure:
    """Plot the fraction of the squared weights that each pattern keeps, over sparsity."""
    weight = example_weight() if weight is None else weight
    fig, (axes,) = figure(height=4.0)
    grid = [i / 20 for i in range(20)]
    kinds = {
        "unstructured": [(s, Unstructured(s)) for s in grid],
        "n:4": [(1 - n / 4, NofM(n, 4)) for n in (3, 2, 1)],
        "blocks 4 × 4": [(s, Block(4, 4, s)) for s in grid],
        "rows": [(s, Rows(s)) for s in grid],
        "blocks 16 × 16": [(s, Block(16, 16, s)) for s in grid],
        "columns": [(s, Columns(s)) for s in grid],
    }
    for index, (name, points) in enumerate(kinds.items()):
        fractions = [squares_kept(weight, pattern) for _, pattern in points]
        look = line_style(index) if index < 5 else {"color": "black", "marker": "x", "linestyle": (0, (1, 3))}
        every = 2 if len(points) > 3 else 1
        axes.plot([s for s, _ in points], fractions, label=name, markersize=4, markevery=every, **look)
    axes.plot([0, 1], [1, 0], color=GREY, linewidth=0.8)
    axes.text(0.36, 0.5, "random choice", rotation=-37, color=GREY, fontsize=9, ha="center")
    axes.legend(frameon=False)
    free, regular = squares_kept(weight, Unstructured(0.5)), squares_kept(weight, NofM(2, 4))
    title = f"At 50 % sparsity, unstructured keeps {percent(free)} of the squares and 2:4 {percent(regular)}"
    label(axes, title, "sparsity (fraction of weights that are zero)", "fraction of the squares kept")
    return fig


def order() -> Figure:
    """Plot how much each pattern costs compared with the freer one before it, with two standard errors."""
    fig, panels = figure(2, width=5.2, height=3.8)
    n_windows = len(stored_perplexities()[0.5]["dense"].losses)
    for axes, claim, sparsity in zip(panels, (claims.ORDER_QUARTER, claims.ORDER_HALF), (0.25, 0.5), strict=True):
        judged = claim.judge()
        for row, effect in enumerate(judged.effects.values()):
            look = line_style(0) | {"linestyle": "none", "capsize": 3}
            axes.errorbar(effect.value, row, xerr=ERRORS * effect.error, **look)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(judged.effects)), list(judged.effects))
        axes.set_ylim(len(judged.effects) - 0.4, -0.6)
        title = f"{percent(sparsity)} pruned, a stricter pattern\ncosts more: {judged.words}"
        label(axes, title, f"nats per token\n({error_bars(n_windows)})")
    return fig


def papers() -> Figure:
    """Plot perplexity over that of the dense model by pattern, half of the weights pruned: published and measured."""
    fig, (axes,) = figure(width=5.2, height=4.6)
    series: dict[str, dict[str, float]] = {}
    for row in rows(load_published("patterns"), "perplexity"):
        series.setdefault(f"{row['model']}, {row['method']} (paper)", {})[row["pattern"]] = row["perplexity"]
    ours = stored_perplexities()[0.5]
    series["SmolLM2-135M, magnitude (measured)"] = {name: perplexity.value for name, perplexity in ours.items()}
    names = ("unstructured", "4:8", "2:4")
    for index, (name, values) in enumerate(series.items()):
        points = [(column, values[kind] / values["dense"]) for column, kind in enumerate(names) if kind in values]
        axes.plot(*zip(*points, strict=True), label=name, **line_style(index))
    ratios = [values["2:4"] / values["unstructured"] for values in series.values()]
    log_scale(axes, "y")
    axes.margins(y=0.15)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.3, len(names) - 0.7)
    axes.legend(frameon=False, fontsize=9)
    title = f"2:4 has {min(ratios):.1f} to {max(ratios):.1f} times the perplexity of single weights"
    label(axes, title, "half of the weights pruned", "perplexity over dense (log scale)")
    return fig


def columns() -> Figure:
    """Draw four of eight columns removed, and with them four inputs: a smaller product with the same outputs."""
    keep = Columns(0.5).keep(torch.tensor([[2.0, 8, 5, 1, 7, 3, 4, 6]]).repeat(3, 1))
    n_kept = int(keep[0].sum())
    fig, (axes,) = figure(width=7.2, height=3.2)
    draw_cells(axes, torch.zeros(3, 8), keep, top=0.6)
    draw_cells(axes, torch.zeros(8, 1), keep[:1].T, left=8.5, top=0.6)
    axes.text(10.1, -2.2, "≈", fontsize=18)
    draw_cells(axes, torch.zeros(3, n_kept), torch.ones(3, n_kept), left=11.5, top=0.6)
    draw_cells(axes, torch.zeros(n_kept, 1), torch.ones(n_kept, 1), left=16.0, top=0.6)
    for left, name in ((3.8, "W"), (8.9, "x"), (13.0, "W of S"), (15.9, "x of S")):
        axes.text(left, -0.3, name, fontsize=10)
    prepare(axes, 18, 9, "The kept columns are an ordinary smaller matrix, which needs no index")
    return fig


def tiles() -> Figure:
    """Draw absolute sums of 2 × 2 tiles, of which the larger half is kept."""
    matrix = torch.tensor([[3.0, -1, 0, 1, 4, -2], [2, 2, 1, 0, -1, 1], [1, 0, -5, 2, 0, 1], [0, 1, 3, -1, 2, 0]])
    keep = Block(2, 2, 0.5).keep(matrix.abs())
    total = matrix.abs().unflatten(1, (-1, 2)).unflatten(0, (-1, 2)).sum((1, 3))
    fig, (axes,) = figure(width=5.0, height=2.7)
    draw_cells(axes, matrix, keep, top=0.3)
    draw_cells(axes, total, keep[::2, ::2], left=8.2, top=1.3)
    axes.text(8.2, -1.0, "sums", fontsize=9, color=GREY)
    axes.annotate("", (8.0, -2.3), (6.2, -2.3), arrowprops={"arrowstyle": "->", "color": GREY})
    for edge in (2, 4):
        axes.plot([edge, edge], [-4.3, -0.3], color=COLOURS[1], linewidth=2)
    axes.plot([0, 6], [-2.3, -2.3], color=COLOURS[1], linewidth=2)
    prepare(axes, 12, 4.6, f"The {int(keep.sum() / 4)} tiles of 2 × 2 with the largest sums are kept")
    return fig


def two_of_four() -> Figure:
    """Draw eight weights, of which 2:4 keeps four, and what is stored of them."""
    row = torch.tensor([[1.0, 5, -2, -6, 7, 8, 3, 0]])
    keep = NofM(2, 4).keep(row.abs())
    packed = NofMPacked.encode(row * keep)
    fig, (axes,) = figure(width=5.0, height=3.6)
    draw_cells(axes, row, keep, top=0.4)
    axes.plot([4, 4], [-1.6, -0.2], color=COLOURS[1], linewidth=2)
    axes.text(0, -0.15, "two of every four are kept", fontsize=9, color=GREY)
    draw_list(axes, [f"{v:g}" for v in packed.values[0].tolist()], 0, 2.4, "values")
    draw_list(axes, packed.columns[0].remainder(4).tolist(), 5, 2.4, "positions, 2 bits each")
    (byte,) = bits(packed.positions)
    pairs = [byte[at : at + 2] for at in range(0, 8, 2)]
    draw_list(axes, pairs, 0, 4.5, "one byte: the first position in the lowest bits", 1.2)
    prepare(axes, 9.4, 6, f"{row.numel()} weights become {packed.values.numel()} values and one byte")
    return fig


def cpu_bench() -> Figure:
    """Plot the committed CPU bench: CSR and bitmap by density, 2:4 at half, one token, compared with dense."""
    bitmap, packed = (load_bench(f"cpu_{name}") for name in ("bitmap_matvec", "nm_matmul"))
    lines = claims.by_density(rows(bitmap, "sides"))
    for row in rows(packed, "sides", contest="2:4, tokens: 1"):
        if row["side"] != row["anchor"]:
            lines[f"2:4, {row['side']}"] = {0.5: row}
    return times_faster(lines, bitmap["machine"]["cpu"])


def times_faster(lines: dict[str, claims.Points], processor: str) -> Figure:
    """Plot dense time over sparse time against density, with the range from 10 to 90 % of the repetitions."""
    fig, (axes,) = figure(width=7.6, height=3.8)
    for index, (name, points) in enumerate(lines.items()):
        middle = [row["times_anchor"] for row in points.values()]
        below = [m - row["times_anchor_low"] for m, row in zip(middle, points.values(), strict=True)]
        above = [row["times_anchor_high"] - m for m, row in zip(middle, points.values(), strict=True)]
        axes.errorbar(list(points), middle, yerr=[below, above], capsize=3, label=name, **line_style(index))
    axes.axhline(1, color="black", linewidth=0.8)
    log_scale(log_scale(axes, "x"), "y")
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    title = "\n".join((f"One token, {processor}:", _finding(lines)))
    label(axes, title, "density: fraction of the weights stored (log scale)", "times faster than dense (log scale)")
    return fig


def _finding(lines: dict[str, claims.Points]) -> str:
    won = {name: [d for d, row in points.items() if row["times_anchor"] > 1] for name, points in lines.items()}
    gains = [f"{name} is faster up to a density of {max(densities):g}" for name, densities in won.items() if densities]
    lost = [row["times_anchor"] for name, points in lines.items() if not won[name] for row in points.values()]
    if lost:
        gains.append(f"the others reach at most {max(lost):.2f} of the dense speed")
    return ", ".join(gains)


def limits(n_rows: int = 11008, n_columns: int = 4096, device: Device = H100) -> Figure:
    """Plot the most that half of the weights can save on a GPU, by number of tokens: a calculation."""
    fig, (axes,) = figure(height=3.8)
    tokens = [2**power for power in range(14)]
    bounds = [speed_limits(n_rows, n_columns, n, device) for n in tokens]
    for index, name in enumerate(bounds[0]):
        marker = {"markersize": 4 + 3 * index, "fillstyle": "none" if index else "full"}  # some lines coincide
        axes.plot(tokens, [limit[name] for limit in bounds], label=name, **line_style(index) | marker)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.legend(frameon=False, fontsize=9)
    one, many = bounds[0], bounds[-1]
    title = (
        f"2:4: at most × {one['2:4']:.2f} with one token, × {many['2:4']:.2f} with {tokens[-1]};\n"
        f"a bitmap × {one['bitmap']:.2f} and × {many['bitmap']:.2f}"
    )
    x = f"tokens in parallel ({n_rows} × {n_columns}, float16, {device.name} by its data sheet)"
    label(axes, title, x, "times faster, at most")
    return fig


def ideas() -> Figure:
    """Plot the simple ideas of the open task: log-perplexity above the first, window by window."""
    attempts = stored(rows(load_measured("patterns", "budget"), "ideas"))
    first = next(iter(attempts.values()))
    fig, (axes,) = figure(width=7.4, height=4.2)
    effects = {name: of_samples(attempt.losses - first.losses) for name, attempt in attempts.items()}
    for row, effect in enumerate(effects.values()):
        look = line_style(0) | {"linestyle": "none", "capsize": 3}
        axes.errorbar(effect.value, row, xerr=ERRORS * effect.error, **look)
    axes.axvline(0, color="black", linewidth=0.8)
    perplexities = {name: rounded(attempt.losses.mean().exp().item()) for name, attempt in attempts.items()}
    axes.set_yticks(range(len(attempts)), [f"{name}: {value}" for name, value in perplexities.items()], fontsize=9)
    axes.set_ylim(len(attempts) - 0.4, -0.8)
    n_better = sum(effect.fails for name, effect in effects.items() if attempts[name] is not first)
    title = f"{percent(BUDGET)} of the bytes: {n_better} of {len(attempts) - 1} others are better than the first"
    label(axes, title, f"nats per token above the first ({error_bars(len(first.losses))})", "choice: perplexity")
    return fig


def take_home() -> Figure:
    """Draw claims with the published value, ours and the verdict."""
    return drawn_claims((claims.TWO_FOUR_COSTS, claims.ORDER_QUARTER, claims.CSR_AT_HALF))
