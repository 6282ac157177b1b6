"""Drawings of cost: the bytes of a decoded token and what a density saves, and what an evaluation leaves exact."""

from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.lessons.dejavu.drawings.parts import PALE, SAND, blank, cell

WIDTH, NEURONS, KEY_VALUE, BLOCKS, TOKENS = 576, 1536, 192, 30, 49_152  # of SmolLM2-135M
RANK = 64
DENSITIES = (1.0, 0.5, 0.2, 0.1, 0.0)
PARTS = {
    "attention": BLOCKS * (2 * WIDTH * WIDTH + 2 * WIDTH * KEY_VALUE),
    "MLP": BLOCKS * 3 * WIDTH * NEURONS,
    "predictor": BLOCKS * RANK * (WIDTH + NEURONS),
    "head": WIDTH * TOKENS,
}
WINDOW, SCORED = 2560, 512  # tokens; of TEAL's evaluation


def read(density: float) -> dict[str, float]:
    """Weights of each part that one token reads at this density of neurons; a dense model has no predictor."""
    scale = {"attention": 1.0, "MLP": density, "predictor": float(density < 1), "head": 1.0}
    return {name: size * scale[name] for name, size in PARTS.items()}


def token_bytes() -> Figure:
    """Stacked: what a decoded token reads at five densities of neurons, and how many times less that is."""
    _, (axes,) = figure(width=8.8, height=4.0)
    dense = sum(read(1.0).values())
    looks = (COLOURS[4], COLOURS[0], COLOURS[1], PALE)
    for place, density in enumerate(DENSITIES):
        low = 0.0
        for (name, size), colour in zip(read(density).items(), looks, strict=True):
            hatch = "//" if name == "predictor" else ""
            axes.bar(
                place,
                size / dense,
                0.62,
                low,
                color=colour,
                edgecolor="black",
                hatch=hatch,
                label=name if not place else "",
            )
            low += size / dense
        axes.text(place, low + 0.02, f"{1 / low:.2f} ×", ha="center", fontsize=11)
    axes.set_ylim(0, 1.12)
    axes.set_xticks(range(len(DENSITIES)), [f"{100 * density:g} %" for density in DENSITIES])
    axes.legend(frameon=False, fontsize=10.5, loc="upper right", ncols=2)
    share, most = PARTS["MLP"] / dense, dense / sum(read(0.0).values())
    title = f"The MLP is {100 * share:.0f} % of what a token of SmolLM2 reads, so at most a factor of {most:.2f} is won"
    return label(axes, title, "density of neurons", "weights read, of a dense token's").figure


def exact_keys() -> float:
    """The mean share of the keys that a scored token reads and that were made without sparsity."""
    first = WINDOW - SCORED
    shares = [min(WINDOW // 2, position + 1) / (position + 1) for position in range(first, WINDOW)]
    return sum(shares) / len(shares)


def half_window() -> Figure:
    """A window of TEAL's evaluation: where it is dense, where sparse, and which tokens count."""
    fig, (axes,) = figure(width=9.2, height=2.4)
    blank(axes, (-0.05 * WINDOW, 1.02 * WINDOW), (-1.6, 2.4))
    for name, start, stop, fill in (
        ("dense, whatever the setting", 0, WINDOW // 2, PALE),
        ("sparse", WINDOW // 2, WINDOW, SAND),
    ):
        cell(axes, (start, 0), (stop - start, 1.2), fill, name)
    cell(axes, (WINDOW - SCORED, -0.12), (SCORED, 1.44), "none", edgecolor=COLOURS[1], linewidth=2.4)
    axes.text(WINDOW - SCORED / 2, -0.7, f"scored: {SCORED} tokens", ha="center", fontsize=11)
    for at in (0, WINDOW // 2, WINDOW):
        axes.text(at, 1.5, f"{at:,}", ha="center", fontsize=10)
    title = f"Scored tokens are sparse; {100 * exact_keys():.0f} % of the keys that they read are exact"
    axes.set_title(title, loc="left", fontsize=12)
    return fig
