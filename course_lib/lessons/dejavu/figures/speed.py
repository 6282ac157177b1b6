"""Time and bytes over the share of neurons that stay, and the union of what a batch needs."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.dejavu.live.clock import Timed

PAYS = 1.1  # times as fast: what is asked of a single short measurement before it is called faster

Paid = tuple[float, float, float]  # of one token, of the whole answer, break-even density


def pays(lines: Mapping[str, Mapping[float, Paid]]) -> Figure:
    """How many times faster a decoded token is, by density, for several ways to choose and to read."""
    fig, (axes,) = figure(width=7.2, height=3.6)
    said = []
    for index, (name, by_density) in enumerate(lines.items()):
        densities = sorted(by_density)
        faster, _, even = zip(*(by_density[density] for density in densities), strict=True)
        axes.plot([100 * density for density in densities], faster, label=name, **line_style(index))
        said.append(f"{name} {100 * even[0]:.0f} %")
    axes.axhline(1, color=COLOURS[4], linestyle=":")
    log_scale(axes, "x")
    axes.legend(frameon=False, fontsize=9)
    between = "\n" if len(lines) > 1 else " "
    title = f"Nothing is gained from this share of the neurons on:{between}{', '.join(said)}"
    label(axes, title, "neurons kept (%, log scale)", "times as fast, a decoded token")
    return fig


def union(shares: Mapping[str, Sequence[float]], batches: Sequence[int]) -> Figure:
    """The share of the neurons that a batch has to read, by its size, from a batch of one on."""
    fig, (axes,) = figure(width=6.4, height=3.2)
    for index, (name, values) in enumerate(shares.items()):
        axes.plot(batches, [100 * value for value in values], label=name, **line_style(index))
        lots = [100 * (1 - (1 - values[0]) ** n) for n in batches]  # as many as one token of this model needs
        axes.plot(batches, lots, color=COLOURS[4], linestyle=":", label=None if index else "if each token drew lots")
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(batches), [str(n) for n in batches])
    axes.set_ylim(0, 103)
    axes.legend(frameon=False, fontsize=9)
    said = ",\n".join(
        f"{name} {100 * values[-1]:.0f} % ({100 * values[0]:.0f} % a token)" for name, values in shares.items()
    )
    title = f"A batch of {batches[-1]} needs of the neurons:\n{said}"
    label(axes, title, "sequences in the batch", "neurons that are read (%)")
    return fig


def over_density(timed: Timed) -> Figure:
    """How many times as fast the gathered MLPs are, beside what their bytes allow."""
    fig, (axes,) = figure(width=6.4, height=3.4)
    densities = sorted(timed.gathered)
    faster = [timed.faster(density) for density in densities]
    shares = [100 * density for density in densities]
    axes.plot(shares, [1 / density for density in densities], label="bound: fewer bytes", **line_style(1))
    axes.plot(shares, faster, label="gathered, this run", **line_style(0))
    axes.axhline(1, color=COLOURS[4], linestyle=":", label=f"dense, {1000 * timed.dense:.0f} ms")
    log_scale(axes, "x")
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9)
    pays = [density for density, times in zip(densities, faster, strict=True) if times > PAYS]
    said = f"up to {100 * max(pays):.0f} % of the neurons" if pays else "at none of these densities"
    least = f"at {shares[0]:.0f} % {faster[0]:.1f} times, of {1 / densities[0]:.0f}"
    title = f"In this run gathering is faster {said};\n{least}"
    label(
        axes,
        title,
        "neurons read (%, log scale)",
        f"times as fast as dense,\n{timed.n_bytes / 1e6:.0f} MB of MLPs (log scale)",
    )
    return fig
