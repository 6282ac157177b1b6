"""Figures of deck 04: schemes, published results, and those of the lesson without arguments."""

from functools import lru_cache

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from course_lib.data.corpora import windows
from course_lib.lessons.common.drawn_tables import drawn_claims
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.tables import load_measured, load_published, rows
from course_lib.lessons.wanda import accuracies, figures, measured, shares, tables
from course_lib.models import blocks, linears, load_model, weight_of
from course_lib.pruning.input_statistics import input_gram
from course_lib.sparsity.patterns import NofM, Unstructured

BLOCK, LAYER = 15, "self_attn.q_proj"


@lru_cache(maxsize=1)
def _layer() -> tuple[Tensor, Tensor]:
    """The weight of the lesson's layer and the Gram matrix of its inputs, as in the notebook."""
    model, tokenizer = load_model()
    calibration = windows("wikipedia", 8, 256, tokenizer, split="calibration", seed=0)
    gram = input_gram(model, calibration, BLOCK, LAYER)
    return weight_of(linears(blocks(model)[BLOCK])[LAYER]).detach(), gram.matrix


def corner() -> Figure:
    """A corner of a real layer: the weights' magnitudes, and the score, in which the large inputs are stripes."""
    weight, gram = _layer()
    norms = gram.diagonal().sqrt()
    first = max(0, int(norms.argmax()) - 30)
    cut = slice(0, 22), slice(first, first + 44)
    fig, panels = figure(n_rows=2, width=6.4, height=2.7)
    named = {"|W|": weight.abs(), "|W| times the norm of the input": weight.abs() * norms}
    for axes, (name, values) in zip(panels, named.items(), strict=True):
        axes.imshow(values[cut], cmap="Greys", vmax=values[cut].quantile(0.98), interpolation="nearest")
        axes.grid(visible=False)
        axes.set_xticks([])
        axes.set_yticks([])
        label(axes, name, "input features" if axes is panels[-1] else "", "outputs")
    return fig


EXAMPLE = torch.tensor([[0.9, 0.2, 0.5, 0.4], [0.3, 0.2, 0.8, 0.6], [0.2, 0.7, 0.1, 0.5]])
EXAMPLE_NORMS = torch.tensor([1.0, 8.0, 2.0, 1.0])


def worked_example() -> Figure:
    """Three outputs, four inputs: which half of each row magnitude and Wanda keep."""
    fig, panels = figure(n_columns=2, width=5.4, height=3.5)
    score = EXAMPLE * EXAMPLE_NORMS
    for axes, name, values in zip(panels, ("|W|", "|W| · ‖X‖"), (EXAMPLE, score), strict=True):
        keep = Unstructured(0.5).keep(values)
        _cells(axes, values, keep, "{:.1f}")
        heads = [f"x{j + 1}" if values is EXAMPLE else f"‖X{j + 1}‖ = {n:.0f}" for j, n in enumerate(EXAMPLE_NORMS)]
        axes.set_xticks([j + 0.5 for j in range(4)], heads, fontsize=12)
        axes.set_yticks([i + 0.5 for i in range(3)], [f"output {i + 1}" for i in range(3)], fontsize=12)
        axes.xaxis.tick_top()
        axes.set_title(name, loc="left", fontsize=14, pad=10)
    same = int((Unstructured(0.5).keep(EXAMPLE) == Unstructured(0.5).keep(score)).sum())
    fig.suptitle(f"Half of each row is kept (dark); the two masks agree in {same} of 12 places", fontsize=13)
    return fig


def _cells(axes: Axes, values: Tensor, keep: Tensor, form: str) -> None:
    """A matrix as boxes with its numbers, dark where a weight is kept."""
    n_rows, n_columns = values.shape
    for i, row in enumerate(values.tolist()):
        for j, value in enumerate(row):
            stays = bool(keep[i, j])
            fill = COLOURS[0] if stays else "#eef1f4"
            axes.add_patch(Rectangle((j, i), 1, 1, facecolor=fill, edgecolor="white", linewidth=2))
            ink = "white" if stays else "#8d99ae"
            axes.text(j + 0.5, i + 0.5, form.format(value), ha="center", va="center", color=ink, fontsize=14)
    axes.set_xlim(0, n_columns)
    axes.set_ylim(n_rows, 0)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def n_of_m_drawn() -> Figure:
    """One row of scores: the best half of the row, and the best two of every four."""
    score = torch.tensor([[7.0, 9.0, 8.0, 6.0, 1.0, 2.0, 5.0, 3.0]])
    fig, panels = figure(n_rows=2, width=6.2, height=1.9)
    for axes, (name, pattern) in zip(panels, {"half": Unstructured(0.5), "2:4": NofM(2, 4)}.items(), strict=True):
        keep = pattern.keep(score)
        _cells(axes, score, keep, "{:.0f}")
        axes.axvline(4, color=COLOURS[1], linewidth=3 if name == "2:4" else 0)
        axes.set_xticks([])
        axes.set_yticks([])
        what = "Best half of the row" if name == "half" else "Best two of every four neighbours"
        axes.set_title(f"{what}: {score[keep].sum():.0f} of {score.sum():.0f}", loc="left", fontsize=13)
    return fig


