"""Loads of experts while a model learns, and who has which byte.

Dimension key: S looks, L layers, E experts, V values of a byte.
"""

from collections.abc import Mapping

from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.style import figure, label
from course_lib.lessons.moe.live.training import Run


def of_the_busiest(loads: Float[Tensor, "*s L E"], k: int) -> Float[Tensor, "*s L"]:
    """The share of all choices that the k busiest experts of each layer have."""
    return loads.topk(k, dim=-1).values.sum(dim=-1)


def loads(runs: Mapping[str, Run], k: int) -> Figure:
    """The load of every expert by step, a row an expert: dark is much. One panel a run and layer."""
    first = next(iter(runs.values()))
    n_layers, n_experts = first.loads.shape[1:]
    fig, panels = figure(n_columns=n_layers, n_rows=len(runs), width=4.3, height=2.2)
    said = []
    for row, (name, run) in enumerate(runs.items()):
        busiest = of_the_busiest(run.loads[-1], k)
        said.append(f"{name} {100 * busiest.min():.0f} to {100 * busiest.max():.0f} %")
        for layer in range(n_layers):
            axes = panels[row * n_layers + layer]
            shown = axes.imshow(100 * run.loads[:, layer].T, cmap="Greys", vmin=0, vmax=100 / k, aspect="auto")
            axes.grid(False)
            axes.set_xticks(range(0, len(run.steps), 4), [run.steps[at] for at in range(0, len(run.steps), 4)])
            axes.set_yticks(range(0, n_experts, max(1, n_experts // 4)))
            label(axes, f"{name}, block {layer}", "step" if row == len(runs) - 1 else "", "" if layer else "expert")
    fig.colorbar(shown, ax=panels, label="share of all choices (%)")
    fig.suptitle(
        f"What the {k} busiest of {n_experts} experts have at last:\n{', '.join(said)}", x=0.01, ha="left", fontsize=11
    )
    return fig


def favourites(counts: Int[Tensor, "V E"], known: float, by_chance: float) -> Figure:
    """Which expert the most common bytes go to, a row an expert: dark is all of that byte."""
    fig, (axes,) = figure(width=9.0, height=3.0)
    total = counts.sum(dim=1)
    common = total.argsort(descending=True)[: min(40, int((total > 0).sum()))]
    share = counts[common].double() / counts[common].sum(dim=1, keepdim=True)
    shown = axes.imshow(100 * share.T, cmap="Greys", vmin=0, aspect="auto")
    axes.grid(False)
    axes.set_xticks(range(len(common)), [sign(int(byte)) for byte in common], fontsize=9, family="monospace")
    axes.set_yticks(range(counts.shape[1]))
    fig.colorbar(shown, ax=axes, label="of the byte's choices (%)")
    title = f"A byte says {100 * known:.0f} % of what there is to know of its expert (bytes in random order: "
    label(axes, f"{title}{100 * by_chance:.0f} %)", "the most common bytes", "expert")
    return fig


def sign(byte: int) -> str:
    """One sign for a byte."""
    return {32: "␣", 10: "↵"}.get(byte) or (chr(byte) if 32 < byte < 127 else "·")
