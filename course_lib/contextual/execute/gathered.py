"""Four ways to compute the MLP of one token with only the chosen neurons; they differ in what they copy.

A gathered row is read, written to a copy and read again: three times the memory traffic of a dense row (appendix K of
Deja Vu, which fuses gather and product for this reason). If the copy stays in the cache, RAM sees only the first read
(room.py). `embedding_bag` and `sampled_addmm` multiply while they read. `break_even.fastest` finds the fastest way.

Dimension key: D width, F neurons, K chosen neurons.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.contextual.execute.neuron_major import NeuronMajor
from course_lib.contextual.execute.products import product


def dense(x: Float[Tensor, "D"], weights: NeuronMajor) -> Float[Tensor, "D"]:
    """Compute all neurons, without an index."""
    return weights.moved(torch.mv(weights.down.T, weights.values(x)))


def by_rows(x: Float[Tensor, "D"], weights: NeuronMajor, index: Int[Tensor, "K"]) -> Float[Tensor, "D"]:
    """Gather rows of each matrix with `index_select`, then multiply by vectors."""
    hidden = weights.values(x, index)
    return weights.moved(torch.mv(weights.room.rows(weights.down, index).T, hidden))


def by_bundle(x: Float[Tensor, "D"], weights: NeuronMajor, index: Int[Tensor, "K"]) -> Float[Tensor, "D"]:
    """Gather all weights of the chosen neurons with one `index_select`."""
    *gate, up, down = weights.room.rows(weights.bundle, index).unbind(1)
    inner = product(up, x, weights.up_bias, index)
    hidden = weights.act(product(gate[0], x, weights.gate_bias, index)) * inner if gate else weights.act(inner)
    return weights.moved(torch.mv(down.T, hidden))


def by_bag(x: Float[Tensor, "D"], weights: NeuronMajor, index: Int[Tensor, "K"]) -> Float[Tensor, "D"]:
    """Gather rows of gate and up with `index_select`; sum the rows of down while they are read."""
    return weights.moved(weights.bag(weights.values(x, index), index))


def by_samples(x: Float[Tensor, "D"], weights: NeuronMajor, index: Int[Tensor, "K"]) -> Float[Tensor, "D"]:
    """Use `sampled_addmm` for gate and up; sum the rows of down while they are read. Nothing is copied."""
    return weights.moved(weights.bag(weights.sampled_values(x, index), index))


def gate_first(x: Float[Tensor, "D"], weights: NeuronMajor, n_kept: int) -> Float[Tensor, "D"]:
    """CATS with a fixed number of neurons: compute the whole gate to choose them, then gather up and down.

    Raises:
        ValueError: the MLP has no gate.
    """
    if weights.gate is None:
        raise ValueError("got an MLP without a gate; expected one with gate, up and down. Use by_bag.")
    gated = weights.act(product(weights.gate, x, weights.gate_bias))
    index = gated.abs().topk(n_kept, sorted=False).indices
    inner = product(weights.room.rows(weights.up, index), x, weights.up_bias, index)
    return weights.moved(weights.bag(gated.index_select(0, index) * inner, index))