def driver() -> Figure:
    """The driver: each block is pruned on what the pruned blocks before it give."""
    fig, (axes,) = figure(width=11.5, height=3.3)
    for number, left in enumerate((1.6, 5.2, 8.8), 1):
        name = f"block {number}" if number < 3 else "block 3 …"
        face = {1: COLOURS[4], 2: "#f6e7c4", 3: "white"}[number]
        box = FancyBboxPatch((left, 0.8), 2.3, 1.5, boxstyle="round,pad=0.08", facecolor=face, edgecolor=COLOURS[0])
        axes.add_patch(box)
        state = {1: "pruned", 2: "being pruned", 3: "still dense"}[number]
        axes.text(left + 1.15, 1.75, name, ha="center", fontsize=14, weight="bold")
        axes.text(left + 1.15, 1.2, state, ha="center", fontsize=12)
        axes.annotate("", (left - 0.15, 1.55), (left - 1.15, 1.55), arrowprops={"arrowstyle": "->", "linewidth": 2})
        flow = {1: "X₁", 2: "X̂₂", 3: "X̂₃"}[number]
        axes.text(left - 0.65, 1.72, flow, ha="center", fontsize=14)
    done = ("1  run it dense: collect ‖X̂ⱼ‖", "2  score, mask, set to zero", "3  run it again: hand on X̂₃")
    for row, text in enumerate(done):
        axes.text(4.5, 0.35 - 0.42 * row, text, fontsize=12.5)
    axes.text(0.0, 2.75, "Hats mark what comes out of pruned layers.", fontsize=12)
    axes.set_xlim(0, 11.6)
    axes.set_ylim(-0.8, 3.1)
    axes.axis("off")
    return fig


def columns() -> Figure:
    weight, gram = _layer()
    return figures.columns_kept(weight, gram.diagonal().sqrt())


def against_sparsegpt() -> Figure:
    weight, gram = _layer()
    _, helped = figures.costs_of_removal(weight, figures.damped(gram))
    return figures.obs_against_wanda(helped, weight.abs() * gram.diagonal().sqrt(), f"blocks.{BLOCK}.{LAYER}")


def accuracy_published() -> Figure:
    """The paper's mean accuracies of LLaMA at 50 %, by size."""
    fig, (axes,) = figure(width=7.6, height=4.0)
    found = rows(load_published("wanda"), "zero_shot_mean")
    models = [f"LLaMA-{size}" for size in ("7B", "13B", "30B", "65B")]
    kinds = {"dense": "dense", "magnitude": "magnitude, 50 %", "sparsegpt": "SparseGPT, 50 %", "wanda": "Wanda, 50 %"}
    curves = {}
    for index, (method, name) in enumerate(kinds.items()):
        chosen = {
            r["model"]: r["accuracy"] for r in found if r["method"] == method and r["pattern"] in ("dense", "50%")
        }
        curves[method] = [100 * chosen[model] for model in models]
        axes.plot(range(len(models)), curves[method], label=name, **line_style(index))
    axes.set_xticks(range(len(models)), models)
    axes.legend(frameon=False)
    lost = [dense - pruned for dense, pruned in zip(curves["dense"], curves["magnitude"], strict=True)]
    title = f"Published: at 50 % magnitude loses {min(lost):.0f} to {max(lost):.0f} points"
    label(axes, title, "", "mean accuracy over seven tasks (%)")
    return fig


def seconds_published() -> Figure:
    """The paper's seconds to compute the metric, by size of the model."""
    fig, (axes,) = figure(width=5.8, height=5.2)
    found = rows(load_published("wanda"), "seconds")
    by_method = {}
    for index, method in enumerate(("sparsegpt", "wanda")):
        chosen = {r["model"].removeprefix("LLaMA-"): r["seconds"] for r in found if r["method"] == method}
        axes.plot(range(len(chosen)), list(chosen.values()), label=measured.NAMES[method], **line_style(index))
        by_method[method] = list(chosen.values())
    axes.set_xticks(range(len(chosen)), list(chosen))
    log_scale(axes, "y")
    axes.legend(frameon=False)
    times = [slow / fast for slow, fast in zip(*by_method.values(), strict=True)]
    title = f"Published: {min(times):.0f} to {max(times):.0f} times less time for the score"
    label(axes, title, "LLaMA", "seconds, forward passes not counted")
    return fig


def take_home() -> Figure:
    """The paper's claims, the published numbers, ours and the verdicts, as a table."""
    return drawn_claims(tables.PAPER_CLAIMS)


def _taller(fig: Figure) -> Figure:
    """For half of a slide, where a wide figure would be a small one."""
    fig.set_size_inches(6.2, 5.4)
    return fig


def outliers() -> Figure:
    (row,) = rows(measured.results(), "norms")
    return figures.outliers(torch.tensor(row["norms"]), row["layer"])


def loudest() -> Figure:
    ratios: dict[str, list[float]] = {}
    for row in rows(measured.results(), "loudness"):
        ratios.setdefault(row["layer"].split(".", 2)[2], []).append(row["loudest"] / row["median"])
    return figures.loudest_over_depth(ratios)


def sweep() -> Figure:
    return measured.sweep(measured.results())


def patterns() -> Figure:
    return _taller(measured.by_pattern(measured.results()))


def groups() -> Figure:
    return measured.group_ablation(measured.results())


def calibration() -> Figure:
    return measured.calibration_curve(measured.results())


def beside_published() -> Figure:
    return measured.beside_published(measured.results())


def masks() -> Figure:
    return measured.errors_of_choices(load_measured("wanda", "masks"))


def against_perplexity() -> Figure:
    return accuracies.against_perplexity(measured.results())


def zero_shot() -> Figure:
    return accuracies.zero_shot(measured.results())


def coverage() -> Figure:
    return accuracies.how_often_right()


def ideas() -> Figure:
    return shares.compared(shares.stored(load_measured("wanda", "shares")["tables"]["ideas"]))
