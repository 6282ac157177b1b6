"""When to stop deleting weights: rules that decide whether a state is still good enough.

Dimension key: d free weights.
"""

from collections import deque
from collections.abc import Callable, Iterable
from itertools import takewhile

from course_lib.pruning.classic.deletion import State
from course_lib.pruning.classic.network import Samples

Rule = Callable[[State], bool]


def accurate(samples: Samples, at_least: float) -> Rule:
    """Require an accuracy of at least `at_least`. Use training samples: the test set is for the final evaluation."""
    return lambda state: state.accuracy(samples) >= at_least - 1e-12


def cheap(limit: float) -> Rule:
    """Require that the predicted cost of the deletion is at most `limit`. OBS continues while L_q is well below E."""
    return lambda state: state.saliency <= limit


def precise(samples: Samples, at_most: float) -> Rule:
    """Require an error of at most `at_most`, whatever the saliencies predicted."""
    return lambda state: state.error(samples) <= at_most


def at_least_left(n: int) -> Rule:
    """Require that at least n weights are kept."""
    return lambda state: state.n_left >= n


def last_good(states: Iterable[State], good: Rule) -> State:
    """Return the last state before the first one that is not good enough."""
    newest = deque(takewhile(good, states), maxlen=1)
    if not newest:
        raise ValueError(
            "the network is not good enough before the first deletion; expected a trained network that meets the rule: "
            "train it longer, start from another seed, or ask for less"
        )
    return newest[0]


def down_to(states: Iterable[State], n: int) -> State:
    """Return the state in which n weights are left. Raise ValueError if the deletions skip that number."""
    for state in states:
        if state.n_left == n:
            return state
        if state.n_left < n:
            raise ValueError(
                f"{state.n_left} weights are left already; expected a target of at most that many, got {n}: deleted "
                "weights do not come back, and per_round of them are deleted together"
            )
    raise ValueError(f"got a target of {n} weights; expected at least 1")
