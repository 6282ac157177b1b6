"""The stored part of a fitted selector: its tensors by name, and the bytes of these tensors by formula.

Dimension key: L blocks, D width, F neurons, C lists, R rank.
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from course_lib.contextual.fitting.threshold import LEVELS, ThresholdSelector
from course_lib.contextual.neurons import neurons_of
from course_lib.contextual.selector import NeuronSelector
from course_lib.contextual.selectors.embedding import FromEmbedding
from course_lib.contextual.selectors.low_bit import LowBit
from course_lib.contextual.selectors.low_rank import LowRank
from course_lib.contextual.selectors.neighbours import Neighbours
from course_lib.contextual.selectors.static import Static
from course_lib.contextual.sizes import sizes_of
from course_lib.quantization.grid import Quantization
from course_lib.quantization.storage import Packed, dense_bytes, pack_codes

NUMBER, PLACE = 4, 8  # bytes of a float32, and of the list that a row belongs to


def stored_of(selector: NeuronSelector) -> dict[str, Tensor]:
    """Return all tensors in the fields of a fitted selector; low-bit copies are packed."""
    if isinstance(selector, LowBit):
        return dict(_packed(selector))
    return {
        name: tensor for each in fields(selector) for name, tensor in _tensors(each.name, getattr(selector, each.name))
    }


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _tensors(f"{name}.{index}", item)


def _packed(selector: LowBit) -> Iterator[tuple[str, Tensor]]:
    quantization = Quantization(selector.bits, selector.group)
    for block, copy in enumerate(selector.copies or ()):
        for which, weight in enumerate(copy.into):
            packed = Packed.encode(weight, quantization.grid(weight))
            parts = (*packed.planes, *pack_codes(packed.zero, packed.bits), packed.scale.half())
            yield from ((f"{block}.{which}.{index}", part) for index, part in enumerate(parts))


def bytes_by_sizes(selector: NeuronSelector, model: PreTrainedModel) -> int:
    """Compute the bytes of `stored_of` from settings and the model's sizes; other kinds of selectors declare them."""
    n_blocks, width, n_neurons = sizes_of(model)
    n_into = len(neurons_of(model)[0].into)
    match selector:
        case Static():  # the importance of each neuron
            return NUMBER * n_blocks * n_neurons
        case ThresholdSelector():
            return NUMBER * n_blocks * LEVELS
        case LowRank():  # F x R and R x D
            return NUMBER * n_blocks * n_into * min(selector.rank, width) * (n_neurons + width)
        case LowBit():
            return n_blocks * n_into * dense_bytes(n_neurons, width, selector.bits, selector.group)
        case FromEmbedding():  # a centre, and of each block a mean and a slope
            return NUMBER * (width + n_blocks * n_neurons * (1 + width))
        case Neighbours():  # centres of rows with their bias, and the list of each row
            return n_blocks * (NUMBER * min(selector.n_lists, n_neurons) * (width + 1) + PLACE * n_neurons)
    return selector.n_bytes


def products_of(selector: NeuronSelector, model: PreTrainedModel) -> int:
    """Count the multiplications per token for choosing neurons, without matrices that are computed anyway."""
    n_blocks, width, n_neurons = sizes_of(model)
    n_into = len(neurons_of(model)[0].into)
    match selector:
        case LowRank():
            return n_blocks * n_into * min(selector.rank, width) * (n_neurons + width)
        case LowBit():
            return n_blocks * n_into * n_neurons * width
        case FromEmbedding():
            return n_blocks * n_neurons * width
        case Neighbours():
            return n_blocks * min(selector.n_lists, n_neurons) * (width + 1)
    return 0
