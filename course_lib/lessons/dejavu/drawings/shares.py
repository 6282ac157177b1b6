"""Drawings of shares: what a predictor reads beside its MLP, key-value groups, several sequences, and small steps.

Dimension key: D width, F neurons, G query heads of a key-value head, B sequences.
"""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.lessons.common.results import percent
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.dejavu.drawings.cost import NEURONS, RANK, WIDTH
from course_lib.quantization.storage import dense_bytes

GROUP = 64  # neighbours of a row that share a scale and a zero
# Bits a weight of the MLP, and of the predictor's two matrices beside it.
STORED = {
    "MLP in float32": (32.0, 32.0),
    "in float16": (16.0, 16.0),
    "in 4 bits": (8 * dense_bytes(NEURONS, WIDTH, 4, GROUP) / (WIDTH * NEURONS), 16.0),
}


def predictor_shares(mlp_bits: float, predictor_bits: float) -> dict[str, float]:
    """What four predictors read beside an MLP of SmolLM2, as shares of its bytes."""
    mlp = 3 * WIDTH * NEURONS * mlp_bits
    copy = {bits: 8 * 2 * dense_bytes(NEURONS, WIDTH, bits, GROUP) for bits in (2, 4)}  # of gate and up
    return {
        "thresholds": 0.0,
        f"rank {RANK}": RANK * (WIDTH + NEURONS) * predictor_bits / mlp,
        "2-bit copy": copy[2] / mlp,
        "4-bit copy": copy[4] / mlp,
        "exact gate": WIDTH * NEURONS * mlp_bits / mlp,
    }


def predictor_bytes() -> Figure:
    """Shares of the MLP's bytes that predictors read, for three ways to store the MLP."""
    _, (axes,) = figure(width=8.8, height=3.7)
    hatches = ("", "//", "..")
    for place, (name, bits) in enumerate(STORED.items()):
        shares = predictor_shares(*bits)
        at = [number + 0.27 * (place - 1) for number in range(len(shares))]
        axes.bar(
            at, list(shares.values()), 0.26, color=COLOURS[place], hatch=hatches[place], edgecolor="black", label=name
        )
        for x, share in zip(at, shares.values(), strict=True):
            axes.text(x, share + 0.01, percent(share), ha="center", fontsize=8.5)
    axes.set_xticks(range(len(shares)), list(shares))
    axes.set_ylim(0, 0.75)
    axes.legend(frameon=False, fontsize=10.5, loc="upper left")
    full, four = (predictor_shares(*STORED[name])["2-bit copy"] for name in ("MLP in float32", "in 4 bits"))
    title = f"A 2-bit copy of gate and up: {percent(full)} of an MLP in float32, {percent(four)} of one in 4 bits"
    return label(axes, title, "", "share of the MLP's bytes").figure


def read_groups(n_heads: int, group: int, kept: int) -> float:
    """The mean share of key-value groups with any of k heads drawn at random: 1 − C(H − G, k) / C(H, k)."""
    return 1 - math.comb(n_heads - group, kept) / math.comb(n_heads, kept)


def groups_read() -> Figure:
    """Key-value groups that must be read over the heads kept, for three kinds of attention."""
    _, (axes,) = figure(width=7.2, height=3.5)
    kinds = (("no groups: H = 9", 9, 1), ("SmolLM2: H = 9, G = 3", 9, 3), ("H = 32, G = 4", 32, 4))
    for index, (name, n_heads, group) in enumerate(kinds):
        kept = range(1, n_heads + 1)
        shares = [read_groups(n_heads, group, k) for k in kept]
        axes.plot([k / n_heads for k in kept], shares, label=name, **line_style(index))
    axes.set_ylim(0, 1.05)
    axes.legend(frameon=False, fontsize=10.5, loc="lower right")
    title = f"5 of 9 heads, drawn at random: {percent(read_groups(9, 3, 5))} of SmolLM2's keys and values are read"
    return label(axes, title, "share of query heads kept", "share of keys and values read").figure


def union(density: float, n_sequences: int) -> float:
    """The share of neurons that any of B sequences needs, if they choose independently: 1 − (1 − d)^B."""
    return 1 - (1 - density) ** n_sequences


def batch_union() -> Figure:
    """The union of choices over the number of sequences that are decoded together."""
    _, (axes,) = figure(width=7.2, height=3.5)
    batches = range(1, 33)
    for index, density in enumerate((0.05, 0.1, 0.2, 0.5)):
        axes.plot(
            batches,
            [union(density, n) for n in batches],
            label=f"density {density:g}",
            markevery=4,
            **line_style(index),
        )
    axes.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylim(0, 1.03)
    axes.legend(frameon=False, fontsize=10.5, loc="lower right")
    first = {density: next(n for n in batches if union(density, n) > 0.5) for density in (0.05, 0.1, 0.2)}
    said = ", ".join(f"{n} at {density:g}" for density, n in first.items())
    title = f"Independent choices: more than half of the neurons from {said}"
    return label(axes, f"{title} sequences on", "sequences decoded together", "share of neurons that any needs").figure


def cosine(ratio: float, between: float) -> float:
    """Of X and X + F, where ‖F‖ = ratio · ‖X‖ and F stands at this cosine to X."""
    return (1 + ratio * between) / math.sqrt(1 + 2 * ratio * between + ratio**2)


def slow_change() -> Figure:
    """The cosine of what a block reads and what it gives, over the length of what it adds."""
    _, (axes,) = figure(width=7.2, height=3.5)
    ratios = [step / 50 for step in range(101)]
    for index, (name, between) in enumerate(
        (("F at right angles to X", 0.0), ("F at a cosine of 0.5", 0.5), ("F at a cosine of −0.5", -0.5))
    ):
        look = line_style(index) | {"marker": None}
        axes.plot(ratios, [cosine(ratio, between) for ratio in ratios], label=name, **look)
    _mark(axes, 0.99)
    _mark(axes, 0.95)
    axes.set_ylim(0, 1.05)
    axes.legend(frameon=False, fontsize=10.5, loc="lower left")
    title = (
        f"At right angles, a cosine of 0.99 is ‖F‖ = {_ratio(0.99):.2f} ‖X‖, and one of 0.95 is {_ratio(0.95):.2f} ‖X‖"
    )
    return label(axes, title, "‖F‖ / ‖X‖", "cosine of X and X + F").figure


def _ratio(wanted: float) -> float:
    """‖F‖ / ‖X‖ that gives this cosine at right angles."""
    return math.sqrt(1 / wanted**2 - 1)


def _mark(axes: Axes, wanted: float) -> None:
    axes.plot(_ratio(wanted), wanted, "D", color="black", markersize=6, zorder=3)
