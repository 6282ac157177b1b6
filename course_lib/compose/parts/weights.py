"""Weights: pruned, then rounded. We measure the model that is decoded from the bytes.

The order is fixed: pruning comes first, because rounding compensates its error and keeps zeros; pruning after rounding
would undo the compensation. SparseGPT does both in one sweep (section 3.5 of its paper).

Dimension key: O outputs of a layer, I its inputs.
"""

import copy
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.compose.choices import ALLOCATIONS, METHODS, ROUNDINGS, SPARSEST, check_grid, grid_in_words, pattern_of
from course_lib.compose.fields import chosen, exact_percent, within
from course_lib.compose.part import Ground, Making, Part
from course_lib.models import layers_of, weight_of
from course_lib.prompts.compressed.kinds import Layerwise
from course_lib.prompts.compressed.layouts import Grouped, Layout, NonZeroCodes, NonZeros
from course_lib.pruning.allocation.base import Allocation, Uniform
from course_lib.pruning.allocation.by_block import ByBlock
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.checks import PruningError
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.sequential import prune_model
from course_lib.quantization.gptq import gptq
from course_lib.quantization.grid import Quantization
from course_lib.quantization.storage import dense_bytes, sparse_bytes
from course_lib.sparsity.patterns import NofM
from course_lib.sparsity.sizes import bitmap_bytes, nofm_bytes

USUAL_PATTERN = 0.5
ROUNDED = {"gptq": "by GPTQ to", "nearest": "to the nearest values of"}


