"""The figures of lesson 01, for notebook and deck. A figure's title is its finding, computed from the data.

Without arguments a figure shows the stored results, or the example matrix of the lesson.

Dimension key: O outputs (rows), I inputs (columns), N tokens.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor
from torch.nn.functional import avg_pool2d, linear

from course_lib.data.corpora import windows
from course_lib.lessons.common.dots import error_bars, reach
from course_lib.lessons.common.results import percent
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.patterns.experiments.patterns import six_patterns, squares_kept, stored_perplexities
from course_lib.measure.perplexity import Perplexity
from course_lib.models import blocks, linears, load_model, weight_of
from course_lib.sparsity.formats import CSR, Bitmap, Dense, NofMPacked
from course_lib.sparsity.patterns import NofM, Pattern, Unstructured
from course_lib.sparsity.sizes import bitmap_bytes, break_even_density, csr_bytes, dense_bytes

VOCABULARY = 49_152  # tokens of the default model: the perplexity of a uniform guess
_WHITE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.4}  # under a number that a line may cross
_KEPT, _STORED, _GREY = "#cfd9e6", "#f3ead7", "#5c6773"


@lru_cache(maxsize=1)
def example_weight() -> Float[Tensor, "O I"]:
    """The example matrix of the lesson: up_proj of block 10."""
    return weight_of(linears(blocks(load_model()[0])[10])["mlp.up_proj"])


def draw_matrix(axes: Axes, weight: Tensor, title: str, top: int = 0, left: int = 0) -> Axes:
    """Draw magnitudes in grey and exact zeros in white. Rows and columns are counted from top and left."""
    size = weight.float().abs()
    limit = size[size > 0].quantile(0.95).item() if (size > 0).any() else 1.0
    shade = torch.where(size > 0, 0.3 + 0.7 * size / limit, 0.0)  # the smallest weight still differs from a zero
    rows, columns = weight.shape
    edges = (left - 0.5, left + columns - 0.5, top + rows - 0.5, top - 0.5)
    axes.imshow(shade, cmap="Greys", vmin=0, vmax=1, interpolation="nearest", extent=edges)
    axes.grid(visible=False)
    axes.set_title(title, loc="left", fontsize=10)
    return axes


def masks(weight: Tensor | None = None, patterns: Mapping[str, Pattern] | None = None, size: int = 64) -> Figure:
    """Draw what each pattern keeps of a typical part of a matrix; titles count the squares of the whole matrix."""
    weight = example_weight() if weight is None else weight
    patterns = patterns or six_patterns(0.5)
    fig, axes = figure(3, -(-len(patterns) // 3), width=3.2, height=3.3)
    keeps = {name: pattern.keep(weight.square()) for name, pattern in patterns.items()}
    top, left = typical_part(keeps, size)
    fractions = {name: squares_kept(weight, pattern) for name, pattern in patterns.items()}
    for panel, (name, keep) in zip(axes, keeps.items(), strict=False):
        part = (weight * keep)[top : top + size, left : left + size]
        draw_matrix(panel, part, f"{name}: {percent(fractions[name])} of the squares", top, left)
        panel.set_xlabel("input")
        panel.set_ylabel("output")
    most, least = max(fractions, key=fractions.get), min(fractions, key=fractions.get)
    fig.suptitle(
        f"With the same number of zeros, {most} keeps {percent(fractions[most])} of the squared weights and {least} "
        f"{percent(fractions[least])}"
    )
    return fig


def typical_part(keeps: Mapping[str, Tensor], size: int, step: int = 16) -> tuple[int, int]:
    """Find the first row and column of a part in which every pattern keeps about as much as in the whole matrix."""
    furthest = torch.stack(
        [
            (avg_pool2d(keep.float()[None], min(size, *keep.shape), step)[0] - keep.float().mean()).abs()
            for keep in keeps.values()
        ]
    ).amax(0)
    row, column = divmod(int(furthest.argmin()), furthest.shape[1])
    return row * step, column * step


BEYOND = 20  # vocabularies: a perplexity above that is drawn at the edge


def perplexities(
    by_sparsity: Mapping[float, Mapping[str, Perplexity]] | None = None, vocabulary: int = VOCABULARY
) -> Figure:
    """Plot perplexity after magnitude pruning by sparsity and pattern ("dense" is one), with two standard errors.

    Errors are those of the log-perplexity, equally long to both sides on the log scale. In the grey area the model is
    worse than a uniform guess, and a number means little; values far inside the area are drawn at the edge.
    """
    by_sparsity = by_sparsity or stored_perplexities()
    fig, (axes,) = figure(width=7.6, height=3.2 + 0.9 * len(by_sparsity))
    unpruned = next(iter(by_sparsity.values()))["dense"]
    dense, edge, bars = unpruned.value, BEYOND * vocabulary, error_bars(len(unpruned.losses))
    kinds = [{name: p for name, p in by_pattern.items() if name != "dense"} for by_pattern in by_sparsity.values()]
    for index, (sparsity, by_pattern) in enumerate(zip(by_sparsity, kinds, strict=True)):
        look = line_style(index) | {"linestyle": "none", "capsize": 3}
        entry = {"label": f"{percent(sparsity)} pruned"}
        for row, perplexity in enumerate(by_pattern.values()):
            height = row + 0.18 * (2 * index - len(by_sparsity) + 1)
            if perplexity.value > edge:
                axes.plot(edge, height, color=look["color"], marker=">", linestyle="none", **entry)
                offset = {"xytext": (-8, -3), "ha": "right"}
            else:
                below, above = reach(perplexity.value, perplexity.standard_error)
                axes.errorbar(perplexity.value, height, xerr=[[below], [above]], **look, **entry)
                offset = {"xytext": (0, 5), "ha": "center"}
            entry = {}
            point = (min(perplexity.value, edge), height)
            axes.annotate(
                rounded(perplexity.value), point, textcoords="offset points", fontsize=8, bbox=_WHITE, **offset
            )
    axes.axvspan(vocabulary, 2 * edge, color="#e4e8ed", zorder=0)
    axes.axvline(dense, color=_GREY, linestyle="--", linewidth=1)
    for value, name in ((dense, f"dense {dense:.0f}"), (vocabulary, "worse than a guess")):
        axes.text(value, len(kinds[0]) - 0.35, f" {name}", color=_GREY, fontsize=9, va="center")
    axes.set_xscale("log")
    axes.set_xlim(right=2 * edge)
    axes.set_ylim(len(kinds[0]), -0.9)
    axes.set_yticks(range(len(kinds[0])), [" / ".join(dict.fromkeys(names)) for names in zip(*kinds, strict=True)])
    axes.legend(frameon=False, loc="upper right")
    label(
        axes,
        _damage(dense, dict(zip(by_sparsity, kinds, strict=True)), vocabulary),
        f"perplexity (log scale; of its logarithm, {bars})",
    )
    return fig


def _damage(dense: float, kinds: Mapping[float, Mapping[str, Perplexity]], vocabulary: int) -> str:
    """The two best patterns of each sparsity, and how many are significantly worse than a uniform guess, in words."""
    lines = []
    for sparsity, by_pattern in kinds.items():
        best = sorted(by_pattern, key=lambda name: by_pattern[name].value)[:2]
        times = [f"{name} × {_times(by_pattern[name].value / dense)}" for name in best]
        n_worse = sum(p.value / math.exp(ERRORS * p.standard_error / p.value) > vocabulary for p in by_pattern.values())
        lines.append(
            f"{percent(sparsity)} pruned: {', '.join(times)}; {n_worse} of {len(by_pattern)} worse than a guess"
        )
    return "\n".join(lines)


def _times(factor: float) -> str:
    return f"{factor:.2g}" if factor < 10 else rounded(factor)


def rounded(value: int | float) -> str:
    """Write a perplexity with the digits that matter: 65, 4,280, 103,000, 6.2 million."""
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:,.2g} {name}" if value < 100 * size else f"{value / size:,.0f} {name}"
    return f"{float(f'{value:.3g}') if value >= 1e4 else value:,.0f}"


def fractions_by_count(keep: Bool[Tensor, "O I"], m: int = 4) -> Float[Tensor, "bins"]:
    """Compute the fractions of all groups of m neighbouring inputs that keep 0, 1, ..., m of them."""
    n_kept = keep.unflatten(1, (-1, m)).sum(2).flatten()
    return torch.bincount(n_kept, minlength=m + 1) / len(n_kept)


def groups(fractions: Float[Tensor, "bins"] | None = None) -> Figure:
    """Plot how many weights of each group of m an unstructured mask keeps, next to the expectation of coin tosses."""
    if fractions is None:
        fractions = fractions_by_count(Unstructured(0.5).keep(example_weight().abs()))
    fig, (axes,) = figure(height=3.0)
    m = len(fractions) - 1
    chance = [math.comb(m, k) / 2**m for k in range(m + 1)]
    counts = torch.arange(m + 1)
    axes.bar(counts - 0.2, fractions, 0.4, color="#16324f", label="this matrix")
    axes.bar(counts + 0.2, chance, 0.4, color="#cfd6de", edgecolor=_GREY, hatch="//", label="coin tosses")
    axes.legend(frameon=False)
    too_full = percent(fractions[m // 2 + 1 :].sum().item())
    title = f"{too_full} of the groups keep more than {m // 2} of {m} weights and do not fit {m // 2}:{m}"
    label(axes, title, f"weights kept in a group of {m} neighbours", "fraction of the groups")
    return fig


def bytes_per_weight(weight: Tensor | None = None) -> Figure:
    """Plot bytes per weight in each format over density: lines from the formulas, dots from encoded matrices."""
    weight = example_weight() if weight is None else weight
    fig, axes = figure(2, width=4.8)
    for panel, dtype in zip(axes, (torch.float32, torch.float16), strict=True):
        _bytes_panel(panel, weight.to(dtype))
    axes[0].legend(frameon=False, fontsize=9)
    return fig


def _bytes_panel(axes: Axes, weight: Tensor) -> None:
    (rows, columns), width = weight.shape, weight.element_size()
    n, densities = weight.numel(), [0.02, 0.1, 0.25, 0.5, 0.75, 1.0]
    formulas = {
        "dense": lambda z: dense_bytes(rows, columns, width),
        "CSR": lambda z: csr_bytes(rows, z, width),
        "bitmap": lambda z: bitmap_bytes(rows, columns, z, width),
    }
    encoders = {"dense": Dense.encode, "CSR": CSR.encode, "bitmap": Bitmap.encode}
    sparse = [weight * Unstructured(1 - d, per="layer").keep(weight.abs()) for d in densities]
    for index, (name, formula) in enumerate(formulas.items()):
        look = line_style(index)
        axes.plot([0, 1], [formula(0) / n, formula(n) / n], color=look["color"], linestyle=look["linestyle"])
        real = [encoders[name](matrix).n_bytes / n for matrix in sparse]
        axes.plot(densities, real, look["marker"], color=look["color"], label=name, markersize=5)
    packed = NofMPacked.encode(weight * NofM().keep(weight.abs())).n_bytes / n
    look = {
        "markersize": 15,
        "markerfacecolor": "none",
        "markeredgewidth": 1.5,
    }  # hollow, because the dot of the bitmap is below it
    axes.plot([0.5], [packed], "*", color="black", label="2:4", **look)
    csr, bitmap = (break_even_density(formulas["dense"], formulas[f], rows, columns) for f in ("CSR", "bitmap"))
    name = str(weight.dtype).removeprefix("torch.")
    title = f"{name}: CSR is smaller below {percent(csr)},\na bitmap below {percent(bitmap)}"
    label(axes, title, "density", "bytes per weight")
    axes.set_ylim(0, 1.5 * width)


def keep_largest(inputs: Float[Tensor, "N I"], n_kept: int) -> Bool[Tensor, "N I"]:
    """Choose the n_kept inputs of each token that are largest in absolute value."""
    return Unstructured(1 - n_kept / inputs.shape[1], per="row").keep(inputs.abs())


def dynamic_and_static(
    weight: Float[Tensor, "O I"], inputs: Float[Tensor, "N I"], fractions: Sequence[float]
) -> dict[str, dict[float, float]]:
    """Compute the relative squared error of a layer, mean over tokens, by the fraction of its inputs that is kept.

    The inputs are chosen for each token (dynamic), or once for all tokens by their mean absolute value (static).
    """
    expected = linear(inputs, weight)

    def error(keep: Bool[Tensor, "N I"]) -> float:
        difference = linear(inputs * keep, weight) - expected
        return (difference.square().sum(1) / expected.square().sum(1)).mean().item()

    average = inputs.abs().mean(dim=0, keepdim=True)
    counts = {fraction: int(fraction * inputs.shape[1]) for fraction in fractions}
    return {
        "chosen for each token": {f: error(keep_largest(inputs, n)) for f, n in counts.items()},
        "chosen once for all": {f: error(keep_largest(average, n).expand_as(inputs)) for f, n in counts.items()},
    }


@lru_cache(maxsize=1)
def example_neurons() -> tuple[Float[Tensor, "O I"], Float[Tensor, "N I"]]:
    """The weight of down_proj in block 15, and its inputs on evaluation text without the first token of a window."""
    model, tokenizer = load_model()
    layer, inputs = linears(blocks(model)[15])["mlp.down_proj"], []
    hook = layer.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0][:, 1:].flatten(0, 1)))
    with torch.inference_mode():
        model(windows("wikipedia", 5, 128, tokenizer, split="evaluation", seed=0))
    hook.remove()
    return weight_of(layer), inputs[0]


def activity(
    keep: Bool[Tensor, "N I"] | None = None,
    errors: Mapping[str, Mapping[float, float]] | None = None,
    n_tokens: int = 60,
    n_inputs: int = 150,
) -> Figure:
    """Plot the inputs that each token keeps, and the error when chosen for each token or once for all tokens."""
    if keep is None or errors is None:
        weight, neurons = example_neurons()
        keep = keep_largest(neurons, neurons.shape[1] // 10)
        errors = dynamic_and_static(weight, neurons, (0.05, 0.1, 0.25, 0.5, 0.75))
    fig, axes = figure(2, width=4.8, height=3.6)
    axes[0].imshow(keep[:n_tokens, :n_inputs], cmap="Greys", vmin=0, vmax=1.2, interpolation="nearest", aspect="auto")
    axes[0].grid(visible=False)
    fraction = percent(keep.float().mean().item())
    title = f"Two tokens have {percent(_overlap(keep))} of their top {fraction} in common"
    label(axes[0], title, "neuron of the MLP", "token")
    for index, (name, points) in enumerate(errors.items()):
        axes[1].plot(list(points), list(points.values()), label=name, **line_style(index))
    axes[1].legend(frameon=False)
    axes[1].set_ylim(bottom=0)
    dynamic, static = (points[min(points, key=lambda f: abs(f - 0.25))] for points in errors.values())
    title = f"A quarter kept: error {dynamic:.2f} if chosen\nfor each token, {static:.2f} once for all"
    label(axes[1], title, "fraction of the neurons kept", "relative squared error of the output")
    return fig


def _overlap(keep: Bool[Tensor, "N I"]) -> float:
    """The fraction of one token's kept inputs that another token keeps too, on average over all pairs."""
    both = keep.float() @ keep.float().T
    n = len(keep)
    return ((both.sum() - both.trace()) / (n * (n - 1)) / keep.float().sum(1).mean()).item()


