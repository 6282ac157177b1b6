"""Pruning and quantization in one pass (section 3.5 of the paper), compared with quantization to fewer bits."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from course_lib.lessons.common import benchmarks
from course_lib.lessons.sparsegpt.experiments import sparsegpt
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import blocks, linears, weight_of
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.quantization.gptq import RoundToNearest, gptq
from course_lib.quantization.grid import Quantization
from course_lib.quantization.storage import dense_bytes, sparse_bytes
from course_lib.sparsity.patterns import NofM

ROUNDED: dict[str, Callable[[int | None], LayerPruner]] = {
    "4 bits": lambda group: gptq(Quantization(4, group)),
    "3 bits": lambda group: gptq(Quantization(3, group)),
    "3 bits, to nearest": lambda group: RoundToNearest(quantization=Quantization(3, group)),
    "50% + 4 bits": lambda group: SparseGPT(quantization=Quantization(4, group)),
    "2:4 + 4 bits": lambda group: SparseGPT(NofM(2, 4), quantization=Quantization(4, group)),
}


@dataclass(frozen=True)
class Sizes(sparsegpt.Sizes):
    """The number of columns that share a scale; None for one scale per row."""

    groups: tuple[int | None, ...] = (None, 64)


QUICK = Sizes(benchmarks.QUICK, 3, (64,))


def steps(sizes: Sizes) -> list[Step]:
    return [
        Step(f"rounded: {name}, group {group}", partial(rounded, sizes, name, group))
        for group in sizes.groups
        for name in ROUNDED
    ]


def rounded(sizes: Sizes, name: str, group: int | None, seed: int) -> Tables:
    """Measure the perplexity and the bytes of the pruned and quantized matrices."""
    pruner = ROUNDED[name](group)
    model, tokenizer, report = sparsegpt.pruned(sizes, seed, pruner, sizes.shared.curve_calibration)
    weights = [weight_of(module) for block in blocks(model) for module in linears(block).values()]
    label = {"name": name, "group": group, "bits": pruner.quantization.bits, "sparsity": report.total_sparsity}
    label["bytes"] = sum(stored_bytes(weight, pruner.quantization, pruner.pattern.sparsity) for weight in weights)
    label["bits_a_weight"] = 8 * label["bytes"] / sum(weight.numel() for weight in weights)
    return {"rounded": [label | benchmarks.curve_perplexity(sizes.shared, model, tokenizer, seed)]}


def stored_bytes(weight: torch.Tensor, quantization: Quantization, sparsity: float) -> int:
    """Count the bytes of one matrix; a bitmap is stored only if weights were pruned."""
    rows, columns = weight.shape
    if not sparsity:
        return dense_bytes(rows, columns, quantization.bits, quantization.group)
    n_stored = rows * columns - round(rows * columns * sparsity)
    return sparse_bytes(rows, columns, n_stored, quantization.bits, quantization.group)


EXPERIMENT = Experiment("Pruning joint with rounding", Sizes(), QUICK, steps)
