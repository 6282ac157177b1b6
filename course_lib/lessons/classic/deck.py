"""Figures for the deck of lesson 02: those of its notebook, from networks that are trained where the deck is built."""

from functools import lru_cache

import torch
from matplotlib.figure import Figure

from course_lib.lessons.classic import figures
from course_lib.pruning.classic.deletion import State, deletions, whole
from course_lib.pruning.classic.derivatives import full_hessian, outer_product_hessian
from course_lib.pruning.classic.network import DTYPE, Network, Samples
from course_lib.pruning.classic.obd import obd_diagonal
from course_lib.pruning.classic.problems import DECAY, NETWORKS, XOR_NETWORK, monks, xor
from course_lib.pruning.classic.quadratic import quadratic
from course_lib.pruning.classic.stopping import accurate, last_good
from course_lib.pruning.classic.surfaces import brain_surgeon
from course_lib.pruning.classic.training import levenberg_marquardt, solved

XOR_NAMES = ["x₁→h₁", "x₂→h₁", "1→h₁", "x₁→h₂", "x₂→h₂", "1→h₂", "h₁→y", "h₂→y", "1→y"]
SIZES = {
    "a MONK's network": 58,
    "a row of q_proj": 576,
    "q_proj": 576 * 576,
    "one block": 3_538_944,
    "all blocks": 106_168_320,
}


def surfaces() -> Figure:
    return figures.quadratics(
        {
            "no correlations": quadratic((0.1, -0.3)),
            "no correlations, other weights": quadratic((0.2, -0.3)),
            "correlated": quadratic((0.2, -0.3), 30.0),
        }
    )


@lru_cache(maxsize=1)
def trained_xor() -> State:
    """The first network that solves XOR."""
    return solved(XOR_NETWORK, xor(), torch.Generator().manual_seed(0), decay=1e-5)


def correlations() -> Figure:
    state = trained_xor()
    return figures.correlations(outer_product_hessian(state.network, state.theta, xor()), XOR_NAMES)


def deep_network() -> tuple[State, Samples]:
    """Two hidden layers, trained to imitate another network of the same kind."""
    generator, network = torch.Generator().manual_seed(0), Network((8, 6, 6, 2), hidden="tanh")
    inputs = torch.randn(200, 8, generator=generator, dtype=DTYPE)
    samples = Samples(inputs, network(network.start(generator, 2.0), inputs))
    return levenberg_marquardt(whole(network, network.start(generator)), samples, 1e-4, 50), samples


def diagonals() -> Figure:
    state, samples = deep_network()
    exact = full_hessian(state.network, state.theta, samples).diagonal()
    approximate = obd_diagonal(state.network, state.theta, samples)
    layers = {"layer 1": slice(0, 54), "layer 2": slice(54, 96), "layer 3": slice(96, 110)}
    return figures.diagonals(exact, approximate, layers)


@lru_cache(maxsize=3)
def operated(problem: int, seed: int = 0) -> tuple[State, State]:
    """A network for a MONK's problem before and after surgery."""
    training, _ = monks(problem)
    good = 0.93 if problem == 3 else 1.0
    dense = solved(NETWORKS[problem], training, torch.Generator().manual_seed(seed), good, DECAY[problem])

    def method(*arguments):
        return brain_surgeon(*arguments, alpha=DECAY[problem])

    return dense, last_good(deletions(dense, training, method), accurate(training, dense.accuracy(training)))


def surviving() -> Figure:
    dense, pruned = operated(3)
    return figures.surviving(pruned, dense)


def inverses() -> Figure:
    return figures.bytes_of_inverses(SIZES, 16 * 10**9)


def title() -> Figure:
    """One error surface and the three deletions on it."""
    return figures.quadratics({"an error of two weights": quadratic((0.2, -0.3), 30.0)})


def predictions() -> Figure:
    """Every deletion from the XOR network: the rise that the exact Hessian predicts, and the real one."""
    state, patterns = trained_xor(), xor()
    exact = full_hessian(state.network, state.theta, patterns)
    predicted = 0.5 * exact.diagonal() * state.theta.square()
    rises = [whole(XOR_NETWORK, _without(state.theta, q)).error(patterns) for q in range(len(state.theta))]
    return figures.predictions(predicted, torch.tensor(rises) - state.error(patterns), XOR_NAMES)


def _without(theta: torch.Tensor, q: int) -> torch.Tensor:
    return theta.index_fill(0, torch.tensor(q), 0.0)
