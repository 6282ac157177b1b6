"""Up to eight recipes of a student's own, tried live: a table, a picture, and what is handed in.

Two windows say which way to go, not by how much: `course challenge` measures a recipe in full. Where a recipe leaves
its calibration open it is small here, so that a recipe is built in seconds.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course_lib.compose.challenge.budget import BUDGET
from course_lib.compose.challenge.judge import Judge, Judged, Measured, judged
from course_lib.compose.challenge.texts import FIRST, Texts, texts
from course_lib.compose.front import Point
from course_lib.compose.recipe import Calibration, Recipe, from_json
from course_lib.lessons.capstone.drawings.labels import name_points
from course_lib.lessons.common.style import COLOURS, figure, label
from course_lib.lessons.common.tables import percent, say

MOST, LEAST_NATS = 8, 0.5
SMALL = Calibration(windows=4, length=128)
LIMITS = (("held", BUDGET.held), ("read", BUDGET.read))


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A recipe, or why it is none.

    Args:
        losses: of the windows, nats a token.
    """

    name: str
    judged: Judged | None = None
    losses: tuple[float, ...] = ()
    problem: str = ""

    @property
    def held(self) -> float:
        """Of the dense model's bytes."""
        return self.judged.held if self.judged else nan

    @property
    def read(self) -> float:
        """Of the bytes that the dense model reads a token."""
        return self.judged.read if self.judged else nan

    @property
    def loss(self) -> float:
        """Nats a token beside the dense model."""
        return self.judged.worse[1][0] if self.judged else nan

    @property
    def within(self) -> bool:
        return self.judged is not None and self.judged.within


def tried(
    recipes: Mapping[str, str | dict[str, Any]],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    folder: Path = Path(),
    n_windows: int = 2,
) -> list[Tried]:
    """Each recipe built and measured on windows of Wikipedia; one that cannot be built has its reason in its row.

    Args:
        recipes: by name, as JSON or as the data it stands for. folder: where the prompt lies that one may name.

    Raises:
        ValueError: more than eight.
    """
    if len(recipes) > MOST:
        raise ValueError(f"got {len(recipes)} recipes; expected at most {MOST}. Try some, then others.")
    drawn = texts(tokenizer, n_windows)
    read = Texts(windows={FIRST: drawn.windows[FIRST]}, behind=drawn.behind)
    judge = Judge(model=model, tokenizer=tokenizer, texts=read)
    dense = judge.measure(Recipe(calibration=SMALL))
    return [_tried(name, recipe, judge, dense, folder) for name, recipe in recipes.items()]


def _tried(name: str, given: str | dict[str, Any], judge: Judge, dense: Measured, folder: Path) -> Tried:
    try:
        recipe = from_json(given if isinstance(given, str) else json.dumps(given))
        small = replace(recipe, calibration=SMALL) if recipe.calibration == Calibration() else recipe
        found = judge.measure(small, folder)
    except ValueError as error:
        return Tried(name=name, problem=str(error))
    return Tried(name=name, judged=judged(found, dense), losses=found.losses[FIRST])


def points_of(tries: list[Tried], read: bool = False) -> list[Point]:
    """Those that could be built, for the front: bytes held, or bytes read a token."""
    return [
        Point(name=each.name, cost=each.judged.found.read if read else each.judged.found.held, losses=each.losses)
        for each in tries
        if each.judged
    ]


def say_board(tries: list[Tried]) -> None:
    """The table: bytes beside the budget, the loss beside the dense model's, and the reason where there is none."""
    held, read = (f"{what} ≤ {percent(most, 1)}" for what, most in LIMITS)
    say(f"   {'recipe':<34}{held:>16}{read:>16}{'nats a token above dense':>28}")
    for index, each in enumerate(tries, 1):
        if each.judged is None:
            say(f"{index}  {each.name[:33]:<34}{each.problem}")
            continue
        shares = "".join(f"{percent(share, 1):>14}{' ' if share <= most else '!':>2}" for share, most in _shares(each))
        mean, error = each.judged.worse[1]
        say(f"{index}  {each.name[:33]:<34}{shares}{f'{mean:+.3f} ± {error:.3f}':>28}")
    kept = [each for each in tries if each.within]
    best = f"; the best of them here is {min(kept, key=lambda one: one.loss).name}" if kept else ""
    say(f"{len(kept)} of {len(tries)} keep to the budget (! marks what does not){best}.")


def board_figure(tries: list[Tried]) -> Figure:
    """The loss over bytes held and over bytes read; what lies right of a dotted line is too large."""
    built = [(index, each) for index, each in enumerate(tries, 1) if each.judged]
    fig, panels = figure(n_columns=2, width=5.2, height=3.4)
    for axes, (which, most) in zip(panels, LIMITS, strict=True):
        spots = [(100 * getattr(each, which), each.loss) for _, each in built]
        for spot, (_, each) in zip(spots, built, strict=True):
            fill = COLOURS[0] if each.within else "white"
            axes.plot(*spot, "o", markersize=8, color=COLOURS[0], markerfacecolor=fill)
        axes.axvline(100 * most, color="black", linestyle=":", linewidth=1)
        _limits(axes, spots)
        n_kept = sum(getattr(each, which) <= most for _, each in built)
        title = f"{n_kept} of {len(tries)} stay within {percent(most, 1)} of the bytes {which}"
        label(axes, title, f"bytes {which}{' a token' * (which == 'read')} (% of dense)", "nats a token above dense")
    names = "   ".join(f"{index} {each.name}" for index, each in built)
    fig.supxlabel(f"filled: keeps to both. {names}", fontsize=9, wrap=True)
    for axes, (which, _) in zip(panels, LIMITS, strict=True):
        spots = [(100 * getattr(each, which), each.loss) for _, each in built]
        name_points(axes, spots, [str(index) for index, _ in built], 9.5)
    return fig


def _limits(axes: Axes, spots: list[tuple[float, float]]) -> None:
    """All bytes from none to the dense model's, and half a nat at least: one recipe alone says as much as eight."""
    shares, losses = [x for x, _ in spots], [y for _, y in spots]
    least, most = min([0.0, *losses]), max([LEAST_NATS, *losses])
    room = 0.08 * (most - least)
    axes.set_xlim(0, 1.05 * max([100.0, *shares]))
    axes.set_ylim(least - room, most + room)


def _shares(each: Tried) -> list[tuple[float, float]]:
    return [(getattr(each, which), most) for which, most in LIMITS]
