"""The figures of lesson 04. Each takes data, and returns a figure whose title says what the data show."""

import torch
from matplotlib.figure import Figure
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
    title = f"{name}: {few} of {len(norms)} input features hold half of the squared norm"
    label(axes, title, "input feature j", "feature norm ‖X_j‖₂")
    return fig


def loudest_against_median(norms: dict[str, Tensor]) -> Figure:
    """Over depth and by kind of input: how many times the median the loudest feature is."""
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
    title = f"What attention reads: the loudest feature is {min(first):.0f} to {max(first):.0f} times the median one"
    label(axes, title, "block", "loudest / median feature norm")
    return fig


def columns_kept(weight: Tensor, norms: Tensor, sparsity: float = 0.5) -> Figure:
    """The share of each input column that magnitude and Wanda keep, against how loud the input is."""
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
    loud = norms >= norms.quantile(0.99)
    kept = {name: 100 * share[loud].mean().item() for name, share in shares.items()}
    by = " and ".join(f"{name} {share:.0f} %" for name, share in kept.items())
    title = f"Of the weights on the loudest 1 % of inputs, {by} stay"
    label(axes, title, "norm of the input feature, ‖X_j‖₂", "weights kept in its column (%)")
    return fig


def obs_and_wanda_scores(weight: Tensor, gram: Tensor, damping: float = 0.01) -> tuple[Tensor, Tensor]:
    """SparseGPT's score and Wanda's for one layer; damping is a share of the Gram's mean diagonal, as in SparseGPT."""
    damped = gram.double() + damping * gram.diagonal().mean().double() * torch.eye(len(gram), dtype=torch.float64)
    inverse = torch.linalg.inv(damped).diagonal()
    return (weight.double().square() / inverse).float(), weight.abs() * gram.diagonal().sqrt()


def obs_against_wanda(weight: Tensor, gram: Tensor, name: str) -> Figure:
    """Each weight's rank within its row under both scores, as a two-dimensional histogram."""
    fig, (axes,) = figure(width=5.2, height=4.2)
    obs, wanda = obs_and_wanda_scores(weight, gram)
    pattern = Unstructured(0.5)
    same = 100 * (pattern.keep(obs) == pattern.keep(wanda)).float().mean().item()
    ranks = [100 * score.argsort(dim=1).argsort(dim=1).flatten() / score.shape[1] for score in (wanda, obs)]
    axes.hist2d(*(rank.numpy() for rank in ranks), bins=60, cmap="Greys")
    axes.axhline(50, color=COLOURS[1], linewidth=1)
    axes.axvline(50, color=COLOURS[1], linewidth=1)
    axes.grid(visible=False)
    title = f"{name}:\nboth scores agree on {same:.0f} % of the mask at 50 %"
    label(axes, title, "rank in its row by Wanda's score (%)", "rank by SparseGPT's score (%)")
    return fig
