"""The open task of lesson 02: the smallest network that still solves the first of the MONK's problems, by any method.

Dimension key: d free weights.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
from matplotlib.figure import Figure

from course_lib.lessons.common.style import COLOURS, figure, label, line_style
from course_lib.lessons.common.table import Table, plus_minus
from course_lib.lessons.common.tables import load_measured, rows
from course_lib.lessons.common.verdicts import ERRORS
from course_lib.measure.paired import mean_and_error
from course_lib.pruning.classic.deletion import State, delete, deletions, whole
from course_lib.pruning.classic.network import DTYPE, Samples
from course_lib.pruning.classic.problems import DECAY, NETWORKS, monks
from course_lib.pruning.classic.stopping import accurate, last_good
from course_lib.pruning.classic.surfaces import METHODS, Method, brain_surgeon
from course_lib.pruning.classic.training import levenberg_marquardt, solved

PROBLEM = 1
N_NETWORKS = 10
ALPHA = DECAY[PROBLEM]
CANDIDATES = 5  # how many of the cheapest deletions the most thorough idea tries before it gives up
PUBLISHED = 14  # Hassibi and Stork's network for this problem, in our reading of their abstract

# (a trained network, the training robots) -> a network with fewer weights
Idea = Callable[[State, Samples], State]


def trained(seed: int) -> State:
    """One network of 58 weights that is right about all training robots."""
    training, _ = monks(PROBLEM)
    return solved(NETWORKS[PROBLEM], training, torch.Generator().manual_seed(seed), 1.0, ALPHA)


@lru_cache(maxsize=1)
def networks() -> list[State]:
    """The ten of the committed table, as they were trained there."""
    stored = rows(load_measured("classic", "small"), "networks")
    return [whole(NETWORKS[PROBLEM], torch.tensor(row["theta"], dtype=DTYPE)) for row in stored]


def refitted(state: State, training: Samples) -> State:
    """The weights that are left, trained again."""
    return levenberg_marquardt(state, training, ALPHA, 60)


def until_wrong(method: Method, refit: bool, dense: State, training: Samples) -> State:
    """Deletes the cheapest weight, again and again, and ends before the first training robot is wrong."""
    again = partial(refitted, training=training) if refit else None
    return last_good(deletions(dense, training, method, again), accurate(training, 1.0))


def with_second_tries(dense: State, training: Samples) -> State:
    """OBS and refitting; where the cheapest deletion ends badly, the next ones are tried before it stops."""
    state, good = dense, accurate(training, 1.0)
    while state.n_left > 1:
        surface = SURGEON(state.network, state.theta, state.keep, training)
        cost = surface.saliency(state.theta).masked_fill(~state.keep, torch.inf)
        order = cost.argsort()[: min(CANDIDATES, state.n_left)].tolist()
        tried = (refitted(delete(state, surface, q), training) for q in order)
        found = next((one for one in tried if good(one)), None)
        if found is None:
            return state
        state = found
    return state


SURGEON = partial(brain_surgeon, alpha=ALPHA)
REFERENCE = "OBS, nothing retrained"
IDEAS: dict[str, Idea] = {
    "magnitude, nothing retrained": partial(until_wrong, METHODS["magnitude"], False),
    "OBD, nothing retrained": partial(until_wrong, METHODS["OBD"], False),
    REFERENCE: partial(until_wrong, SURGEON, False),
    "magnitude, retrained after each": partial(until_wrong, METHODS["magnitude"], True),
    "OBD, retrained after each": partial(until_wrong, METHODS["OBD"], True),
    "OBS, retrained after each": partial(until_wrong, SURGEON, True),
    f"OBS, retrained, {CANDIDATES} tries a step": with_second_tries,
}


@dataclass(frozen=True)
class Result:
    """What an idea made of one network: the weights left, and how many of the 432 robots it is right about."""

    n_left: int
    n_right: int

    @property
    def solved(self) -> bool:
        return self.n_right == 432


def attempt(idea: Idea, start: Iterable[State] | None = None) -> list[Result]:
    """An idea tried on each network. Zeros among the weights count as deleted, whoever wrote them.

    Raises:
        ValueError: for an idea that gives back something else than a network for these robots.
    """
    training, everyone = monks(PROBLEM)
    results = []
    for dense in networks() if start is None else start:
        made = idea(dense, training)
        if not isinstance(made, State) or made.network.sizes[0] != 17:
            raise ValueError(
                f"got {type(made).__name__} from the idea; expected a State whose network reads 17 inputs."
            )
        made = replace(made, theta=made.theta * made.keep)
        right = round(made.accuracy(everyone) * len(everyone.inputs))
        results.append(Result(int((made.theta != 0).sum()), right))
    return results


def table(ideas: dict[str, list[Result]], mine: list[Result] | None = None) -> Table:
    """Every idea compared with OBS alone, network by network; yours last."""
    against = ideas[REFERENCE]
    frame = []
    for name, results in {**ideas, **({"yours": mine} if mine else {})}.items():
        mean, error = mean_and_error([float(result.n_left) for result in results])
        good = [result.n_left for result in results if result.solved]
        pairs = [float(other.n_left - result.n_left) for other, result in zip(against, results, strict=True)]
        fewer, error_of_fewer = (None, None) if results is against else mean_and_error(pairs)
        frame.append(
            {"idea": name, "weights left": mean, "error": error, "fewest": min(good, default=None)}
            | {"networks that are right": len(good), "of": len(results)}
            | {"fewer than OBS alone": fewer, "error of fewer": error_of_fewer}
        )
    return Table(
        frame,
        caption="How few weights each idea leaves",
        formats={
            ("weights left", "error"): plus_minus(1),
            ("networks that are right", "of"): "{} of {}".format,
            ("fewer than OBS alone", "error of fewer"): plus_minus(1, sign=True),
        },
        note="± one standard error over the networks. A network is right if it is right about all 432 robots; fewest: "
        "the fewest weights of such a network, a dash if there is none.",
    )


def ideas_figure(ideas: dict[str, list[Result]] | None = None) -> Figure:
    """The weights that each idea leaves: the mean over the networks, with two standard errors."""
    ideas = ideas or stored()
    fig, (axes,) = figure(width=8.2, height=3.4)
    means = {name: mean_and_error([float(result.n_left) for result in results]) for name, results in ideas.items()}
    for place, (name, (mean, error)) in enumerate(reversed(means.items())):
        axes.errorbar(mean, place, xerr=ERRORS * error, capsize=3, **line_style(0))
        solved = f"{sum(result.solved for result in ideas[name])} of {len(ideas[name])} right"
        look = {"va": "center", "fontsize": 8, "xytext": (8, 0), "textcoords": "offset points"}
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        axes.annotate(f"{mean:.1f}; {solved}", (mean + ERRORS * error, place), bbox=behind, **look)
    axes.axvline(PUBLISHED, color=COLOURS[4], linestyle=":", label=f"published: {PUBLISHED}")
    axes.set_yticks(range(len(means)), list(means)[::-1])
    axes.set_xlim(0, 48)
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    least, most = (extreme(mean for mean, _ in means.values()) for extreme in (min, max))
    of = len(next(iter(ideas.values())))
    title = f"Of 58 weights {least:.1f} to {most:.1f} are left, mean of {of} networks"
    label(axes, title, "weights left (bars: two standard errors); right: about all 432 robots")
    return fig


def stored() -> dict[str, list[Result]]:
    """The ideas that were measured, from the committed result."""
    found: dict[str, list[Result]] = {}
    row: dict[str, Any]
    for row in rows(load_measured("classic", "small"), "ideas"):
        found.setdefault(row["idea"], []).append(Result(row["n_left"], row["n_right"]))
    return found
