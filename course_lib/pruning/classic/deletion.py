"""Delete weights of small networks one after the other: the state, one deletion, and the loop.

Dimension key: P samples, d free weights.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.pruning.classic.network import Network, Samples, accuracy, error
from course_lib.pruning.classic.surfaces import Method, Surface


@dataclass(frozen=True)
class State:
    """A network during pruning. `keep`: True for kept weights. `saliency`: the predicted cost of the last deletion."""

    network: Network
    theta: Float[Tensor, "d"]
    keep: Bool[Tensor, "d"]
    saliency: float = 0.0

    @property
    def n_left(self) -> int:
        return int(self.keep.sum())

    def error(self, samples: Samples) -> float:
        return error(self.network, self.theta, samples).item()

    def accuracy(self, samples: Samples) -> float:
        return accuracy(self.network, self.theta, samples)


def whole(network: Network, theta: Float[Tensor, "d"]) -> State:
    """Return the state of a trained network before the first deletion."""
    if len(theta) != network.n_weights or not theta.isfinite().all():
        raise ValueError(
            f"got {len(theta)} weights, {int((~theta.isfinite()).sum())} of them not finite; expected "
            f"{network.n_weights} numbers: train the network first, with a smaller step if it diverged"
        )
    return State(network, theta, torch.ones_like(theta, dtype=torch.bool))


def cheapest(state: State, surface: Surface) -> int:
    """Return the index of the weight with the lowest saliency; the first one in a tie."""
    saliency = surface.saliency(state.theta).masked_fill(~state.keep, torch.inf)
    if saliency[state.keep].isnan().any():
        raise ValueError("a saliency is NaN: expected numbers to rank; look for NaN in the weights or the Hessian")
    return int(saliency.argmin())


def delete(state: State, surface: Surface, q: int) -> State:
    """Delete weight q, and update the other weights as the error surface prescribes."""
    if not 0 <= q < len(state.keep) or not state.keep[q]:
        first = state.keep.nonzero().flatten()[:5].tolist()
        raise ValueError(f"weight {q} is not there to be deleted; expected one of {state.n_left}: {first} and so on")
    keep = state.keep.clone()
    keep[q] = False
    theta = (state.theta + surface.change(state.theta, q)) * keep
    return State(state.network, theta, keep, surface.saliency(state.theta)[q].item())


def deletions(
    state: State,
    samples: Samples,
    method: Method,
    refit: Callable[[State], State] | None = None,
    per_round: int = 1,
) -> Iterator[State]:
    """Yield the current state and the state after every round of deletions, down to one weight.

    A stopping rule decides how many of these states are used.

    Args:
        refit: trains the kept weights after every round.
        per_round: deletions that use one error surface before it is computed again. OBS updates it after each deletion.
    """
    if per_round < 1:
        raise ValueError(f"per_round={per_round}: expected at least 1 deletion in a round")
    yield state
    while state.n_left > 1:
        surface = method(state.network, state.theta, state.keep, samples)
        for _ in range(min(per_round, state.n_left - 1)):
            q = cheapest(state, surface)
            state = delete(state, surface, q)
            surface.lose(q)
        state = refit(state) if refit else state
        yield state
