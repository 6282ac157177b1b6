"""Measure the ideas of an open task and compare each with the first one.

All ideas are measured on the same windows, so the comparison is paired and differences between windows cancel.

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
    """The names of the ideas to measure."""

    ideas: tuple[str, ...]


def by_idea(title: str, ideas: Iterable[str], quick: Iterable[str], row: Callable[[str, int], Tables]) -> Experiment:
    """Build an experiment with one step per idea, measured by row(idea, seed); `quick`: the ideas of a quick run."""

    def steps(sizes: Ideas) -> list[Step]:
        return [Step(idea, partial(row, idea)) for idea in sizes.ideas]

    return Experiment(title, Ideas(tuple(ideas)), Ideas(tuple(quick)), steps)


def against(mine: Float[Tensor, "N"], theirs: Float[Tensor, "N"]) -> tuple[float, float]:
    """Return the mean of theirs − mine, losses in nats per token, and its standard error."""
    return mean_and_error(theirs - mine)


LOWER, ERROR = "log-perplexity lower than in the first row", "its standard error"
COMPARED = {"perplexity": number(1), (LOWER, ERROR): plus_minus(3, sign=True)}  # formats of the columns below


def compared_columns(mine: Float[Tensor, "N"], theirs: Float[Tensor, "N"]) -> dict[str, float | None]:
    """Return the last columns of a table of ideas; the first row is the baseline and has no difference."""
    lower, error = (None, None) if mine is theirs else against(mine, theirs)
    return {"perplexity": mine.mean().exp().item(), LOWER: lower, ERROR: error}


def beside_the_first(losses: Mapping[str, Float[Tensor, "N"]]) -> Figure:
    """Plot by how much each idea's log-perplexity is lower than that of the first one, ± two standard errors.

    The title names the ideas that are significantly better: their 95 % interval (Student's t) lies above 0.
    """
    fig, (axes,) = figure(width=8.0, height=3.2)
    first, *others = losses
    effects = {name: of_samples(losses[first] - losses[name]) for name in others}
    for position, effect in enumerate(reversed(effects.values())):
        axes.errorbar(effect.value, position, xerr=ERRORS * effect.error, capsize=3, **line_style(0))
    axes.axvline(0, color=COLOURS[1], linestyle="--", linewidth=1)
    axes.set_yticks(range(len(effects)), list(effects)[::-1])
    axes.set_ylim(-0.6, len(effects) - 0.4)
    better = [name for name, effect in effects.items() if effect.holds]
    names = listed(better) if better else f"none of {len(effects)} ideas"
    separator = "\n" if len(first) + len(names) > 50 else " "
    title = f"Clearly better than {first}:{separator}{names}"
    label(axes, title, f"log-perplexity below that of {first} ({error_bars(len(losses[first]))})")
    return fig
