"""The figures of lesson 04. Each takes data, and returns a figure whose title says what the data show."""

import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.sparsity.patterns import Unstructured


def outliers(norms: Tensor, name: str) -> Figure:
    """The norm of every input feature of one layer, on a log scale: a few stand far above the rest."""
    fig, (axes,) = figure(width=7.2)
    share = (norms.square() / norms.square().sum()).sort(descending=True).values
    few = int((share.cumsum(0) < 0.5).sum()) + 1
    axes.scatter(range(len(norms)), norms, s=9, color=COLOURS[0])
    axes.axhline(norms.median(), color=COLOURS[1], linestyle="--", linewidth=1)
    axes.annotate("median", (len(norms) * 1.01, norms.median()), fontsize=9, va="center", annotation_clip=False)
    log_scale(axes, "y")
    title = f"{name}: half of the squared norm is in {few} of {len(norms)} input features"
    label(axes, title, "input feature j", "feature norm ‖Xⱼ‖₂")
    return fig


def loudest_against_median(norms: dict[str, Tensor]) -> Figure:
    """Over depth and by kind of input: how many times the median the largest feature is."""
    ratios: dict[str, list[float]] = {}
    for name, norm in norms.items():
        ratios.setdefault(name.split(".", 2)[2], []).append((norm.max() / norm.median()).item())
    return loudest_over_depth(ratios)


def loudest_over_depth(ratios: dict[str, list[float]]) -> Figure:
    """The same from the ratios themselves, by kind of input, one a block."""
    fig, (axes,) = figure(width=7.2)
    for index, (kind, ratio) in enumerate(ratios.items()):
        axes.plot(ratio, markersize=4, label=f"input of {kind}", **line_style(index))
    log_scale(axes, "y")
    axes.legend(frameon=False, fontsize=9)
    first = next(iter(ratios.values()))
    title = f"What attention reads: the largest feature is {min(first):.0f} to {max(first):.0f} times the median one"
    label(axes, title, "block", "largest / median feature norm")
    return fig


def columns_kept(weight: Tensor, norms: Tensor, sparsity: float = 0.5) -> Figure:
    """The share of each input column that magnitude and Wanda keep, against the norm of the input."""
    fig, (axes,) = figure(width=7.2)
    pattern = Unstructured(sparsity)
    shares = {
        "magnitude": pattern.keep(weight.abs()).float().mean(dim=0),
        "Wanda": pattern.keep(weight.abs() * norms).float().mean(dim=0),
    }
    for index, (name, share) in enumerate(shares.items()):
        look = line_style(index)
        axes.scatter(norms, 100 * share, s=14, color=look["color"], marker=look["marker"], label=name, alpha=0.7)
    log_scale(axes, "x")
    axes.legend(frameon=False)
    largest = norms >= norms.quantile(0.99)
    kept = {name: 100 * share[largest].mean().item() for name, share in shares.items()}
    first, second = (f"{name} {share:.0f} %" for name, share in kept.items())
    title = f"Kept on the largest 1 % of inputs: {first} of the weights, {second}"
    label(axes, title, "norm of the input feature, ‖Xⱼ‖₂", "weights kept in its column (%)")
    return fig


def groups_drawn() -> Figure:
    """The five comparison groups on a small layer; one group of each is dark."""
    names = {
        "whole layer": (6, 8),
        "each output\n(output, 1)": (1, 8),
        "a few outputs\n(output, 128)": (2, 8),
        "each input\n(input, 1)": (6, 1),
        "a few inputs\n(input, 128)": (6, 2),
    }
    fig, panels = figure(n_columns=5, width=2.5, height=2.7)
    for axes, (name, (height, width)) in zip(panels, names.items(), strict=True):
        for top in range(0, 6, height):
            for left in range(0, 8, width):
                dark = top == 0 and left == 0
                style = {"facecolor": COLOURS[0] if dark else "#e3e7ec", "edgecolor": "white", "linewidth": 2}
                axes.add_patch(Rectangle((left, top), width, height, **style))
        axes.set_xlim(-0.1, 8.1)
        axes.set_ylim(6.1, -0.1)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_title(name, loc="left", fontsize=13)
        axes.set_xlabel("inputs →", loc="left", fontsize=11)
    panels[0].set_ylabel("← outputs", loc="top", fontsize=11)
    fig.suptitle(
        "A weight is ranked among those of its group; one group of each kind is dark", x=0.01, ha="left", fontsize=13
    )
    return fig


def damped(gram: Tensor, share: float = 0.01) -> Tensor:
    """H = XᵀX + λI, with λ a share of the mean diagonal, as in SparseGPT and in lesson 03."""
    return gram + share * gram.diagonal().mean() * torch.eye(len(gram))


def costs_of_removal(weight: Tensor, hessian: Tensor) -> tuple[Tensor, Tensor]:
    """What it costs to set W_ij to zero: with the others of its row as they are, and moved as well as they can be."""
    precise = hessian.double()
    freedom = torch.cholesky_inverse(torch.linalg.cholesky(precise)).diagonal()  # [H⁻¹]_jj
    squares = weight.double() ** 2
    return (squares * precise.diagonal()).float(), (squares / freedom).float()


def obs_and_wanda_scores(weight: Tensor, gram: Tensor, damping: float = 0.01) -> tuple[Tensor, Tensor]:
    """SparseGPT's score and Wanda's for one layer; damping is a share of the Gram's mean diagonal, as in SparseGPT."""
    _, helped = costs_of_removal(weight, damped(gram.double(), damping))
    return helped, weight.abs() * gram.diagonal().sqrt()


def obs_against_wanda(helped: Tensor, score: Tensor, name: str) -> Figure:
    """Each weight's rank within its row under both scores, as a two-dimensional histogram."""
    fig, (axes,) = figure(width=5.6, height=4.4)
    pattern = Unstructured(0.5)
    same = 100 * (pattern.keep(helped) == pattern.keep(score)).float().mean().item()
    ranks = [100 * each.argsort(dim=1).argsort(dim=1).flatten() / each.shape[1] for each in (score, helped)]
    *_, cells = axes.hist2d(*(rank.numpy() for rank in ranks), bins=60, cmap="Greys", norm=LogNorm(), rasterized=True)
    fig.colorbar(cells, ax=axes, label="weights in a cell")
    axes.axhline(50, color=COLOURS[1], linewidth=1)
    axes.axvline(50, color=COLOURS[1], linewidth=1, linestyle="--")
    axes.grid(visible=False)
    title = f"{name}:\nboth scores agree on {same:.0f} % of the mask at 50 %"
    label(axes, title, "rank in its row by Wanda's score (%)", "rank by SparseGPT's score (%)")
    return fig
