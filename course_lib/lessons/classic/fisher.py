"""Squared gradients in place of curvatures: when the empirical Fisher information stands in for the Hessian's diagonal.

Dimension key: d free weights.
"""

from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.classic import claims
from course_lib.lessons.classic.measured import small
from course_lib.lessons.common.claim import report
from course_lib.lessons.common.style import COLOURS, MARKERS, figure, label, line_style
from course_lib.lessons.common.table import Table, plus_minus
from course_lib.lessons.common.tables import rows
from course_lib.measure.paired import mean_and_error
from course_lib.pruning.classic.deletion import State, whole
from course_lib.pruning.classic.derivatives import full_hessian, outer_product_diagonal, residuals, squared_gradients
from course_lib.pruning.classic.network import DTYPE, Network, Samples
from course_lib.pruning.classic.problems import DECAY, NETWORKS, monks
from course_lib.pruning.classic.training import levenberg_marquardt, solved

NOISY, EXACT, MONKS, UNTRAINED = "noisy targets", "exact targets", "MONK's problem 1", "before training"
SITUATIONS = (NOISY, EXACT, MONKS, UNTRAINED)
NETWORK = Network((8, 6, 1), hidden="tanh", output="identity")
NOISE = 0.3  # standard deviation, beside targets of about 1
KINDS = {
    "outer_product": "outer product (Gauss-Newton)",
    "squared": "squared gradients (empirical Fisher)",
    "none": "1",
}


def situation(name: str, seed: int) -> tuple[State, Samples]:
    """A network and its patterns. All but the MONK's imitate a random network, on 1000 patterns."""
    generator = torch.Generator().manual_seed(seed)
    if name == MONKS:
        training, _ = monks(1)
        return solved(NETWORKS[1], training, generator, 1.0, DECAY[1]), training
    inputs = torch.randn(1000, 8, generator=generator, dtype=DTYPE)
    targets = NETWORK(NETWORK.start(generator, 2.0), inputs)
    noise = NOISE * torch.randn(targets.shape, generator=generator, dtype=DTYPE)
    samples = Samples(inputs, targets if name == EXACT else targets + noise)
    start = whole(NETWORK, NETWORK.start(generator))
    return (start if name == UNTRAINED else levenberg_marquardt(start, samples, 1e-4, 200)), samples


def diagonals(state: State, samples: Samples) -> dict[str, Float[Tensor, "d"]]:
    """Of the Hessian, of its outer-product part, and of the empirical Fisher information."""
    inputs = state.network, state.theta, samples
    found = {"outer_product": outer_product_diagonal(*inputs), "squared": squared_gradients(*inputs)}
    return {"hessian": full_hessian(*inputs).diagonal()} | found


def compared(name: str, seed: int) -> dict[str, Any]:
    """One network: the sum of each diagonal over the Hessian's, and how alike OBD's saliencies are ordered."""
    state, samples = situation(name, seed)
    found = diagonals(state, samples) | {"none": torch.ones_like(state.theta)}
    exact, squares = found.pop("hessian"), state.theta.square()
    row = {"situation": name, "seed": seed, "residual": residuals(*_parts(state, samples)).square().mean().item()}
    for kind, diagonal in found.items():
        row[f"{kind}_size"] = (diagonal.sum() / exact.sum()).item()
        row[f"{kind}_order"] = rank_correlation(diagonal * squares, exact * squares)
    return row


def _parts(state: State, samples: Samples) -> tuple:
    return state.network, state.theta, samples


def rank_correlation(one: Float[Tensor, "d"], other: Float[Tensor, "d"]) -> float:
    """Spearman's: 1 when both put the weights in the same order, 0 when they have nothing in common."""
    ranks = torch.stack([values.argsort().argsort().double() for values in (one, other)])
    return torch.corrcoef(ranks)[0, 1].item()


