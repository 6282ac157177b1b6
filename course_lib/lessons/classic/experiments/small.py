"""Small networks of lesson 02: squared gradients in place of curvatures, and ideas for the open task.

Dimension key: d free weights.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.results import load_measured, rows
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.pruning.classic.deletion import State, delete, deletions, whole
from course_lib.pruning.classic.derivatives import full_hessian, outer_product_diagonal, residuals, squared_gradients
from course_lib.pruning.classic.network import DTYPE, Network, Samples
from course_lib.pruning.classic.problems import DECAY, NETWORKS, monks
from course_lib.pruning.classic.stopping import accurate, last_good
from course_lib.pruning.classic.surfaces import METHODS, Method, brain_surgeon
from course_lib.pruning.classic.training import levenberg_marquardt, solved

NOISY, EXACT, MONKS, UNTRAINED = "noisy targets", "exact targets", "MONK's problem 1", "before training"
SITUATIONS = (NOISY, EXACT, MONKS, UNTRAINED)
NETWORK = Network((8, 6, 1), hidden="tanh", output="identity")
NOISE = 0.3  # standard deviation; the targets are about 1 in size

PROBLEM = 1  # of the MONK's problems: the open task
ALPHA = DECAY[PROBLEM]
N_NETWORKS = 10
CANDIDATES = 5  # how many of the cheapest deletions the most thorough idea tries

Idea = Callable[[State, Samples], State]  # (trained network, training robots) -> a smaller network


@dataclass(frozen=True)
class Sizes:
    """How many networks are compared in each situation and in the open task, and which ideas are tried."""

    n_compared: int = 10
    n_networks: int = N_NETWORKS
    ideas: tuple[str, ...] = ()


def steps(sizes: Sizes) -> list[Step]:
    plan = [Step(f"squared gradients, {name}", partial(curvatures, sizes, name)) for name in SITUATIONS]
    return plan + [
        Step(f"ideas, network {index}", partial(one_network, sizes.ideas, index)) for index in range(sizes.n_networks)
    ]


# Squared gradients in place of curvatures.


def curvatures(sizes: Sizes, name: str, seed: int) -> Tables:
    """Compare the diagonals of the Hessian, of its outer-product part and of the empirical Fisher information."""
    return {"curvature": [compare_diagonals(name, 1000 * seed + index) for index in range(sizes.n_compared)]}


def situation(name: str, seed: int) -> tuple[State, Samples]:
    """Return a network and its patterns. Except for the MONK's problem, it learns from a random network."""
    generator = torch.Generator().manual_seed(seed)
    if name == MONKS:
        training, _ = monks(PROBLEM)
        return solved(NETWORKS[PROBLEM], training, generator, 1.0, ALPHA), training
    inputs = torch.randn(1000, 8, generator=generator, dtype=DTYPE)
    targets = NETWORK(NETWORK.start(generator, 2.0), inputs)
    noise = NOISE * torch.randn(targets.shape, generator=generator, dtype=DTYPE)
    samples = Samples(inputs, targets if name == EXACT else targets + noise)
    start = whole(NETWORK, NETWORK.start(generator))
    return (start if name == UNTRAINED else levenberg_marquardt(start, samples, 1e-4, 200)), samples


def diagonals_of(state: State, samples: Samples) -> dict[str, Float[Tensor, "d"]]:
    """Return the diagonals of the Hessian, of its outer-product part, and of the empirical Fisher information."""
    inputs = state.network, state.theta, samples
    approximations = {"outer_product": outer_product_diagonal(*inputs), "squared": squared_gradients(*inputs)}
    return {"hessian": full_hessian(*inputs).diagonal()} | approximations


def compare_diagonals(name: str, seed: int) -> dict[str, Any]:
    """Compare for one network the size of each diagonal with the Hessian's, and how similarly it ranks the weights."""
    state, samples = situation(name, seed)
    diagonals = diagonals_of(state, samples) | {"none": torch.ones_like(state.theta)}
    exact, squares = diagonals.pop("hessian"), state.theta.square()
    residual = residuals(state.network, state.theta, samples).square().mean().item()
    row = {"situation": name, "seed": seed, "residual": residual}
    for kind, diagonal in diagonals.items():
        row[f"{kind}_size"] = (diagonal.sum() / exact.sum()).item()
        row[f"{kind}_order"] = rank_correlation(diagonal * squares, exact * squares)
    return row


