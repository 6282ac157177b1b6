"""Ideas for an open task: how they are measured, and each beside the first, so that how hard a window is drops out.

Dimension key: N windows.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.lessons.common.dots import error_bars
from course_lib.lessons.common.results import listed
from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.table import number, plus_minus
from course_lib.lessons.common.verdicts import ERRORS, of_samples
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.measure.paired import mean_and_error


@dataclass(frozen=True)
class Ideas:
    """Which of the ideas are measured."""

    ideas: tuple[str, ...]


def by_idea(title: str, ideas: Iterable[str], quick: Iterable[str], row: Callable[[str, int], Tables]) -> Experiment:
    """An experiment that measures one idea a step by row(idea, seed); `quick` are the ideas of a quick run."""

    def steps(sizes: Ideas) -> list[Step]:
        return [Step(idea, partial(row, idea)) for idea in sizes.ideas]

    return Experiment(title, Ideas(tuple(ideas)), Ideas(tuple(quick)), steps)


def against(mine: Float[Tensor, "N"], theirs: Float[Tensor, "N"]) -> tuple[float, float]:
    """How much lower my log-perplexity is than theirs, and its standard error."""
    return mean_and_error(theirs - mine)


LOWER, ERROR = "log-perplexity lower than in the first row", "its standard error"
COMPARED = {"perplexity": number(1), (LOWER, ERROR): plus_minus(3, sign=True)}  # formats of the columns below


def compared_columns(mine: Float[Tensor, "N"], theirs: Float[Tensor, "N"]) -> dict[str, float | None]:
    """The last columns of a table of ideas; the first row, with which all are compared, has no difference."""
    lower, error = (None, None) if mine is theirs else against(mine, theirs)
    return {"perplexity": mine.mean().exp().item(), LOWER: lower, ERROR: error}


def beside_the_first(losses: Mapping[str, Float[Tensor, "N"]]) -> Figure:
    """By how much each idea's log-perplexity is lower than the first's, with two standard errors.

    The title names the ideas whose effect holds by the rule of all verdicts (Student's t).
    """
    fig, (axes,) = figure(width=8.0, height=3.2)
    first, *others = losses
    found = {name: of_samples(losses[first] - losses[name]) for name in others}
    for place, effect in enumerate(reversed(found.values())):
        axes.errorbar(effect.value, place, xerr=ERRORS * effect.error, capsize=3, **line_style(0))
    axes.axvline(0, color=COLOURS[1], linestyle="--", linewidth=1)
    axes.set_yticks(range(len(found)), list(found)[::-1])
    axes.set_ylim(-0.6, len(found) - 0.4)
    better = [name for name, effect in found.items() if effect.holds]
    said = listed(better) if better else f"none of {len(found)} ideas"
    between = "\n" if len(first) + len(said) > 50 else " "
    title = f"Clearly better than {first}:{between}{said}"
    label(axes, title, f"log-perplexity below that of {first} ({error_bars(len(losses[first]))})")
    return fig
