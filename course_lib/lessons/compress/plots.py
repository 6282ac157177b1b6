"""The figures of lesson 10, for notebook and deck. A figure's title is its finding, computed from the data.

Without arguments a figure shows the stored results or a small example.

Dimension key: B texts, T tokens, P vectors of the prompt, N = P + T positions, V tokens of the vocabulary, D width;
O outputs (rows) and I inputs (columns) of a layer.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.common.dots import ERROR_BARS, error_bars
from course_lib.lessons.common.effects import Row, n_windows
from course_lib.lessons.common.results import Measured, listed, percent
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS, Effect
from course_lib.lessons.compress import claims, results
from course_lib.lessons.compress.experiments.prompts import VARIED
from course_lib.lessons.compress.experiments.rivals import WAYS
from course_lib.lessons.compress.results import loss_gain, model_name
from course_lib.lessons.compress.steps import NOT_SCORED, stored_bytes, targets, with_prompt
from course_lib.models import load_model
from course_lib.prompts.compressed.store import DENSE
from course_lib.prompts.soft import table_of
from course_lib.quantization.storage import code_bytes, grid_bytes, sparse_bytes

PALE, SAND = "#e3e7ec", COLOURS[3]  # text and prompt, distinct in greyscale as well
WORDS = ("The", "river", "runs", "to", "the", "sea")
PROMPT = 3  # vectors in the drawings
ARROW = {"arrowstyle": "->", "linewidth": 1.6, "color": COLOURS[1]}
Number = float | int

WIDTH, NEURONS, KEY_VALUE, BLOCKS, TOKENS = 576, 1536, 192, 30, 49_152  # of SmolLM2-135M
SHAPES = BLOCKS * (
    *((WIDTH, WIDTH),) * 2,
    *((KEY_VALUE, WIDTH),) * 2,
    *((NEURONS, WIDTH),) * 2,
    (WIDTH, NEURONS),
)
LAYERS = tuple((rows, columns, rows * columns // 2) for rows, columns in SHAPES)
WEIGHTS = sum(rows * columns for rows, columns in SHAPES)
OTHERS = WIDTH * TOKENS + WIDTH * (2 * BLOCKS + 1)  # the embedding table, which is also the LM head, and the norms
VECTORS, BITS, GROUP = 20, 4, 128
GROUPS = {"whole rows": max(WIDTH, NEURONS), "128": 128, "64": 64, "32": 32}

SPARSE = {"Wanda": "wanda-{}", "SparseGPT": "sparsegpt-{}", "Minitron, equal bytes": "minitron-{}"}
AMOUNTS = {"50": "50 %", "2of4": "2:4", "62.5": "62.5 %", "75": "75 %"}
FAR = 1.4  # nats per token: larger gains are drawn at the edge, with their number
OTHER_SEED = "another seed"
WAY_NAMES = {
    "LoRA of as many bytes": "LoRA of equal bytes",
    "LoRA on all linears": "LoRA on all layers",
    "SparseGPT in its place": "SparseGPT instead",
}
SETTINGS = {"n_vectors": "{} vectors", "n_steps": "{} steps", "begin": "initialised with {}", "draw": OTHER_SEED}


# Drawings -----------------------------------------------------------------------------------------------------------


def idea(
    title: str = "The gradient passes through the frozen model and moves only the prompt",
) -> Figure:
    """Draw a prompt of vectors before a text, and the gradient that flows back to it through a frozen model."""
    fig, (axes,) = figure(width=6.6, height=3.2)
    n = PROMPT + len(WORDS)
    _blank(axes, (-0.2, n + 0.2), (-0.9, 4.2))
    _cells(axes, 0, [f"$e_{i + 1}$" for i in range(PROMPT)] + list(WORDS), [SAND] * PROMPT + [PALE] * len(WORDS))
    _cell(axes, (0, 2), n - 0.08, COLOURS[0], "compressed model, frozen", height=1.0)
    axes.annotate("", (PROMPT / 2, 0.95), (PROMPT / 2, 1.95), arrowprops=ARROW)
    axes.annotate("", (PROMPT / 2, 3.05), (PROMPT / 2, 3.9), arrowprops=ARROW)
    axes.text(PROMPT / 2 + 0.15, 3.5, "gradient of the loss", va="center", fontsize=11, color=COLOURS[1])
    axes.text(PROMPT / 2, -0.5, "trained", ha="center", fontsize=11)
    axes.text(PROMPT + len(WORDS) / 2, -0.5, "text", ha="center", fontsize=11)
    axes.set_title(title, loc="left", fontsize=11)
    return fig


def example_batch(n_left: int = 2) -> tuple[Bool[Tensor, "B N"], list[list[int]]]:
    """Two texts, one padded on the left: the attention mask, and the position of each vector."""
    real = torch.ones(2, len(WORDS), dtype=torch.bool)
    real[1, :n_left] = False
    _, mask, positions = with_prompt(torch.zeros(PROMPT, 1), torch.zeros(2, len(WORDS), 1), real)
    return mask, positions.tolist()


def positions_and_mask() -> Figure:
    """Draw the positions of two texts after the same prompt, and what each position of the second attends to."""
    fig, (left, right) = figure(n_columns=2, width=5.0, height=3.4)
    mask, positions = example_batch()
    n = mask.shape[1]
    _blank(left, (-0.2, n), (-0.6, 3.4))
    for low, row, visible in zip((1.8, 0.2), positions, mask.tolist(), strict=True):
        texts = [str(position) if is_visible else "–" for position, is_visible in zip(row, visible, strict=True)]
        fills = [SAND if i < PROMPT else PALE if is_visible else "white" for i, is_visible in enumerate(visible)]
        _cells(left, low, texts, fills)
    last = " and ".join(str(row[-1]) for row in positions)
    left.set_title(f"Positions of two texts; the last tokens are at {last}", loc="left", fontsize=11)
    allowed = (mask[1] & torch.ones(n, n, dtype=torch.bool).tril()).tolist()
    _blank(right, (-0.2, n), (-0.2, n))
    for i, row in enumerate(allowed):
        _cells(right, n - 1 - i, [""] * n, [COLOURS[0] if is_allowed else "white" for is_allowed in row])
    title = f"Second text: its last token attends to {sum(allowed[-1])} of {n} vectors"
    right.set_title(title, loc="left", fontsize=11)
    return fig


def example_labels() -> list[int]:
    """The label of each position, as the index of a word; NOT_SCORED where there is none."""
    ids = torch.arange(len(WORDS))[None]
    return targets(ids, torch.ones_like(ids, dtype=torch.bool), PROMPT)[0].tolist()


def labels() -> Figure:
    """Draw the input of each position, and below it the token that should be predicted there."""
    fig, (axes,) = figure(width=9.4, height=2.6)
    wanted = example_labels()
    n = len(wanted)
    _blank(axes, (-1.3, n), (-0.2, 2.6))
    inputs = [f"$e_{i + 1}$" for i in range(PROMPT)] + list(WORDS)
    outputs = ["–100" if each == NOT_SCORED else WORDS[each] for each in wanted]
    _cells(axes, 1.5, inputs, [SAND] * PROMPT + [PALE] * len(WORDS))
    _cells(axes, 0.1, outputs, ["white" if each == NOT_SCORED else PALE for each in wanted])
    for low, name in ((1.95, "input"), (0.55, "label")):
        axes.text(-0.15, low, name, ha="right", va="center", fontsize=11)
    scored = sum(each != NOT_SCORED for each in wanted)
    title = f"{scored} of {n} positions have a label; the last prompt vector predicts the first word"
    axes.set_title(title, loc="left", fontsize=12)
    return fig


def _blank(axes: Axes, x: tuple[Number, Number], y: tuple[Number, Number]) -> None:
    axes.axis("off")
    axes.set(xlim=x, ylim=y)


def _cells(axes: Axes, low: Number, texts: list[str], fills: list[str]) -> None:
    """Cells of width 1 from left to right."""
    for place, (text, fill) in enumerate(zip(texts, fills, strict=True)):
        _cell(axes, (place, low), 0.92, fill, text)


def _cell(axes: Axes, corner: tuple[Number, Number], width: Number, fill: str, text: str, height: Number = 0.9) -> None:
    axes.add_patch(Rectangle(corner, width, height, facecolor=fill, edgecolor=COLOURS[0], linewidth=0.7))
    ink = "white" if fill == COLOURS[0] else "black"
    at = (corner[0] + width / 2, corner[1] + height / 2)
    axes.text(*at, text, ha="center", va="center", fontsize=11, color=ink)


# Counted ------------------------------------------------------------------------------------------------------------


def bits_per_weight(group: int) -> dict[str, float]:
    """Codes, bitmap with row starts, and scales with zero points, in bits per weight of the blocks, zero or not."""
    codes = sum(code_bytes(n_stored, BITS) for *_, n_stored in LAYERS)
    scales = sum(grid_bytes(rows, columns, BITS, group) for rows, columns in SHAPES)
    total = sum(sparse_bytes(rows, columns, n_stored, BITS, group) for rows, columns, n_stored in LAYERS)
    parts = {"codes": codes, "bitmap, row starts": total - codes - scales, "scales, zero points": scales}
    return {name: 8 * n_bytes / WEIGHTS for name, n_bytes in parts.items()}


def bits() -> Figure:
    """Plot the bits per weight at 50 % sparsity and 4 bits for four group sizes, next to the compression ratio."""
    _, (axes,) = figure(width=8.4, height=3.9)
    looks = (COLOURS[0], COLOURS[3], COLOURS[4])
    for place, group in enumerate(GROUPS.values()):
        low = 0.0
        for (name, size), colour in zip(bits_per_weight(group).items(), looks, strict=True):
            axes.bar(place, size, 0.62, low, color=colour, edgecolor="black", label="" if place else name)
            low += size
        times = stored_bytes(LAYERS, 0, 0, BITS, group)[1]
        axes.text(place, low + 0.08, f"{times:.2f} ×", ha="center", fontsize=10)
    axes.set_ylim(0, 5.2)
    axes.set_xticks(range(len(GROUPS)), list(GROUPS))
    axes.legend(frameon=False, fontsize=10.5, loc="upper left", ncols=3)
    part = bits_per_weight(GROUP)
    title = f"The codes take {part['codes']:.0f} bits per weight, everything {sum(part.values()):.2f} at groups of 128"
    return label(axes, title, "columns per group; above: times smaller than 16 bits", "bits per weight").figure


def prompt_fraction(n_vectors: int, n_tokens: int) -> float:
    """P / (P + T), of the positions of a prefill."""
    return n_vectors / (n_vectors + n_tokens)


def prompt_cost() -> Figure:
    """Plot the fraction of a prefill that the prompt takes, over the length of the text."""
    _, (axes,) = figure(width=7.6, height=3.4)
    lengths = [2**step for step in range(3, 12)]
    for index, n_vectors in enumerate((5, VECTORS, 100)):
        fractions = [prompt_fraction(n_vectors, length) for length in lengths]
        axes.plot(lengths, fractions, label=f"{n_vectors} vectors", **line_style(index))
    log_scale(axes, "x")
    axes.set_ylim(0, 1)
    axes.legend(frameon=False, fontsize=10.5)
    short, long = (percent(prompt_fraction(100, length)) for length in (32, 1024))
    title = f"100 vectors are {short} of the prefill with 32 tokens of text, {long} with 1,024"
    return label(axes, title, "tokens of the text", "prompt / all positions").figure


def row_lengths(seed: int = 0) -> tuple[Float[Tensor, "V"], Float[Tensor, "V"]]:
    """The norm of every row of our model's embedding table, and of as many vectors from N(0, 1)."""
    table = table_of(load_model()[0]).float()
    normal = torch.randn(table.shape, generator=torch.Generator().manual_seed(seed))
    return table.norm(dim=1), normal.norm(dim=1)


