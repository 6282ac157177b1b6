"""The models as they are, and how few neurons matter to a token there, block by block: those that are not zero, and
those that carry nearly all of what the MLP adds.

Dimension key: T tokens of a window, F neurons.
"""

from jaxtyping import Float
from torch import Tensor

from course_lib.contextual.seen import Seen, look_through
from course_lib.lessons.dejavu.experiments.steps.ground import loss_row, subject
from course_lib.lessons.dejavu.experiments.steps.sizes import Sizes
from course_lib.measure.experiment import Tables

ENERGY = 0.95  # of Σ (h_i ‖w_i‖)²


def dense(sizes: Sizes, name: str, seed: int) -> Tables:
    """Perplexity with all neurons and all heads: what everything is compared with."""
    return {"dense": [loss_row(subject(sizes, name, seed))]}


def active(sizes: Sizes, name: str, seed: int) -> Tables:
    """Of each block: both shares, the mean of every window, and the share of neurons that no token has used at all."""
    of, by_block, used = subject(sizes, name, seed), {}, {}

    def look(block: int, seen: Seen) -> None:
        fires = seen.hidden != 0
        shares = fires.float().mean().item(), carrying(seen.neurons.importance(seen.hidden))
        by_block.setdefault(block, []).append(shares)
        used[block] = used.get(block, False) | fires.any(0)

    look_through(of.model, of.evaluation, look)
    rows = []
    for block, shares in by_block.items():
        nonzero, carry = zip(*shares, strict=True)
        row = {"model": name, "block": block, "never": round(1 - used[block].float().mean().item(), 4)}
        rows.append(row | {"nonzero": _short(nonzero), "carrying": _short(carry), "energy": ENERGY})
    return {"active": rows}


def carrying(importance: Float[Tensor, "T F"]) -> float:
    """The least share of the neurons, the mean over tokens, that holds ENERGY of Σ importance²."""
    ordered = importance.double().square().sort(dim=1, descending=True).values.cumsum(1)
    short_of = ordered < ENERGY * ordered[:, -1:]
    return ((short_of.sum(1) + 1) / importance.shape[1]).mean().item()


def _short(shares: tuple[float, ...]) -> list[float]:
    return [round(share, 4) for share in shares]
