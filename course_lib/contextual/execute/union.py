"""Several tokens in parallel: each neuron that any of them chose is read, so larger batches skip fewer neurons.

Dimension key: B tokens that are decoded together, D width, F neurons.
"""

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import linear

from course_lib.contextual.execute.neuron_major import NeuronMajor


def gathered_union(
    x: Float[Tensor, "B D"], weights: NeuronMajor, keep: Bool[Tensor, "tokens F"]
) -> Float[Tensor, "B D"]:
    """Compute each token with its own neurons: gather rows of the union once, and set what a token did not choose to 0.

    Raises:
        ValueError: the shape of `keep` does not fit.
    """
    if keep.shape != (len(x), weights.n):
        raise ValueError(f"got keep {tuple(keep.shape)}; expected (tokens, neurons) = {(len(x), weights.n)}.")
    index = keep.any(dim=0).nonzero()[:, 0]

    def of(rows: Tensor, bias: Tensor | None) -> Tensor:
        return linear(x, weights.room.rows(rows, index), None if bias is None else bias[index])

    inner = of(weights.up, weights.up_bias)
    hidden = weights.act(inner) if weights.gate is None else weights.act(of(weights.gate, weights.gate_bias)) * inner
    hidden = hidden * keep[:, index]
    return weights.moved(hidden @ weights.room.rows(weights.down, index))


def union_share(keep: Bool[Tensor, "T F"], batch: int) -> float:
    """Return the mean fraction of neurons that at least one token of a batch keeps; a batch is consecutive tokens.

    Raises:
        ValueError: `batch` is not a positive integer, or is larger than the number of tokens.
    """
    n_groups = len(keep) // batch if batch >= 1 else 0
    if n_groups < 1:
        raise ValueError(f"got a batch of {batch} and {len(keep)} tokens; expected 1 to {len(keep)}.")
    groups = keep[: n_groups * batch].view(n_groups, batch, -1)
    return groups.any(dim=1).float().mean().item()