@dataclass(frozen=True, kw_only=True)
class Weights(Part):
    """The linear layers of the blocks. By default nothing is pruned or rounded.

    Args:
        method: a class of course_lib/pruning/methods; none for rounding alone.
        pattern: a sparsity in the method's usual pattern, or "n:m" with n kept.
        allocation: a class of course_lib/pruning/allocation. by_block: the sparsity of each block instead.
        bits: bits per code; default: 16. group: columns that share a scale; default: whole rows.
        rounding: "gptq" or "nearest".
    """

    method: str | None = None
    pattern: float | str = USUAL_PATTERN
    allocation: str = "Uniform"
    by_block: tuple[float, ...] = ()
    bits: int | None = None
    group: int | None = None
    rounding: str = "gptq"

    name: ClassVar[str] = "weights"
    place: ClassVar[int] = 1
    replaces: ClassVar[str] = "dense"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method is None and self.bits is None:
            raise ValueError("got neither a method nor bits; expected one of them, or leave the weights out.")
        check_grid(self.bits, self.group)
        chosen(self.rounding, ROUNDINGS, "rounding")
        chosen(self.allocation, ALLOCATIONS, "allocation")
        if self.by_block and self.allocation != "Uniform":
            raise ValueError("got by_block and an allocation; expected one of them: each sets all sparsities.")
        for share in self.by_block:
            within("by_block", share, 0.0, SPARSEST)
        self._refuse_what_does_nothing()
        if self.method is not None:
            self.shares.check(self.pruner.pattern)

    def _refuse_what_does_nothing(self) -> None:
        """Refuse settings without an effect, since the author of the recipe expects one."""
        if self.method is None and (self.pattern != USUAL_PATTERN or self.by_block or self.allocation != "Uniform"):
            raise ValueError("got settings for pruning without a method; expected a method, or only bits and group.")
        if self.by_block and self.pattern != USUAL_PATTERN:
            raise ValueError(
                f"got pattern = {self.pattern!r} and by_block; expected only one: by_block sets every sparsity."
            )
        if self.bits is None and (self.group is not None or self.rounding != "gptq"):
            raise ValueError("got settings for rounding without bits; expected bits, or only pruning.")
        if self.is_joint and self.rounding != "gptq":
            raise ValueError(
                f"got rounding = {self.rounding!r}; expected none, since {self.method} rounds as it prunes."
            )

    @property
    def pruner(self) -> LayerPruner | None:
        """Return the pruner, with the same settings as in the lesson on the method."""
        if self.method is None:
            return None
        kind = chosen(self.method, METHODS, "method")
        pattern = pattern_of(self.pattern, kind().pattern)
        return kind(pattern, quantization=self.quantization) if self.is_joint else kind(pattern)

    @property
    def shares(self) -> Allocation:
        """The allocation over blocks."""
        return ByBlock(self.by_block) if self.by_block else ALLOCATIONS[self.allocation]()

    @property
    def quantization(self) -> Quantization | None:
        return None if self.bits is None else Quantization(self.bits, self.group)

    @property
    def is_joint(self) -> bool:
        """Whether pruning and rounding are one sweep."""
        return self.method == SparseGPT.__name__ and self.bits is not None

    @property
    def layout(self) -> Layout:
        """Choose how a matrix is stored, as in the compressed models of lesson 10."""
        if self.pruner is None:
            return Layerwise(gptq(self.quantization)).layout
        if self.quantization is not None:
            return NonZeroCodes(self.quantization)
        pattern = self.pruner.pattern
        return Grouped(pattern.n, pattern.m) if isinstance(pattern, NofM) and pattern.m <= 4 else NonZeros()

    def apply(self, making: Making, ground: Ground) -> Making:
        model, dense = copy.deepcopy(making.model), _linears(making.model)
        if self.pruner is not None:
            _run(model, self.pruner, ground, self.shares)
        # Of what rounding read the grids were fixed, and with those grids it is stored.
        sources = dense if self.pruner is None or self.is_joint else _linears(model)
        if self.quantization is not None and not self.is_joint:
            _run(model, ROUNDINGS[self.rounding](self.quantization), ground)
        stored = {name: part for name, part in making.stored.items() if not name.startswith("dense/blocks.")}
        for layer in layers_of(model):
            weight = weight_of(layer.module)
            parts = self.layout.encode(weight, sources[layer.name])
            with torch.no_grad():
                weight.copy_(self.layout.decode(parts, tuple(weight.shape)))
            stored |= {f"{self.name}/{layer.name}/{part}": tensor for part, tensor in parts.items()}
        return replace(making, model=model, stored=stored)

    def n_bytes(self, making: Making) -> int:
        return sum(self._layer_bytes(weight_of(layer.module)) for layer in layers_of(making.model))

    def _layer_bytes(self, weight: Float[Tensor, "O I"]) -> int:
        """Compute the bytes of a layer from the formulas of the formats, its shape and its number of non-zeros."""
        shape = tuple(weight.shape)
        if self.pruner is None:
            return dense_bytes(*shape, self.bits, self.group)
        n_stored = int(torch.count_nonzero(weight))
        if self.bits is not None:
            return sparse_bytes(*shape, n_stored, self.bits, self.group)
        if isinstance(self.layout, Grouped):
            return nofm_bytes(*shape, 2, self.layout.n, self.layout.m)
        return bitmap_bytes(*shape, n_stored, 2)

    def in_words(self) -> str:
        done = [self._pruned_in_words()] if self.method is not None else []
        if self.bits is not None:
            how = "in the same sweep to" if self.is_joint else ROUNDED[self.rounding]
            done.append(f"rounded {how} {grid_in_words(self.bits, self.group)}")
        return f"The weights of the blocks are {' and '.join(done)}."

    def _pruned_in_words(self) -> str:
        share = f"{self.pattern} kept" if isinstance(self.pattern, str) else f"{exact_percent(self.pattern)} removed"
        shares = "" if self.allocation == Uniform.__name__ else f", divided by {self.allocation}"
        if self.by_block:
            low, high = min(self.by_block), max(self.by_block)
            share = f"{exact_percent(low)}{f' to {exact_percent(high)}' if low < high else ''} removed"
            shares = ", a different fraction in each block" if low < high else ""
        return f"pruned by {self.method} ({share}{shares})"


def _linears(model: PreTrainedModel) -> dict[str, Float[Tensor, "O I"]]:
    """Copy the matrices of all blocks."""
    return {layer.name: weight_of(layer.module).clone() for layer in layers_of(model)}


def _run(model: PreTrainedModel, pruner: LayerPruner, ground: Ground, shares: Allocation | None = None) -> None:
    try:
        prune_model(model, pruner, ground.calibration, ground.progress, shares or Uniform())
    except PruningError as error:
        raise ValueError(f"weights: {error}") from error
