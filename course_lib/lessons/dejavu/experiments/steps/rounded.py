"""Does choosing neurons go together with rounding? The weights on fewer bits, all neurons and half of them.

4 bits share a scale over a whole row, and 3 bits over 32 weights. The default model's weights were rounded to 4 bits
once, on grids that these do not meet: rounding them again loses what rounding weights without a grid would (lesson 03).
"""

from copy import deepcopy
from functools import lru_cache

import torch
from transformers import PreTrainedModel

from course_lib.contextual.selectors.oracle import Oracle
from course_lib.lessons.dejavu.experiments.steps.ground import Subject, loss_row, selected_row, subject
from course_lib.lessons.dejavu.experiments.steps.sizes import Sizes
from course_lib.measure.experiment import Tables
from course_lib.models import layers_of, weight_of
from course_lib.quantization.grid import Quantization

GRIDS = {"4 bits a row": Quantization(4), "3 bits in groups of 32": Quantization(3, 32)}


def rounded(sizes: Sizes, name: str, grid: str, density: float, seed: int) -> Tables:
    """Perplexity with rounded weights, all neurons kept (density 1) or a share of them by the oracle."""
    of = on_grid(sizes, name, grid, seed)
    row = loss_row(of) | {"density": 1.0} if density == 1 else selected_row(of, Oracle(), density)
    return {"rounded": [row | {"grid": grid}]}


@lru_cache(maxsize=1)
def on_grid(sizes: Sizes, name: str, grid: str, seed: int) -> Subject:
    """A copy of the model whose blocks are rounded to the nearest value."""
    of = subject(sizes, name, seed)
    return Subject(name, _rounded(of.model, GRIDS[grid]), of.calibration, of.evaluation)


@torch.no_grad()
def _rounded(model: PreTrainedModel, quantization: Quantization) -> PreTrainedModel:
    copy = deepcopy(model)
    for layer in layers_of(copy):
        weight = weight_of(layer.module)
        weight.copy_(quantization.grid(weight).round(weight))
    return copy
