"""The size of a model's weights in each format, and the sparsity of its linear layers."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.models import blocks, linears, weight_of
from course_lib.sparsity.formats import BlockSparse
from course_lib.sparsity.sizes import bitmap_bytes, csr_bytes, dense_bytes, nofm_bytes

FORMATS = ("dense", "csr", "bitmap", "2:4", "block")
N_OF_M = ((1, 4), (2, 4), (4, 8))


def weight_bytes(model: PreTrainedModel, format: str = "dense") -> int:
    """Compute the bytes of all weights, with the linear layers of the blocks in one format and everything else dense.

    A tied LM head counts once. Formats: "dense", "csr", "bitmap", "2:4" and "block" (16 × 16).

    Raises:
        ValueError: an unknown format, or weights that do not fit it.
    """
    if format not in FORMATS:
        raise ValueError(f"got format {format!r}; expected one of {', '.join(FORMATS)}.")
    modules = [module for block in blocks(model) for module in linears(block).values()]
    encoded = sum(_bytes(weight_of(module), format) for module in modules)
    in_format = {id(module.weight) for module in modules}
    return encoded + sum(p.numel() * p.element_size() for p in model.parameters() if id(p) not in in_format)


def _bytes(weight: Tensor, format: str) -> int:
    rows, columns, value_bytes = *weight.shape, weight.element_size()
    if format == "dense":
        return dense_bytes(rows, columns, value_bytes)
    if format == "block":
        return BlockSparse.encode(weight).n_bytes
    n_stored = int(torch.count_nonzero(weight))
    if format == "csr":
        return csr_bytes(rows, n_stored, value_bytes)
    if format == "bitmap":
        return bitmap_bytes(rows, columns, n_stored, value_bytes)
    if not _obeys(weight != 0, n_stored, 2, 4):
        raise ValueError(
            f"got a {rows} × {columns} layer with more than 2 non-zeros in some 4 consecutive inputs; "
            "expected 2:4. Prune with NofM(2, 4) first, or ask for 'bitmap'."
        )
    return nofm_bytes(rows, columns, value_bytes)


@dataclass(frozen=True)
class LayerSparsity:
    """The sparsity of one layer; `fits` lists the N:M patterns (N kept) that its weights satisfy."""

    n_weights: int
    n_zero: int
    fits: tuple[str, ...]

    @property
    def sparsity(self) -> float:
        return self.n_zero / self.n_weights


@dataclass(frozen=True)
class SparsityReport:
    """The sparsity of each linear layer of the blocks by name, such as "blocks.3.mlp.up_proj"."""

    layers: dict[str, LayerSparsity]

    @property
    def sparsity(self) -> float:
        """The sparsity over all linear layers of the blocks; embeddings, norms and LM head do not count."""
        return sum(x.n_zero for x in self.layers.values()) / sum(x.n_weights for x in self.layers.values())


def sparsity_report(model: PreTrainedModel) -> SparsityReport:
    """Count the weights of each linear layer that are exactly zero, and find the N:M patterns that they satisfy."""
    return SparsityReport(
        {
            f"blocks.{index}.{name}": _layer(weight_of(module))
            for index, block in enumerate(blocks(model))
            for name, module in linears(block).items()
        }
    )


def _layer(weight: Tensor) -> LayerSparsity:
    stored = weight != 0
    n_stored = int(torch.count_nonzero(stored))
    fits = tuple(f"{n}:{m}" for n, m in N_OF_M if _obeys(stored, n_stored, n, m))
    return LayerSparsity(weight.numel(), weight.numel() - n_stored, fits)


def _obeys(stored: Tensor, n_stored: int, n: int, m: int) -> bool:
    if stored.shape[1] % m or n_stored * m > n * stored.numel():  # too many in all: no need to look at the groups
        return False
    return bool((stored.unflatten(1, (-1, m)).sum(2) <= n).all())
