"""Figures of the core path of lesson 06, for notebook and deck; without arguments they show the stored results.

Dimension key: S steps, L blocks, E experts, T bytes.
"""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.results import Measured, load_bench, load_measured, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style, log_scale
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.moe.pairs import Estimates, joined, lower
from course_lib.moe.small_models.specialisation import by_chance, counted, known_share

DENSE = "dense"
APART = 0.2  # between the seeds of a line
CONTROL, LAYER, ALL = "dense, of equal active size", "grouped product", "all experts"


def overflow(kept: Mapping[float, float], n_experts: int) -> Figure:
    """By capacity factor: the fraction of tokens that are dropped, and of slots that stay empty."""
    fig, (axes,) = figure(width=6.4, height=3.2)
    factors = list(kept)
    dropped = [100 * (1 - kept[factor]) for factor in factors]
    empty = [100 * (1 - kept[factor] / factor) for factor in factors]
    axes.plot(factors, dropped, label="dropped tokens", **line_style(0))
    axes.plot(factors, empty, label="empty slots", **line_style(1))
    axes.axvline(n_experts, color=COLOURS[4], linestyle=":", label="a slot for every token")
    axes.set_ylim(-3, 103)
    axes.legend(frameon=False, fontsize=9)
    one = factors.index(1.0)
    title = f"At a capacity factor of 1, {dropped[one]:.0f} % of the tokens are dropped"
    label(axes, title, "capacity factor", "fraction (%)")
    return fig


