"""The figures of lesson 01. Each takes data, and returns a figure whose title says what the data show."""

import math
from collections.abc import Mapping

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import avg_pool2d

from course_lib.lessons.common.dots import error_bars, reach
from course_lib.lessons.common.style import figure, label, line_style
from course_lib.lessons.common.tables import percent
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.patterns.measure import bits_of_freedom, square_kept
from course_lib.measure.perplexity import Perplexity
from course_lib.measure.roofline import H100, Device
from course_lib.sparsity.formats import CSR, Bitmap, BlockSparse, Dense, Encoded, NofMPacked
from course_lib.sparsity.patterns import Block, Columns, NofM, Pattern, Rows, Unstructured
from course_lib.sparsity.sizes import bitmap_bytes, break_even_density, csr_bytes, dense_bytes, nofm_bytes
from course_lib.sparsity.speed import speed_limits

_WHITE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.4}  # behind a number that a line may cross


def show_matrix(axes: Axes, weight: Tensor, title: str, top: int = 0, left: int = 0) -> Axes:
    """Magnitudes in grey; a weight that is exactly zero is white. Rows and columns are counted from top and left."""
    size = weight.float().abs()
    limit = size[size > 0].quantile(0.95).item() if (size > 0).any() else 1.0
    shade = torch.where(size > 0, 0.3 + 0.7 * size / limit, 0.0)  # even the smallest weight is told apart from a zero
    rows, columns = weight.shape
    edges = (left - 0.5, left + columns - 0.5, top + rows - 0.5, top - 0.5)
    axes.imshow(shade, cmap="Greys", vmin=0, vmax=1, interpolation="nearest", extent=edges)
    axes.grid(visible=False)
    axes.set_title(title, loc="left", fontsize=10)
    return axes


