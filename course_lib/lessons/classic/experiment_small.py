"""Small networks of lesson 02: squared gradients beside curvatures, and simple ideas for its open task."""

from dataclasses import dataclass
from functools import partial

from course_lib.lessons.classic.fisher import SITUATIONS, compared
from course_lib.lessons.classic.smallest import IDEAS, N_NETWORKS, REFERENCE, attempt, trained
from course_lib.measure.experiment import Experiment, Step, Tables


@dataclass(frozen=True)
class Sizes:
    """How many networks for each situation and for the open task, and which ideas are tried on each of the latter."""

    n_compared: int = 10
    n_networks: int = N_NETWORKS
    ideas: tuple[str, ...] = tuple(IDEAS)


def steps(sizes: Sizes) -> list[Step]:
    plan = [Step(f"squared gradients, {name}", partial(curvatures, sizes, name)) for name in SITUATIONS]
    return plan + [
        Step(f"ideas, network {index}", partial(one_network, sizes.ideas, index)) for index in range(sizes.n_networks)
    ]


def curvatures(sizes: Sizes, name: str, seed: int) -> Tables:
    """The diagonals of the Hessian, of its outer-product part and of the empirical Fisher information."""
    return {"curvature": [compared(name, 1000 * seed + index) for index in range(sizes.n_compared)]}


def one_network(ideas: tuple[str, ...], index: int, seed: int) -> Tables:
    """A network, and what every idea makes of it."""
    dense = trained(1000 * seed + index)
    results = [(idea, attempt(IDEAS[idea], [dense])[0]) for idea in ideas]
    found = [{"idea": idea, "network": index, "n_left": r.n_left, "n_right": r.n_right} for idea, r in results]
    return {"networks": [{"network": index, "theta": dense.theta.tolist()}], "ideas": found}


EXPERIMENT = Experiment("Squared gradients, and the smallest network", Sizes(), Sizes(2, 2, (REFERENCE,)), steps)