def loads(loads_by_run: Mapping[str, Float[Tensor, "S L E"]], k: int, every: int = 10) -> Figure:
    """The load of each expert during training, one panel per run and block; the darker, the higher the load."""
    n_steps, n_blocks, n_experts = next(iter(loads_by_run.values())).shape
    steps = list(range(0, n_steps, every))
    fig, panels = figure(n_columns=n_blocks, n_rows=len(loads_by_run), width=4.3, height=2.2)
    busiest_at_end = []
    for row, (name, by_step) in enumerate(loads_by_run.items()):
        busiest = of_the_busiest(by_step[-every:].mean(dim=0), k)
        busiest_at_end.append(f"{name} {100 * busiest.min():.0f} to {100 * busiest.max():.0f} %")
        for block in range(n_blocks):
            axes = panels[row * n_blocks + block]
            image = axes.imshow(100 * by_step[steps, block].T, cmap="Greys", vmin=0, vmax=100 / k, aspect="auto")
            axes.grid(False)
            axes.set_xticks(range(0, len(steps), 4), [steps[at] + 1 for at in range(0, len(steps), 4)])
            axes.set_yticks(range(0, n_experts, max(1, n_experts // 4)))
            is_last = row == len(loads_by_run) - 1
            label(axes, f"{name}, block {block}", "step" if is_last else "", "" if block else "expert")
    fig.colorbar(image, ax=panels, label="fraction of choices (%)")
    title = f"The {k} busiest of {n_experts} experts, last {every} steps:\n{', '.join(busiest_at_end)}"
    fig.suptitle(title, x=0.01, ha="left", fontsize=11)
    return fig


def of_the_busiest(loads: Float[Tensor, "*s L E"], k: int) -> Float[Tensor, "*s L"]:
    """The fraction of all choices that the k busiest experts of each block have."""
    return loads.topk(k, dim=-1).values.sum(dim=-1)


BALANCES = ("top-1", "top-1, balanced", "top-2", "top-2, balanced")


def largest_loads(measured: Measured | None = None, names: tuple[str, ...] = BALANCES) -> Figure:
    """By step: the fraction of the choices that the busiest expert of a block has, mean over blocks and seeds."""
    measured = measured or load_measured("moe")
    fig, (axes,) = figure(width=7.0, height=3.4)
    ends = {}
    for index, name in enumerate(names):
        of_model = rows(measured, "loads", model=name)
        steps = sorted({row["step"] for row in of_model})
        means = [100 * fmean(max(row["load"]) for row in of_model if row["step"] == step) for step in steps]
        axes.plot(steps, means, label=name, **line_style(index))
        ends[name] = means[-1]
    axes.axhline(100 / len(of_model[0]["load"]), color=COLOURS[4], linestyle=":", label="equal loads")
    log_scale(axes, "x")
    axes.set_ylim(0, 103)
    axes.legend(frameon=False, fontsize=9)
    at_end = ", ".join(f"{name} {end:.0f} %" for name, end in ends.items())
    label(axes, f"Load of the busiest expert of a block at the end:\n{at_end}", "step", "fraction of choices (%)")
    return fig


def losses() -> Figure:
    """Each kind of model compared with the dense one."""
    return below_dense(load_measured("moe"))


def routers() -> Figure:
    """The same figure with all other routers."""
    return below_dense(joined(*with_routers()))


def with_routers() -> tuple[Measured, Measured]:
    """The results of `course reproduce moe` and `moe_routers`."""
    return load_measured("moe"), load_measured("moe", "experiments/moe_routers")


def below_dense(measured: Measured) -> Figure:
    """The loss of the dense model minus that of each kind, one marker per seed."""
    names = [name for name in dict.fromkeys(row["model"] for row in rows(measured, "models")) if name != DENSE]
    fig, (axes,) = figure(width=7.6, height=0.42 * len(names) + 1.2)
    effects = {name: lower(measured, name, DENSE) for name in names}
    for index, of_name in enumerate(zip(*(by_seed.values() for by_seed in effects.values()), strict=True)):
        positions = [position + APART * index for position in range(len(names))]
        bars = [ERRORS * effect.error for effect in of_name]
        look = line_style(index) | {"linestyle": "none"}
        axes.errorbar([each.value for each in of_name], positions, xerr=bars, capsize=2, label=f"seed {index}", **look)
    axes.axvline(0, color=COLOURS[4], linestyle=":")
    axes.set_yticks([position + APART for position in range(len(names))], names)
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    label(axes, _clear_runs(effects), f"nats per byte below the dense model ({ERROR_BARS})")
    return fig


def _clear_runs(effects: dict[str, Estimates]) -> str:
    """Count the runs with a clearly lower and a clearly higher loss than the dense model."""
    runs = [effect for by_seed in effects.values() for effect in by_seed.values()]
    ahead, behind = sum(effect.holds for effect in runs), sum(effect.fails for effect in runs)
    return (
        f"Of {len(runs)} runs with experts {ahead} have a clearly lower and\n"
        f"{behind} a clearly higher loss than the dense model of their seed"
    )


def speeds() -> Figure:
    """Times of the layer, and of all experts, relative to the dense MLP, as measured by the benchmark."""
    sides = load_bench("cpu_moe")["tables"]["sides"]
    fig, panels = figure(n_columns=2, width=4.9, height=3.5)
    usual = [row for row in sides if row["shape"][1] == 8]
    many = [row for row in sides if row["shape"][0] in (1, 512)]
    _over_dense(panels[0], usual, [f"{n}" for n in _different(usual, 0)], "tokens")
    _over_dense(panels[1], many, [f"{n}\n{e}" for n, e in _shapes(many)], "tokens (upper) and experts (lower number)")
    layer = [1 / row["times_anchor"] for row in usual if row["side"] == LAYER]
    whole = [1 / row["times_anchor"] for row in usual if row["side"] == ALL]
    panels[0].set_title(
        f"8 experts: {min(layer):.1f} to {max(layer):.1f} times; all run: {min(whole):.1f} to {max(whole):.1f} times",
        loc="left",
        fontsize=11,
    )
    most = max((1 / row["times_anchor"], row["shape"][1]) for row in many if row["side"] == LAYER)
    panels[1].set_title(
        f"1 and 512 tokens: slowest with {most[1]} experts, {most[0]:.1f} times", loc="left", fontsize=11
    )
    panels[0].legend(frameon=False, fontsize=10, loc="upper left")
    return fig


def _over_dense(axes: Axes, rows: list[dict[str, Any]], ticks: list[str], x: str) -> None:
    """Plot two measured times and the bytes of the MoE layer, relative to the dense MLP."""
    shapes = _shapes(rows)
    for index, (side, name) in enumerate(((LAYER, "MoE layer"), (ALL, "all experts"))):
        of_side = {tuple(row["shape"]): row for row in rows if row["side"] == side}
        times = [1 / of_side[shape]["times_anchor"] for shape in shapes]
        low = [time - 1 / of_side[shape]["times_anchor_high"] for time, shape in zip(times, shapes, strict=True)]
        high = [1 / of_side[shape]["times_anchor_low"] - time for time, shape in zip(times, shapes, strict=True)]
        look = line_style(index) | {"linestyle": "none"}
        axes.errorbar(range(len(shapes)), times, yerr=[low, high], capsize=3, label=name, **look)
    n_bytes = {tuple(row["shape"]): {} for row in rows}
    for row in rows:
        n_bytes[tuple(row["shape"])][row["side"]] = row["bytes"]
    relative_bytes = [n_bytes[shape][LAYER] / n_bytes[shape][CONTROL] for shape in shapes]
    axes.plot(
        range(len(shapes)), relative_bytes, "_", color="black", markersize=20, label="bytes read by the MoE layer"
    )
    axes.axhline(1, color=COLOURS[4], linestyle=":")
    log_scale(axes, "y")
    axes.set_ylim(0.8, 30)
    axes.set_xticks(range(len(shapes)), ticks)
    axes.set_xlim(-0.5, len(shapes) - 0.5)
    label(axes, "", x, "relative to the dense MLP")


def _shapes(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Tokens and experts of each measurement, in order."""
    return sorted({tuple(row["shape"]) for row in rows}, key=lambda shape: (shape[0], shape[1]))


def _different(rows: list[dict[str, Any]], place: int) -> list[int]:
    return sorted({row["shape"][place] for row in rows})


def favourites(ids: Int[Tensor, "T"], chosen: Bool[Tensor, "T E"]) -> Figure:
    """The experts of the 40 most common bytes; the darker, the larger the fraction of that byte's choices."""
    counts = counted(ids, chosen)
    fig, (axes,) = figure(width=9.0, height=3.0)
    total = counts.sum(dim=1)
    common = total.argsort(descending=True)[: min(40, int((total > 0).sum()))]
    fraction = counts[common].double() / counts[common].sum(dim=1, keepdim=True)
    image = axes.imshow(100 * fraction.T, cmap="Greys", vmin=0, aspect="auto")
    axes.grid(False)
    axes.set_xticks(range(len(common)), [sign(int(byte)) for byte in common], fontsize=9, family="monospace")
    axes.set_yticks(range(counts.shape[1]))
    fig.colorbar(image, ax=axes, label="fraction of the byte's choices (%)")
    known, chance = known_share(counts), by_chance(ids, chosen)
    title = f"The byte determines {100 * known:.0f} % of the choice of expert (shuffled bytes: {100 * chance:.0f} %)"
    label(axes, title, "the most common bytes", "expert")
    return fig


def sign(byte: int) -> str:
    """One character for a byte."""
    return {32: "␣", 10: "↵"}.get(byte) or (chr(byte) if 32 < byte < 127 else "·")
