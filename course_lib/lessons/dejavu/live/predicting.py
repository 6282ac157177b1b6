"""How good the notebook's predictions are: by how many neurons stay, and window by window.

Dimension key: T tokens, D width, F neurons, N windows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.contextual.seen import Seen
from course_lib.contextual.selector import n_kept
from course_lib.sparsity.ranking import keep_highest

ScoreOf = Callable[[Float[Tensor, "T F"], Float[Tensor, "D F"], Bool[Tensor, "T F"], Bool[Tensor, "T F"]], tuple]


class Found(NamedTuple):
    """What a set of a share of the neurons holds."""

    share: float
    recall: float
    energy: float


def best(score: Float[Tensor, "T F"], share: float) -> Bool[Tensor, "T F"]:
    """A share of each token's neurons, the highest scores."""
    return keep_highest(score, score.shape[1] - n_kept(share, score.shape[1]))


def scored(
    rivals: Mapping[str, Float[Tensor, "T F"]], seen: Seen, shares: Sequence[float], score_of: ScoreOf
) -> dict[str, list[Found]]:
    """Recall and energy of the best neurons by each score, at each share; a function says how both are counted."""
    hidden, down = seen.hidden.double(), seen.neurons.down.double()  # millions of squares are summed up
    active = hidden != 0
    found = {}
    for name, score in rivals.items():
        kept = [best(score, share) for share in shares]
        both = [score_of(hidden, down, active, keep) for keep in kept]
        found[name] = [
            Found(share, float(recall), float(energy)) for share, (recall, energy) in zip(shares, both, strict=True)
        ]
    return found


def constant_loss(parts: Float[Tensor, "T F"]) -> float:
    """The least loss of a predictor that says the same of every neuron and token: what it must be below to have learnt.

    Of active, a share a, each counts 1, of others w = a + 0.005; the best q is a / (a + (1 − a) w).
    """
    share = float((parts > 0).double().mean())
    others = (1 - share) * (share + 0.005)
    says = share / (share + others)
    return -share * math.log(says) - others * math.log(1 - says)


def recall_by_window(
    logits: Float[Tensor, "T F"], active: Bool[Tensor, "T F"], share: float, n_windows: int
) -> Float[Tensor, "N"]:
    """The share of active neurons among the best `share` of the logits, of each window by itself.

    Raises:
        ValueError: for tokens that are no whole number of windows.
    """
    if len(logits) % n_windows:
        raise ValueError(f"got {len(logits)} tokens for {n_windows} windows; expected as many in each.")
    both, all_active = (
        each.reshape(n_windows, -1).sum(dim=1).double() for each in (active & best(logits, share), active)
    )
    return both / all_active.clamp(min=1)
