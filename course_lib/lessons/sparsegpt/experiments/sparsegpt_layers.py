"""How much of the output of each layer a method changes, in the dense model, and without SparseGPT's updates.

Dimension key: O outputs of a layer, I its inputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_lib.data.corpora import windows
from course_lib.lessons.common import benchmarks
from course_lib.lessons.sparsegpt.experiments import sparsegpt
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import by_block, layers_of, linears, weight_of
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.block_inputs import first_inputs
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.refit import Refit, refit
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.report import PruneReport
from course_lib.pruning.sequential import collect_and_advance
from course_lib.sparsity.patterns import Unstructured


@dataclass
class WithoutUpdates(LayerPruner):
    """The mask of another pruner with the dense weights: the difference is what its updates are worth."""

    chooser: type[LayerPruner] = SparseGPT

    def _score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        return self.chooser(self.pattern)._score(weight, inputs)

    def _keep(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Bool[Tensor, "O I"]:
        return self.chooser(self.pattern)._keep(weight, inputs)


HALF = Unstructured(0.5, per="layer")
METHODS = {
    "magnitude": Magnitude(),
    "Wanda": Wanda(),
    "its mask, no updates": WithoutUpdates(HALF),
    "SparseGPT": SparseGPT(HALF),
    "its mask, least squares": Refit(HALF, chooser=SparseGPT),
}


def relative_error(weight: Float[Tensor, "O I"], pruned: Float[Tensor, "O I"], inputs: Gram) -> float:
    """Compute ‖X(W − Ŵ)ᵀ‖² / ‖XWᵀ‖²."""
    changed = output_change(weight, pruned, inputs.matrix)
    return (changed / output_change(weight, torch.zeros_like(weight), inputs.matrix)).item()


def output_change(
    weight: Float[Tensor, "O I"], pruned: Float[Tensor, "O I"], gram: Float[Tensor, "I I"]
) -> Float[Tensor, ""]:
    """Compute ‖X(W − Ŵ)ᵀ‖² from XᵀX, in float64, because many terms of the sum cancel."""
    change = weight.double() - pruned.double()
    return (change @ gram.double() * change).sum()


@torch.inference_mode()
def errors_in_block(
    block: nn.Module, grams: Mapping[str, Gram], methods: Mapping[str, LayerPruner], n_outputs: int | None = None
) -> dict[str, dict[str, float]]:
    """Measure the relative error of every layer of a transformer block, by layer and method.

    Args:
        grams: the statistics of the inputs, by layer.
        n_outputs: use only the first outputs of each layer; all of them when None.
    """
    weights = {name: weight_of(layer)[:n_outputs] for name, layer in linears(block).items()}
    return {
        name: {
            method: relative_error(weight, pruner.prune(weight, grams[name]), grams[name])
            for method, pruner in methods.items()
        }
        for name, weight in weights.items()
    }


@dataclass(frozen=True)
class Sizes(sparsegpt.Sizes):
    """The number of calibration windows."""

    windows: int = 8


QUICK = Sizes(benchmarks.QUICK, 1, 16)


def steps(sizes: Sizes) -> list[Step]:
    return [Step(f"layer errors: {pattern}", partial(layer_errors, sizes, pattern)) for pattern in ("50%", "2:4")]


@torch.inference_mode()
def layer_errors(sizes: Sizes, pattern: str, seed: int) -> Tables:
    """Measure the relative squared error of every layer of the dense model on the calibration set.

    All methods rank within rows. "refit" is the least-squares solution on SparseGPT's mask.
    """
    model, tokenizer = sparsegpt.load(sizes)
    ids = windows("wikipedia", sizes.windows, sizes.shared.length, tokenizer, seed=seed)
    batches, rows = first_inputs(model, ids), []
    within = Unstructured(0.5) if pattern == "50%" else sparsegpt.pattern_of("sparsegpt", pattern)
    for layers in by_block(layers_of(model)).values():
        grams = collect_and_advance(layers, batches, "matrix", PruneReport(ids.numel()))
        for layer in layers:
            weight, gram = weight_of(layer.module), grams.pop(layer.name)
            solved = SparseGPT(within).prune(weight, gram)
            solutions = {
                "magnitude": Magnitude(within).prune(weight, gram),
                "wanda": Wanda(within).prune(weight, gram),
                "sparsegpt": solved,
                "refit": refit(weight, solved != 0, gram),
            }
            label = {"pattern": pattern, "layer": layer.name}
            rows.append(
                label | {method: relative_error(weight, solution, gram) for method, solution in solutions.items()}
            )
    return {"layer_errors": rows}


EXPERIMENT = Experiment("Errors of SparseGPT layer by layer", Sizes(), QUICK, steps)