def lengths() -> Figure:
    """Plot histograms of the norms of the embeddings and of vectors from N(0, 1)."""
    _, (axes,) = figure(width=8.0, height=3.4)
    embeddings, normal = row_lengths()
    bins = [0.25 * step for step in range(112)]
    axes.hist(embeddings, bins, color=COLOURS[0], label="embeddings of the vocabulary")
    axes.hist(normal, bins, color=COLOURS[3], label="vectors from N(0, 1)")
    axes.legend(frameon=False, fontsize=10.5, loc="upper center")
    times = float(normal.mean() / embeddings.mean())
    title = (
        f"Mean norm: {embeddings.mean():.1f} for embeddings, {normal.mean():.1f} for N(0, 1), {times:.0f} times larger"
    )
    return label(axes, title, "norm of a vector", "vectors").figure


# Measured -----------------------------------------------------------------------------------------------------------


def ratios(rows: Sequence[tuple[str, str, Number | Tensor, Number | Tensor]], n: int | None = None) -> Figure:
    """Plot ratios of perplexities with two standard errors, one dot per prompt; at 1 a prompt does nothing.

    Args:
        rows: model, prompt, ratio and standard error.
        n: the number of windows, if it is small.
    """
    fig, (axes,) = figure(width=7.4, height=0.9 + 0.34 * len(rows))
    models = list(dict.fromkeys(model for model, *_ in rows))
    effects = [Effect(value=1 - float(ratio), error=float(error), n=n) for *_, ratio, error in rows]
    for place, ((model, *_), effect) in enumerate(reversed(list(zip(rows, effects, strict=True)))):
        look = line_style(models.index(model)) | {"linestyle": "none"}
        axes.errorbar(1 - effect.value, place, xerr=ERRORS * effect.error, capsize=3, **look)
    axes.axvline(1, color="black", linestyle=":", linewidth=1)
    axes.set_yticks(range(len(rows)), [f"{model}: {prompt}" for model, prompt, *_ in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    title = f"{sum(effect.holds for effect in effects)} of {len(rows)} prompts lower the perplexity significantly"
    bars = error_bars(n) if n else ERROR_BARS
    label(axes, title, f"perplexity with the prompt / without ({bars})")
    return fig


def gains(measured: Measured | None = None) -> Figure:
    """Plot what each model gains with its own prompt, over sparsity and over bits, and the gain of the dense model."""
    measured = measured or results.load()
    fig, (left, right) = figure(n_columns=2, width=5.0, height=3.8)
    for index, (name, pattern) in enumerate(SPARSE.items()):
        _points(left, measured, [pattern.format(amount) for amount in AMOUNTS], name, index)
    bits = (4, 3, 2)
    _points(right, measured, [f"gptq-{each}" for each in bits], "GPTQ", 0)
    _points(right, measured, ["sparsegpt-50-4bit"], "GPTQ on 50 % sparsity", 1)
    left.set_xticks(range(len(AMOUNTS)), AMOUNTS.values())
    right.set_xticks(range(len(bits)), map(str, bits))
    for axes, n_places in ((left, len(AMOUNTS)), (right, len(bits))):
        _control(axes, measured)
        axes.set_xlim(-0.4, n_places - 0.6)
        axes.set_ylim(min(0.0, axes.get_ylim()[0]), FAR * 1.08)
        axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    repairs = [effect for name in claims.compressed(measured) if (effect := results.repair(measured, name))]
    n = sum(effect.holds for effect in repairs)
    title = f"{n} of {len(repairs)} compressed models gain significantly more than the dense model"
    fig.suptitle(title, x=0.01, ha="left", fontsize=11)
    label(left, "Pruned", "sparsity", f"gain of the own prompt, nats per token\n({ERROR_BARS})")
    label(right, "Quantized", "bits per weight", "")
    return fig


def _points(axes: Axes, measured: Measured, models: list[str], name: str, index: int) -> None:
    """Gains with two standard errors, those above FAR at the edge."""
    effects = {place + 0.06 * index: results.gain(measured, each) for place, each in enumerate(models)}
    if not any(effects.values()):
        return
    # A missing measurement breaks the line.
    heights = [min(effect.value, FAR) if effect else math.nan for effect in effects.values()]
    errors = [ERRORS * effect.error if effect and effect.value < FAR else 0 for effect in effects.values()]
    axes.errorbar(list(effects), heights, errors, capsize=3, label=name, **line_style(index))
    for place, effect in effects.items():
        if effect and effect.value >= FAR:
            text = f"{effect.value:.1f},\nbeyond\nthe axis"
            axes.annotate(text, (place + 0.05, FAR), ha="left", va="top", fontsize=8)


def _control(axes: Axes, measured: Measured) -> None:
    """The dense model's gain, as a line with a band of two standard errors."""
    effect = results.gain(measured, DENSE)
    if effect is None:
        return
    axes.axhline(effect.value, color="black", linestyle=":", label="dense model, own prompt")
    low, high = effect.value - ERRORS * effect.error, effect.value + ERRORS * effect.error
    axes.axhspan(low, high, color=COLOURS[4], alpha=0.3, linewidth=0)


def settings(measured: Measured | None = None) -> Figure:
    """Plot the gain with one setting changed per row; shaded: between the two seeds of the main run."""
    measured = measured or results.load()
    alone, main = results.with_and_without(measured, VARIED)
    rows = [main, *results.rows_of(measured, "settings", model=VARIED)]
    seeds = [row for row in rows if changed_setting(row, main) in (changed_setting(main, main), OTHER_SEED)]
    fig, (axes,) = figure(width=8.0, height=1.2 + 0.32 * len(rows))
    for place, row in enumerate(rows):
        effect = loss_gain(row, alone)
        look = line_style(0 if row in seeds else 1) | {"linestyle": "none"}
        axes.errorbar(effect.value, -place, xerr=ERRORS * effect.error, capsize=3, **look)
    of_seeds = [loss_gain(row, alone).value for row in seeds]
    axes.axvspan(min(of_seeds), max(of_seeds), color=COLOURS[4], alpha=0.3, linewidth=0)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(0, -len(rows), -1), [changed_setting(row, main) for row in rows])
    clear = [changed_setting(row, main) for row in rows if row not in seeds and differs_from_all(row, seeds)]
    title = f"Significantly different from both seeds:\n{listed(clear) if clear else 'nothing'}"
    label(axes, title, f"gain on {model_name(VARIED)}, nats per token\n({ERROR_BARS}; shaded: between the seeds)")
    return fig


def differs_from_all(row: Row, seeds: list[Row]) -> bool:
    """Whether a run gains significantly more than each seed of the main run, or significantly less."""
    effects = [loss_gain(row, seed) for seed in seeds]
    return all(effect.holds for effect in effects) or all(effect.fails for effect in effects)


def changed_setting(row: Row, main: Row) -> str:
    """The settings in which a run differs from the main one; a description of the main one itself."""
    differs = [text.format(row[key]) for key, text in SETTINGS.items() if row[key] != main[key]]
    return ", ".join(differs) or f"{main['n_vectors']} vectors, {main['n_steps']} steps, {main['begin']}"


def transfer(measured: Measured | None = None) -> Figure:
    """Show the ratio of perplexities of each prompt on each model as a matrix."""
    measured = measured or results.load()
    sources, targets_of = claims.sources(measured), claims.targets(measured)
    fig, (axes,) = figure(width=3.6 + 0.95 * len(targets_of), height=1.6 + 0.45 * len(sources))
    axes.grid(False)
    for row, source in enumerate(sources):
        for column, to in enumerate(targets_of):
            cell, alone = results.transferred(measured, source, to), results.row_of(measured, "models", model=to)
            if cell and alone:
                _square(axes, row, column, results.ratio(cell, alone).value, source == to)
    axes.set_xlim(-0.5, max(1, len(targets_of)) - 0.5)
    axes.set_ylim(max(1, len(sources)) - 0.5, -0.5)
    axes.set_xticks(range(len(targets_of)), [short_name(name) for name in targets_of], rotation=20, ha="right")
    axes.set_yticks(range(len(sources)), [short_name(name) for name in sources])
    helped = claims.transferred(measured)[0].values()
    n = sum(effect.holds for effect in helped)
    title = f"{n} of {len(helped)} transferred prompts lower the perplexity significantly\n"
    label(axes, title + "(ratio of perplexities; framed: the model's own prompt)", "used on", "trained on")
    return fig


def short_name(name: str) -> str:
    """For a narrow column."""
    return model_name(name).replace("SparseGPT 50 % and 4 bits", "50 %, 4 bits")


def _square(axes: Axes, row: int, column: int, ratio: float, own: bool) -> None:
    """Darker for a larger gain; a frame around the own prompt."""
    depth = min(1.0, max(0.0, (1 - ratio) / 0.5))
    edge = "black" if own else "white"
    place = (column - 0.45, row - 0.42)
    axes.add_patch(Rectangle(place, 0.9, 0.84, facecolor=str(1 - 0.75 * depth), edgecolor=edge, linewidth=1.6))
    axes.text(column, row, f"{ratio:.2f}", ha="center", va="center", color="white" if depth > 0.5 else "black")


def rivals(measured: Measured | None = None) -> Figure:
    """Plot the gain of a prompt and of its rivals on two compressed models, with the additional bytes of each."""
    measured = measured or results.load()
    names = [name for name in WAYS if len(claims.ways(measured, name)) > 1]
    n_rows = max((len(claims.ways(measured, name)) for name in names), default=1)
    fig, panels = figure(n_columns=max(1, len(names)), width=5.6, height=1.5 + 0.42 * n_rows)
    for axes, name in zip(panels, names, strict=False):
        rows, alone = claims.ways(measured, name), results.row_of(measured, "models", model=name)
        for place, row in enumerate(rows):
            effect = loss_gain(row, alone)
            look = line_style(0 if row is rows[0] else 1) | {"linestyle": "none"}
            axes.errorbar(effect.value, -place, xerr=ERRORS * effect.error, capsize=3, **look)
        axes.axvline(loss_gain(rows[0], alone).value, color="black", linestyle=":", linewidth=1)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(0, -len(rows), -1), [_with_bytes(row) for row in rows])
        axes.set_ylim(0.6 - len(rows), 0.6)
        better = [way_name(row) for row in rows[1:] if loss_gain(row, rows[0]).holds]
        which = (
            f"all {len(better)} rivals" if len(better) == len(rows) - 1 > 1 else listed(better) if better else "none"
        )
        title = f"{model_name(name)}: significantly better than a prompt:\n{which}"
        label(axes, title, f"gain in nats per token\n({error_bars(n_windows(alone))}; dotted: the prompt)")
    return fig


def _with_bytes(row: Row) -> str:
    extra = f"{row['bytes'] / 1e3:,.0f} kB" if row["bytes"] else "no bytes"
    return f"{way_name(row)}\n{extra} added"


def way_name(row: Row) -> str:
    """The name of a way to repair a model in figures."""
    return WAY_NAMES.get(row["way"], row["way"])
