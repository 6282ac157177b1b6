"""How much of a layer's output each method changes, for every layer of the dense model."""

from dataclasses import dataclass
from functools import partial

import torch

from course_lib.data.corpora import windows
from course_lib.lessons.common import benchmarks
from course_lib.lessons.sparsegpt import experiment
from course_lib.lessons.sparsegpt.measure import relative_error
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import by_block, layers_of, weight_of
from course_lib.pruning.block_inputs import first_inputs
from course_lib.pruning.methods.magnitude import Magnitude
from course_lib.pruning.methods.refit import refit
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.pruning.methods.wanda import Wanda
from course_lib.pruning.report import PruneReport
from course_lib.pruning.sequential import collect_and_advance
from course_lib.sparsity.patterns import Unstructured


@dataclass(frozen=True)
class Sizes(experiment.Sizes):
    """Calibration windows, of the usual length."""

    windows: int = 8


QUICK = Sizes(benchmarks.QUICK, 1, 16)


def steps(sizes: Sizes) -> list[Step]:
    return [Step(f"layer errors: {pattern}", partial(layer_errors, sizes, pattern)) for pattern in ("50%", "2:4")]


@torch.inference_mode()
def layer_errors(sizes: Sizes, pattern: str, seed: int) -> Tables:
    """Relative squared error of every layer of the dense model, on the inputs that it is calibrated with.

    All within rows, so that the methods have the same freedom; "refit" has the best weights on SparseGPT's mask.
    """
    model, tokenizer = experiment.load(sizes)
    ids = windows("wikipedia", sizes.windows, sizes.shared.length, tokenizer, seed=seed)
    batches, rows = first_inputs(model, ids), []
    within = Unstructured(0.5) if pattern == "50%" else experiment.pattern_of("sparsegpt", pattern)
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