def masks(weight: Tensor, patterns: Mapping[str, Pattern], size: int = 64) -> Figure:
    """What each pattern leaves of one part of a matrix, a typical one, and of the squares of the whole matrix."""
    fig, axes = figure(3, -(-len(patterns) // 3), width=3.2, height=3.3)
    keeps = {name: pattern.keep(weight.square()) for name, pattern in patterns.items()}
    top, left = typical_part(keeps, size)
    shares = {name: square_kept(weight, pattern) for name, pattern in patterns.items()}
    for panel, (name, keep) in zip(axes, keeps.items(), strict=False):
        part = (weight * keep)[top : top + size, left : left + size]
        show_matrix(panel, part, f"{name}: {percent(shares[name])} of the squares", top, left)
        panel.set_xlabel("input")
        panel.set_ylabel("output")
    most, least = max(shares, key=shares.get), min(shares, key=shares.get)
    fig.suptitle(
        f"With as many zeros, {most} keeps {percent(shares[most])} of the squared weights and {least} "
        f"{percent(shares[least])}"
    )
    return fig


def typical_part(keeps: Mapping[str, Tensor], size: int, step: int = 16) -> tuple[int, int]:
    """Where a size x size part begins in which every pattern keeps about as much as in the whole matrix."""
    furthest = torch.stack(
        [
            (avg_pool2d(keep.float()[None], min(size, *keep.shape), step)[0] - keep.float().mean()).abs()
            for keep in keeps.values()
        ]
    ).amax(0)
    row, column = divmod(int(furthest.argmin()), furthest.shape[1])
    return row * step, column * step


def square_kept_curves(weight: Tensor) -> Figure:
    """The share of the squared weights that stays, by pattern, over sparsity."""
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
        shares = [square_kept(weight, pattern) for _, pattern in points]
        look = line_style(index) if index < 5 else {"color": "black", "marker": "x", "linestyle": (0, (1, 3))}
        axes.plot(
            [s for s, _ in points], shares, label=name, markersize=4, markevery=2 if len(points) > 3 else 1, **look
        )
    axes.plot([0, 1], [1, 0], color="#5c6773", linewidth=0.8)
    axes.text(0.36, 0.5, "chosen blindly", rotation=-37, color="#5c6773", fontsize=9, ha="center")
    axes.legend(frameon=False)
    free, regular = square_kept(weight, Unstructured(0.5)), square_kept(weight, NofM(2, 4))
    title = f"The better half of the weights holds {percent(free)} of the squares, 2:4 {percent(regular)}"
    label(axes, title, "sparsity (fraction of weights removed)", "sum of squares that stays")
    return fig


def freedom(weight: Tensor, patterns: Mapping[str, Pattern]) -> Figure:
    """What each pattern keeps of the squares over the bits a weight that it takes to tell its masks apart."""
    fig, (axes,) = figure(width=5.6, height=4.2)
    bits = {name: bits_of_freedom(pattern, *weight.shape) for name, pattern in patterns.items()}
    shares = {name: square_kept(weight, pattern) for name, pattern in patterns.items()}
    for index, name in enumerate(bits):
        axes.plot(bits[name], shares[name], **(line_style(index) | {"linestyle": "none", "markersize": 8}))
        right = bits[name] < 0.1
        beside = {"xytext": (9 if right else -9, -3), "textcoords": "offset points", "ha": "left" if right else "right"}
        axes.annotate(name, (bits[name], shares[name]), fontsize=9, **beside)
    axes.set_xscale("log")
    axes.set_xticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
    axes.minorticks_off()
    axes.set_ylim(0.45, 1.0)
    axes.margins(x=0.2)
    first, *_, last = bits
    title = f"Bits a weight to name a mask:\n{bits[first]:.2g} for {first}, {bits[last]:.1g} for {last}"
    label(axes, title, "bits a weight that say which mask it is (log scale)", "squares that stay")
    return fig


BEYOND = 20  # vocabularies: a perplexity above that is drawn at the edge


def perplexities(by_sparsity: Mapping[float, Mapping[str, Perplexity]], vocabulary: int) -> Figure:
    """Perplexity after magnitude pruning by sparsity and pattern ("dense" among them), with two standard errors.

    Errors are those of the log-perplexity, as long to either side on the log scale. Grey: worse than guessing each
    token of the vocabulary alike, where a number means little; what is far in there stands at the edge.
    """
    fig, (axes,) = figure(width=7.6, height=3.2 + 0.9 * len(by_sparsity))
    unpruned = next(iter(by_sparsity.values()))["dense"]
    dense, edge, bars = unpruned.value, BEYOND * vocabulary, error_bars(len(unpruned.losses))
    kinds = [{name: p for name, p in by_pattern.items() if name != "dense"} for by_pattern in by_sparsity.values()]
    for index, (sparsity, by_pattern) in enumerate(zip(by_sparsity, kinds, strict=True)):
        look = line_style(index) | {"linestyle": "none", "capsize": 3}
        named = {"label": f"{percent(sparsity)} removed"}
        for row, found in enumerate(by_pattern.values()):
            spot = row + 0.18 * (2 * index - len(by_sparsity) + 1)
            if found.value > edge:
                axes.plot(edge, spot, color=look["color"], marker=">", linestyle="none", **named)
                beside = {"xytext": (-8, -3), "ha": "right"}
            else:
                below, above = reach(found.value, found.standard_error)
                axes.errorbar(found.value, spot, xerr=[[below], [above]], **look, **named)
                beside = {"xytext": (0, 5), "ha": "center"}
            named = {}
            place = (min(found.value, edge), spot)
            axes.annotate(rounded(found.value), place, textcoords="offset points", fontsize=8, bbox=_WHITE, **beside)
    axes.axvspan(vocabulary, 2 * edge, color="#e4e8ed", zorder=0)
    axes.axvline(dense, color="#5c6773", linestyle="--", linewidth=1)
    for value, name in ((dense, f"dense {dense:.0f}"), (vocabulary, "worse than guessing")):
        axes.text(value, len(kinds[0]) - 0.35, f" {name}", color="#5c6773", fontsize=9, va="center")
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
    """The mildest two patterns of each sparsity, and how many are clearly worse than guessing, in words."""
    lines = []
    for sparsity, by_pattern in kinds.items():
        mild = sorted(by_pattern, key=lambda name: by_pattern[name].value)[:2]
        times = [f"{name} × {_times(by_pattern[name].value / dense)}" for name in mild]
        lost = sum(p.value / math.exp(ERRORS * p.standard_error / p.value) > vocabulary for p in by_pattern.values())
        lines.append(
            f"{percent(sparsity)} removed: {', '.join(times)}; {lost} of {len(by_pattern)} worse than guessing"
        )
    return "\n".join(lines)


def _times(factor: float) -> str:
    return f"{factor:.2g}" if factor < 10 else rounded(factor)


def rounded(value: int | float) -> str:
    """65, 4 280, 103 000, 6.2 million: as many digits as matter."""
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:,.2g} {name}" if value < 100 * size else f"{value / size:,.0f} {name}"
    return f"{float(f'{value:.3g}') if value >= 1e4 else value:,.0f}".replace(",", " ")


def groups(shares: Tensor) -> Figure:
    """How many weights of each group of m an unstructured mask keeps, beside what chance would give."""
    fig, (axes,) = figure(height=3.0)
    m = len(shares) - 1
    chance = [math.comb(m, k) / 2**m for k in range(m + 1)]
    places = torch.arange(m + 1)
    axes.bar(places - 0.2, shares, 0.4, color="#16324f", label="this matrix")
    axes.bar(places + 0.2, chance, 0.4, color="#cfd6de", edgecolor="#5c6773", hatch="//", label="coin tosses")
    axes.legend(frameon=False)
    too_full = percent(shares[m // 2 + 1 :].sum().item())
    title = f"{too_full} of the groups keep more than {m // 2} of {m}: they do not fit {m // 2}:{m}"
    label(axes, title, f"weights kept in a group of {m} neighbours", "share of the groups")
    return fig


def bytes_per_weight(weight: Tensor) -> Figure:
    """Bytes a weight in each format over density: lines from the formulas, dots from a real matrix encoded."""
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
    assert packed * n == nofm_bytes(rows, columns, width)
    look = {"markersize": 15, "markerfacecolor": "none", "markeredgewidth": 1.5}  # hollow: a bitmap lies beneath
    axes.plot([0.5], [packed], "*", color="black", label="2:4", **look)
    csr, bitmap = (break_even_density(formulas["dense"], formulas[f], rows, columns) for f in ("CSR", "bitmap"))
    name = str(weight.dtype).removeprefix("torch.")
    label(axes, f"{name}: CSR pays below {percent(csr)}, a bitmap below {percent(bitmap)}", "density", "bytes a weight")
    axes.set_ylim(0, 1.5 * width)


def speed(faster: Mapping[int, Mapping[str, Mapping[float, float]]]) -> Figure:
    """Dense time over sparse time against density, one panel for each number of tokens."""
    fig, axes = figure(len(faster), width=4.8, height=3.8)
    for panel, (n_tokens, formats) in zip(axes, faster.items(), strict=True):
        for index, (name, points) in enumerate((f, p) for f, p in formats.items() if f != "promised"):
            panel.plot(list(points), list(points.values()), label=name, **line_style(index))
        promised = formats["promised"]
        panel.plot(list(promised), list(promised.values()), ":", color="#5c6773", label="bytes of dense over CSR")
        panel.axhline(1, color="black", linewidth=0.8)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xticks(list(promised), [f"{d:g}" for d in promised], minor=False)
        panel.minorticks_off()
        ticks = [
            t
            for t in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256)
            if t < 2 * max(max(p.values()) for p in formats.values())
        ]
        panel.set_yticks(ticks, [f"{t:g}" for t in ticks])
        tokens = "one token" if n_tokens == 1 else f"{n_tokens} tokens"
        title = f"{tokens}: CSR is faster\n{_wins(formats['CSR'])}"
        label(panel, title, "density: share of the weights stored (log scale)", "times faster than dense (log scale)")
    axes[0].legend(frameon=False, fontsize=9)
    return fig


def _wins(points: Mapping[float, float]) -> str:
    """Up to which density of those measured a format won, in words."""
    won = [density for density, times in points.items() if times > 1]
    lost = [density for density, times in points.items() if times <= 1]
    if not won:
        return "nowhere"
    if not lost:
        return f"up to a density of {max(won):g}"
    if max(won) < min(lost):
        return f"up to a density of {max(won):g}, not at {min(lost):g}"
    return f"at {len(won)} of {len(points)} densities"


def limits(rows: int = 11008, columns: int = 4096, device: Device = H100) -> Figure:
    """The most that half of the weights can save on a GPU, by number of tokens. A calculation, not a measurement."""
    fig, (axes,) = figure(height=3.8)
    tokens = [2**power for power in range(14)]
    bounds = [speed_limits(rows, columns, n, device) for n in tokens]
    for index, name in enumerate(bounds[0]):
        look = line_style(index) | {
            "markersize": 4 + 3 * index,
            "fillstyle": "none" if index else "full",
        }  # some coincide
        axes.plot(tokens, [limit[name] for limit in bounds], label=name, **look)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.legend(frameon=False, fontsize=9)
    one, many = bounds[0], bounds[-1]
    title = (
        f"2:4: at most × {one['2:4']:.2f} with one token, × {many['2:4']:.2f} with {tokens[-1]};\n"
        f"a bitmap × {one['bitmap']:.2f} and × {many['bitmap']:.2f}"
    )
    label(
        axes,
        title,
        f"tokens at once ({rows} × {columns}, float16, {device.name} by its data sheet)",
        "times faster, at most",
    )
    return fig


def activity(
    keep: Tensor, errors: Mapping[str, Mapping[float, float]], n_tokens: int = 60, n_inputs: int = 150
) -> Figure:
    """Which inputs each token keeps, and the error of the output when chosen for each token or once for all."""
    fig, axes = figure(2, width=4.8, height=3.6)
    axes[0].imshow(keep[:n_tokens, :n_inputs], cmap="Greys", vmin=0, vmax=1.2, interpolation="nearest", aspect="auto")
    axes[0].grid(visible=False)
    share = keep.float().mean()
    shared = _shared(keep)
    label(
        axes[0],
        f"Two tokens share {percent(shared)} of their top {percent(share.item())}",
        "neuron of the MLP",
        "token",
    )
    for index, (name, points) in enumerate(errors.items()):
        axes[1].plot(list(points), list(points.values()), label=name, **line_style(index))
    axes[1].legend(frameon=False)
    axes[1].set_ylim(bottom=0)
    dynamic, static = (points[min(points, key=lambda f: abs(f - 0.25))] for points in errors.values())
    title = f"A quarter kept: error {dynamic:.2f} by token, {static:.2f} once for all"
    label(axes[1], title, "fraction of the neurons kept", "squared error of the output, relative")
    return fig


def _shared(keep: Tensor) -> float:
    """Of what one token keeps, the part that another one keeps too, on average over all pairs."""
    both = keep.float() @ keep.float().T
    n = len(keep)
    return ((both.sum() - both.trace()) / (n * (n - 1)) / keep.float().sum(1).mean()).item()


def _encodings(pruned: Tensor, pattern: Pattern) -> dict[str, Encoded]:
    """The formats that fit any zeros, and the one that fits this pattern. Rows and columns are long, thin blocks."""
    rows, columns = pruned.shape
    every = {"dense": Dense.encode(pruned), "CSR": CSR.encode(pruned), "bitmap": Bitmap.encode(pruned)}
    match pattern:
        case NofM(n, m) if m <= 4:
            return every | {f"{n}:{m}": NofMPacked.encode(pruned, n, m)}
        case Block(r, c):
            return every | {"blocks": BlockSparse.encode(pruned, r, c)}
        case Rows():
            return every | {"rows": BlockSparse.encode(pruned, 1, columns)}
        case Columns():
            return every | {"columns": BlockSparse.encode(pruned, rows, 1)}
    return every


def explored(weight: Tensor, pattern: Pattern, name: str, corner: int = 64) -> Figure:
    """The explorer's picture: a corner of the pruned matrix, what stays of it, and its bytes in each format."""
    fig, axes = figure(2, width=4.4, height=3.9)
    pruned = weight * pattern.keep(weight.square())
    share = square_kept(weight, pattern)
    zeros = 1 - pruned.count_nonzero().item() / pruned.numel()
    show_matrix(
        axes[0], pruned[:corner, :corner], f"{100 * zeros:.1f} % zeros, {100 * share:.1f} % of the squares stay"
    )
    axes[0].set_xlabel(f"input (first {corner} of {weight.shape[1]})")
    axes[0].set_ylabel(f"output (first {corner} of {weight.shape[0]})")
    megabytes = {form: encoded.n_bytes / 1e6 for form, encoded in _encodings(pruned, pattern).items()}
    bars = axes[1].barh(list(megabytes), list(megabytes.values()), color="#8d99ae")
    axes[1].bar_label(bars, fmt="%.2f", padding=3)
    axes[1].invert_yaxis()
    axes[1].set_xlim(0, 1.2 * max(megabytes.values()))
    best = min(megabytes, key=megabytes.get)
    saved = megabytes["dense"] / megabytes[best]
    name_of_values = str(weight.dtype).removeprefix("torch.")
    label(axes[1], f"{best}: {saved:.2f} times smaller" if saved > 1 else "dense is smallest", f"MB, {name_of_values}")
    fig.suptitle(name, x=0.01, ha="left", fontsize=10)
    return fig