def rank_correlation(one: Float[Tensor, "d"], other: Float[Tensor, "d"]) -> float:
    """Return Spearman's rank correlation: 1 for the same order, 0 for unrelated orders."""
    ranks = torch.stack([values.argsort().argsort().double() for values in (one, other)])
    return torch.corrcoef(ranks)[0, 1].item()


# The open task: the smallest network that still solves problem 1, by any method.


def one_network(ideas: tuple[str, ...], index: int, seed: int) -> Tables:
    """Train a network and prune it with every idea."""
    dense = train_dense(1000 * seed + index)
    results = [(idea, attempt(IDEAS[idea], [dense])[0]) for idea in ideas]
    table = [{"idea": idea, "network": index, "n_left": r.n_left, "n_right": r.n_right} for idea, r in results]
    return {"networks": [{"network": index, "theta": dense.theta.tolist()}], "ideas": table}


def train_dense(seed: int) -> State:
    """Train one network of 58 weights that classifies all training robots correctly."""
    training, _ = monks(PROBLEM)
    return solved(NETWORKS[PROBLEM], training, torch.Generator().manual_seed(seed), 1.0, ALPHA)


@lru_cache(maxsize=1)
def dense_networks() -> list[State]:
    """Return the ten trained networks of the stored result."""
    stored_rows = rows(load_measured("classic", "small"), "networks")
    return [whole(NETWORKS[PROBLEM], torch.tensor(row["theta"], dtype=DTYPE)) for row in stored_rows]


def retrain(state: State, training: Samples) -> State:
    """Train the remaining weights for at most 60 steps."""
    return levenberg_marquardt(state, training, ALPHA, 60)


def until_wrong(method: Method, retrained: bool, dense: State, training: Samples) -> State:
    """Delete the cheapest weight again and again, and stop before a training robot is classified wrongly."""
    refit = partial(retrain, training=training) if retrained else None
    return last_good(deletions(dense, training, method, refit), accurate(training, 1.0))


def with_second_tries(dense: State, training: Samples) -> State:
    """OBS with retraining; where the cheapest deletion fails, try the next ones before stopping."""
    state, good = dense, accurate(training, 1.0)
    while state.n_left > 1:
        surface = SURGEON(state.network, state.theta, state.keep, training)
        cost = surface.saliency(state.theta).masked_fill(~state.keep, torch.inf)
        order = cost.argsort()[: min(CANDIDATES, state.n_left)].tolist()
        candidates = (retrain(delete(state, surface, q), training) for q in order)
        first = next((candidate for candidate in candidates if good(candidate)), None)
        if first is None:
            return state
        state = first
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
    """The network that an idea made: its number of weights, and how many of the 432 robots it classifies correctly."""

    n_left: int
    n_right: int

    @property
    def solved(self) -> bool:
        return self.n_right == 432


def attempt(idea: Idea, start: Iterable[State] | None = None) -> list[Result]:
    """Try an idea on each network, by default the ten stored ones. A weight that is zero counts as deleted.

    Raises:
        ValueError: the idea returns something other than a network for these robots.
    """
    training, everyone = monks(PROBLEM)
    results = []
    for dense in dense_networks() if start is None else start:
        pruned = idea(dense, training)
        if not isinstance(pruned, State) or pruned.network.sizes[0] != 17:
            raise ValueError(
                f"got {type(pruned).__name__} from the idea; expected a State whose network has 17 inputs."
            )
        pruned = replace(pruned, theta=pruned.theta * pruned.keep)
        right = round(pruned.accuracy(everyone) * len(everyone.inputs))
        results.append(Result(int((pruned.theta != 0).sum()), right))
    return results


def stored() -> dict[str, list[Result]]:
    """Return the ideas of the stored result."""
    results: dict[str, list[Result]] = {}
    for row in rows(load_measured("classic", "small"), "ideas"):
        results.setdefault(row["idea"], []).append(Result(row["n_left"], row["n_right"]))
    return results


EXPERIMENT = Experiment(
    "Squared gradients, and the smallest network", Sizes(ideas=tuple(IDEAS)), Sizes(2, 2, (REFERENCE,)), steps
)