SMALL = torch.tensor(
    [[0, 5, 0, -6, 7, 8, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0], [0, -2, 9, 0, 0, 0, 0, 4]], dtype=torch.float32
)  # seven values in 3 × 8: fits 2:4


def draw_cells(
    axes: Axes, numbers: Tensor, shade: Tensor | None = None, left: float | int = 0, top: float | int = 0
) -> None:
    """Draw a small matrix as boxes: shaded where its entries are kept, and zeros empty."""
    for row in range(numbers.shape[0]):
        for column in range(numbers.shape[1]):
            value = numbers[row, column].item()
            is_kept = bool(shade[row, column]) if shade is not None else value != 0
            corner = (left + column, -top - row - 1)
            axes.add_patch(
                Rectangle(corner, 1, 1, facecolor=_KEPT if is_kept else "white", edgecolor=COLOURS[0], linewidth=0.8)
            )
            if value != 0:
                axes.text(corner[0] + 0.5, corner[1] + 0.5, f"{value:g}".replace("-", "−"), ha="center", va="center")


def draw_list(axes: Axes, values: list, left: float | int, top: float | int, name: str, width: float | int = 1) -> None:
    """Draw a list of numbers as boxes in a row, with its name above."""
    axes.text(left, -top + 0.25, name, fontsize=9, color=_GREY)
    for index, value in enumerate(values):
        corner = (left + width * index, -top - 1)
        axes.add_patch(Rectangle(corner, width, 1, facecolor=_STORED, edgecolor=COLOURS[0], linewidth=0.8))
        text = str(value).replace("-", "−")
        axes.text(corner[0] + width / 2, corner[1] + 0.5, text, ha="center", va="center", fontsize=9)


