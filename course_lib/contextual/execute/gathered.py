"""The MLP of one token with chosen neurons alone, in four ways that differ in what is copied.

A gathered row is read, written to a copy and read again: three times the traffic of a dense row (appendix K of Deja Vu,
which fuses gather and product for that reason); a copy that stays in the cache spares RAM two of them (room.py).
`embedding_bag` and `sampled_addmm` multiply as they read. Which way is the fastest is for `break_even.fastest` to find.

Dimension key: D width, F neurons, K chosen neurons.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.contextual.execute.neuron_major import NeuronMajor
from course_lib.contextual.execute.products import product


def dense(x: Float[Tensor, "D"], weights: NeuronMajor) -> Float[Tensor, "D"]:
    """All neurons, without an index."""
    return weights.moved(torch.mv(weights.down.T, weights.values(x)))


def by_rows(x: Float[Tensor, "D"], weights: NeuronMajor, index: Int[Tensor, "K"]) -> Float[Tensor, "D"]:
    """`index_select` of each matrix, then products with vectors."""
    hidden = weights.values(x, index)
    return weights.moved(torch.mv(weights.room.rows(weights.down, index).T, hidden))


def by_bundle(x: Float[Tensor, "D"], weights: NeuronMajor, index: Int[Tensor, "K"]) -> Float[Tensor, "D"]:
    """One `index_select` of all that belongs to the chosen neurons."""
    *gate, up, down = weights.room.rows(weights.bundle, index).unbind(1)
    inner = product(up, x, weights.up_bias, index)
    hidden = weights.act(product(gate[0], x, weights.gate_bias, index)) * inner if gate else weights.act(inner)
    return weights.moved(torch.mv(down.T, hidden))


def by_bag(x: Float[Tensor, "D"], weights: NeuronMajor, index: Int[Tensor, "K"]) -> Float[Tensor, "D"]:
    """`index_select` of gate and up; down is summed while it is read."""
    return weights.moved(weights.bag(weights.values(x, index), index))


def by_samples(x: Float[Tensor, "D"], weights: NeuronMajor, index: Int[Tensor, "K"]) -> Float[Tensor, "D"]:
    """`sampled_addmm` of gate and up; down is summed while it is read. Nothing is copied."""
    return weights.moved(weights.bag(weights.sampled_values(x, index), index))


def gate_first(x: Float[Tensor, "D"], weights: NeuronMajor, n_kept: int) -> Float[Tensor, "D"]:
    """CATS with an exact number of neurons: the whole gate says which they are, up and down are gathered.

    Raises:
        ValueError: for an MLP without a gate.
    """
    if weights.gate is None:
        raise ValueError("got an MLP without a gate; expected one with gate, up and down. Use by_bag.")
    gated = weights.act(product(weights.gate, x, weights.gate_bias))
    index = gated.abs().topk(n_kept, sorted=False).indices
    inner = product(weights.room.rows(weights.up, index), x, weights.up_bias, index)
    return weights.moved(weights.bag(gated.index_select(0, index) * inner, index))