def curvature_table(measured: dict[str, Any]) -> Table:
    """By situation: the size of each diagonal compared with the Hessian's, and the order of OBD's saliencies."""
    frame, formats = [], {"residual²": "{:.2g}".format}
    names = {"outer_product": "Gauss-Newton", "squared": "squared gradients", "none": "w² alone"}
    for name in SITUATIONS:
        found = rows(measured, "curvature", situation=name)
        row = {"networks": name, "residual²": _middle([each["residual"] for each in found])}
        for kind in list(KINDS)[:2]:
            row[size := f"size, {names[kind]}"] = _middle([each[f"{kind}_size"] for each in found])
            formats[size] = "{:.2g}".format
        for kind in KINDS:
            key = (f"order, {names[kind]}", f"error, {names[kind]}")
            row |= dict(zip(key, mean_and_error([each[f"{kind}_order"] for each in found]), strict=True))
            formats[key] = plus_minus(2)
        frame.append(row)
    return Table(
        frame,
        caption="Three stand-ins for the diagonal of the Hessian",
        formats=formats,
        note="size: compared with the Hessian's diagonal (1: the same), the median of the networks. order: the rank "
        "correlation of the saliencies with those of the Hessian (1: the same order) ± one standard error.",
    )


def _middle(values: list[float]) -> float:
    return torch.tensor(values, dtype=DTYPE).median().item()


def order_verdict(measured: dict[str, Any]) -> str:
    """Whether squared gradients put the weights in the Hessian's order, and in a better one than w² alone."""
    return report((claims.FISHER_ORDER, claims.FISHER_HELPS), measured)


def order_figure(measured: dict[str, Any] | None = None) -> Figure:
    """One dot a network: the order of the saliencies by each diagonal against the order by the Hessian's."""
    measured = measured or small()
    fig, (axes,) = figure(width=7.4, height=3.9)
    for index, (kind, name) in enumerate(KINDS.items()):
        for place, where in enumerate(SITUATIONS):
            values = [row[f"{kind}_order"] for row in rows(measured, "curvature", situation=where)]
            x = place + 0.26 * (index - 1)
            look = {"color": COLOURS[index], "marker": MARKERS[index], "s": 18}
            axes.scatter([x] * len(values), values, label=_said(kind, name) if place == 0 else None, **look)
            axes.hlines(sum(values) / len(values), x - 0.1, x + 0.1, color="black", linewidth=1.5)
    axes.set_xticks(range(len(SITUATIONS)), SITUATIONS)
    axes.set_ylim(top=1.28)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.axhline(1, color=COLOURS[4], linestyle=":", linewidth=1)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center")
    means = [mean_and_error([r["squared_order"] for r in rows(measured, "curvature", situation=s)]) for s in SITUATIONS]
    (*trained, (before, error)) = means
    title = (
        f"Squared gradients order the weights of trained networks as the Hessian does:\n{min(trained)[0]:.2f} or more"
    )
    label(axes, f"{title}; before training {before:.2f} ± {error:.2f}", "", "rank correlation (line: mean)")
    return fig


def _said(kind: str, name: str) -> str:
    return "w² alone (magnitude)" if kind == "none" else name


def diagonals_figure(seed: int = 0) -> Figure:
    """Each weight of one network a situation: its curvature, its squared gradient and its outer product."""
    fig, axes = figure(2, width=4.9, height=3.9)
    for panel, name in zip(axes, (NOISY, EXACT), strict=True):
        state, samples = situation(name, seed)
        found = diagonals(state, samples)
        exact = found.pop("hessian")
        for index, (kind, diagonal) in enumerate(found.items()):
            look = line_style(index) | {"linestyle": ""}
            panel.plot(exact, diagonal, label=KINDS[kind], markersize=4.5, alpha=0.8, **look)
        ends = [exact.min().item(), exact.max().item()]
        panel.plot(ends, ends, color=COLOURS[4], linewidth=1, zorder=0)
        panel.set_xscale("log")
        panel.set_yscale("log")
        residual = residuals(*_parts(state, samples)).square().mean().item()
        below = (exact.sum() / found["squared"].sum()).item()
        title = f"{name}: squared gradients\n{below:,.0f} times too small, 1 / residual² = {1 / residual:,.0f}"
        label(panel, title, "diagonal of the Hessian", "in its place" if panel is axes[0] else "")
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    return fig
