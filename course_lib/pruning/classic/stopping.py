"""When to stop deleting: rules that look at a state and say whether it is still good enough.

Dimension key: d free weights.
"""

from collections import deque
from collections.abc import Callable, Iterable
from itertools import takewhile

from course_lib.pruning.classic.deletion import State
from course_lib.pruning.classic.network import Samples

Rule = Callable[[State], bool]


def accurate(samples: Samples, at_least: float) -> Rule:
    """The network classifies as many samples as before. Ask training samples: the test set is for the verdict."""
    return lambda state: state.accuracy(samples) >= at_least - 1e-12


def cheap(limit: float) -> Rule:
    """The deletion was to cost no more than `limit`. OBS goes on while L_q is much smaller than the error E."""
    return lambda state: state.saliency <= limit


def precise(samples: Samples, at_most: float) -> Rule:
    """The error stays below a bound, whatever the saliencies promised."""
    return lambda state: state.error(samples) <= at_most


def at_least_left(n: int) -> Rule:
    """No fewer than n weights stay."""
    return lambda state: state.n_left >= n


def last_good(states: Iterable[State], good: Rule) -> State:
    """The state before the first that is not good enough."""
    newest = deque(takewhile(good, states), maxlen=1)
    if not newest:
        raise ValueError(
            "the network is not good enough before the first deletion; expected a trained network that meets the rule: "
            "train it longer, start from another seed, or ask for less"
        )
    return newest[0]


def down_to(states: Iterable[State], n: int) -> State:
    """The state in which n weights remain, as deletions come to it."""
    for state in states:
        if state.n_left == n:
            return state
        if state.n_left < n:
            raise ValueError(
                f"{state.n_left} weights are left already; expected a target of at most that many, got {n}: deleted "
                "weights do not come back, and per_round of them are deleted together"
            )
    raise ValueError(f"got a target of {n} weights; expected at least 1")
