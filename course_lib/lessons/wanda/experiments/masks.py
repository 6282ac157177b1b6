"""How much pruning half of the weights changes the output of each layer, by score and comparison group.

Dimension key: O outputs of a layer, I its inputs.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.data.corpora import windows
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import load_model, weight_of
from course_lib.pruning.input_statistics import grams_by_block
from course_lib.sparsity.patterns import Unstructured

# The score that chose the mask, and the comparison group: "row" is one output, "column" one input.
CHOICES = (
    ("magnitude", "layer"),
    ("magnitude", "row"),
    ("magnitude", "column"),
    ("wanda", "layer"),
    ("wanda", "row"),
    ("sparsegpt_score", "row"),
)


@dataclass(frozen=True)
class Sizes:
    """Windows for choosing masks and others for evaluating them, each of `length` tokens."""

    calibration: int = 8
    evaluation: int = 8
    length: int = 256
    sparsity: float = 0.5


def steps(sizes: Sizes) -> list[Step]:
    return [Step("masks", partial(every_layer, sizes))]


def every_layer(sizes: Sizes, seed: int) -> Tables:
    """Prune all layers of the dense model: masks from calibration text, errors on held-out text."""
    model, tokenizer = load_model()
    chosen_by, judged_by = (
        grams_by_block(model, windows("wikipedia", n, sizes.length, tokenizer, split, seed), "matrix")
        for split, n in (("calibration", sizes.calibration), ("evaluation", sizes.evaluation))
    )
    found = []
    for (layers, grams), (_, held_out) in zip(chosen_by, judged_by, strict=True):
        for layer in layers:
            seen, judge = (some[layer.name].matrix for some in (grams, held_out))
            found.append({"layer": layer.name} | of_layer(weight_of(layer.module).float(), seen, judge, sizes.sparsity))
    return {"masks": found}


def of_layer(
    weight: Float[Tensor, "O I"], seen: Float[Tensor, "I I"], judge: Float[Tensor, "I I"], sparsity: float
) -> dict[str, Any]:
    """Return the fraction of entries in which two masks agree with Wanda's, and the output errors by choice."""
    obs, wanda = removal_costs(weight, damped(seen.double()))[1], weight.abs() * seen.diagonal().sqrt()
    scores = {"magnitude": weight.abs(), "wanda": wanda, "sparsegpt_score": obs}
    keep = {(by, per): Unstructured(sparsity, per=per).keep(scores[by]) for by, per in CHOICES}
    agree = {
        by: (keep[by, "row"] == keep["wanda", "row"]).double().mean().item() for by in ("magnitude", "sparsegpt_score")
    }
    whole = squared_output(weight, judge)
    errors = {
        f"{by}, {per}": squared_output(weight * ~each, judge) / whole for (by, per), each in keep.items()
    }  # ‖X(Ŵ − W)ᵀ‖² / ‖XWᵀ‖²
    return {"agree_with_wanda": agree, "relative_error": errors}


def damped(gram: Float[Tensor, "I I"], fraction: float = 0.01) -> Float[Tensor, "I I"]:
    """Return H = XᵀX + λI, with λ a fraction of the mean diagonal, as in SparseGPT and in lesson 03."""
    return gram + fraction * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)


def removal_costs(
    weight: Float[Tensor, "O I"], hessian: Float[Tensor, "I I"]
) -> tuple[Float[Tensor, "O I"], Float[Tensor, "O I"]]:
    """Return the cost of setting W_ij to zero, with the rest of its row fixed, and with the rest updated optimally."""
    precise = hessian.double()
    inverse_diagonal = torch.cholesky_inverse(torch.linalg.cholesky(precise)).diagonal()  # [H⁻¹]_jj
    squares = weight.double() ** 2
    return (squares * precise.diagonal()).float(), (squares / inverse_diagonal).float()


def squared_output(weight: Float[Tensor, "O I"], gram: Float[Tensor, "I I"]) -> float:
    """Return ‖XWᵀ‖², from XᵀX."""
    return (weight @ gram * weight).sum().item()


EXPERIMENT = Experiment("Masks at half the weights", Sizes(), Sizes(2, 2, 64), steps)
