"""Figures of the committed measurements, for notebook and deck: no arguments."""

from matplotlib.figure import Figure

from course_lib.lessons.common.dots import ERROR_BARS
from course_lib.lessons.common.results import Measured, load_measured, rows
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.lessons.moe.figures.measured import largest_loads
from course_lib.lessons.moe.pairs import Estimates, joined, lower

DENSE = "dense"
APART = 0.2  # between the seeds of a line


def loads() -> Figure:
    """The busiest expert by step, with a balance loss and without."""
    return largest_loads(load_measured("moe"), ("top-1", "top-1, balanced", "top-2", "top-2, balanced"))


def losses() -> Figure:
    """Every kind of model beside the dense one."""
    return below_dense(load_measured("moe"))


def both() -> tuple[Measured, Measured]:
    """What `course reproduce moe` and `moe_routers` measured."""
    return load_measured("moe"), load_measured("moe", "experiments/moe_routers")


def routers() -> Figure:
    """The same, with all other routers."""
    return below_dense(joined(*both()))


def below_dense(found: Measured) -> Figure:
    """By how much the loss of each kind is below that of the dense model of its seed; a mark a seed."""
    names = [name for name in dict.fromkeys(row["model"] for row in rows(found, "models")) if name != DENSE]
    fig, (axes,) = figure(width=7.6, height=0.42 * len(names) + 1.2)
    effects = {name: lower(found, name, DENSE) for name in names}
    for index, of_name in enumerate(zip(*(by_seed.values() for by_seed in effects.values()), strict=True)):
        places = [place + APART * index for place in range(len(names))]
        bars = [ERRORS * effect.error for effect in of_name]
        look = line_style(index) | {"linestyle": "none"}
        axes.errorbar([each.value for each in of_name], places, xerr=bars, capsize=2, label=f"seed {index}", **look)
    axes.axvline(0, color=COLOURS[4], linestyle=":")
    axes.set_yticks([place + APART for place in range(len(names))], names)
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    label(axes, _said(effects), f"nats a byte below the dense model ({ERROR_BARS})")
    return fig


def _said(effects: dict[str, Estimates]) -> str:
    """In how many runs the difference to the dense model is clear, and on which side."""
    runs = [effect for by_seed in effects.values() for effect in by_seed.values()]
    ahead, behind = sum(effect.holds for effect in runs), sum(effect.fails for effect in runs)
    return (
        f"Of {len(runs)} runs with experts {ahead} read clearly better,\n"
        f"{behind} clearly worse than the dense one of their seed"
    )