def prepare(axes: Axes, width: float | int, height: float | int, title: str) -> None:
    """Set up axes for a drawing: a size, a title, and no ticks."""
    axes.set_xlim(-0.3, width)
    axes.set_ylim(-height, 0.9)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_title(title, loc="left", fontsize=11)


def formats() -> Figure:
    """Draw a 3 × 8 matrix in CSR, as a bitmap and in 2:4: every number that is stored."""
    csr, bitmap, packed = CSR.encode(SMALL), Bitmap.encode(SMALL), NofMPacked.encode(SMALL)
    fig, (axes,) = figure(width=9.0, height=4.6)
    values = [f"{value:g}" for value in csr.values.tolist()]
    draw_cells(axes, SMALL, top=0.4)
    axes.text(0, -0.15, "dense: every entry", fontsize=9, color=_GREY)
    draw_list(axes, values, 9.5, 0.4, "CSR: values")
    draw_list(axes, csr.columns.tolist(), 9.5, 2.1, "column indices, 4 bytes each")
    draw_list(axes, csr.row_start.tolist(), 18, 0.4, "row starts, 4 bytes each")
    draw_list(axes, values, 9.5, 4.4, "bitmap: values")
    draw_list(axes, bits(bitmap.bitmap), 9.5, 6.1, "one bit per entry, from right to left: here one byte per row", 3.2)
    draw_list(axes, bitmap.row_start.tolist(), 18, 4.4, "row starts, 4 bytes each")
    two = [f"{value:g}" for value in packed.values.flatten().tolist()]
    draw_list(axes, two, 0, 8.4, "2:4: two values of every four neighbours, filled up with zeros")
    places = packed.columns.remainder(4).flatten().tolist()
    draw_list(axes, places, 0, 10.1, "positions in their groups, two bits each")
    draw_list(axes, bits(packed.positions), 13, 10.1, "four positions per byte, the first in the lowest bits", 3.2)
    counted = f"{csr.n_bytes}, {bitmap.n_bytes} and {packed.n_bytes}"
    prepare(axes, 23.2, 11.4, f"In float32: dense {4 * SMALL.numel()} bytes; CSR, bitmap and 2:4 {counted}")
    return fig


def bits(packed: Tensor) -> list[str]:
    """Write bytes in binary, the highest bit first."""
    return [f"{byte:08b}" for byte in packed.flatten().tolist()]
