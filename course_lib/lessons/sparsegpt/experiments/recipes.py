"""Simple ideas for the open task of lesson 03: prune half of four layers with little change on held-out text.

Dimension key: O outputs of a layer, I its inputs, N held-out windows, L layers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from course_lib.data.corpora import windows
from course_lib.lessons.common.ideas import by_idea
from course_lib.lessons.common.results import percent
from course_lib.measure.experiment import Tables
from course_lib.models import Part, blocks, linears, load_model, weight_of
from course_lib.pruning.input_statistics import input_grams
from course_lib.pruning.layerwise.cholesky import factorise
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.layerwise.solver import solve
from course_lib.pruning.methods.refit import Refit
from course_lib.pruning.methods.sparse_swaps import SparseSwaps
from course_lib.pruning.methods.sparsegpt import SparseGPT
from course_lib.sparsity.patterns import Unstructured, sparsity_of

BLOCK = 15
LAYERS = ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")  # one for each input of the block
CALIBRATION, HELD_OUT = (16, 256), (16, 256)  # windows, tokens of each
SPARSITY = 0.5
SLACK = 0.001  # of the sparsity: the count is rounded down in every block of columns

# (weight (O, I), XᵀX of the calibration text (I, I)) -> the pruned weight (O, I)
Recipe = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Layers:
    """The weights that a recipe prunes, and the Gram matrices of their inputs on both texts."""

    weights: Mapping[str, Float[Tensor, "O I"]]
    calibration: Mapping[str, Float[Tensor, "I I"]]
    held_out: tuple[Mapping[str, Float[Tensor, "I I"]], ...]  # window by window

    @cached_property
    def sizes(self) -> dict[str, Tensor]:
        """Return ‖X Wᵀ‖² of the dense layers, first on the calibration text, then on every held-out window."""
        texts = (self.calibration, *self.held_out)
        return {name: torch.stack([_size(w, text[name]) for text in texts]) for name, w in self.weights.items()}


@lru_cache(maxsize=1)
def layers(seed: int = 0) -> Layers:
    """Load the four dense layers of the default model with the Gram matrices of their inputs."""
    model, tokenizer = load_model()
    inside = linears(blocks(model)[BLOCK])

    def gram_matrices(ids: Tensor) -> dict[str, Tensor]:
        grams = input_grams(model, ids, BLOCK)
        return {name: grams[name].matrix for name in LAYERS}

    calibration = gram_matrices(windows("wikipedia", *CALIBRATION, tokenizer, split="calibration", seed=seed))
    held_out = windows("wikipedia", *HELD_OUT, tokenizer, split="evaluation", seed=seed)
    weights = {name: weight_of(inside[name]).detach().clone() for name in LAYERS}
    return Layers(weights, calibration, tuple(gram_matrices(window[None]) for window in held_out))


@dataclass(frozen=True)
class Attempt:
    """The relative error of the output: on the calibration text by layer, on held-out text by window and layer."""

    calibration: Float[Tensor, "L"]
    held_out: Float[Tensor, "N L"]

    @cached_property
    def losses(self) -> Float[Tensor, "N"]:
        """Return the mean of the logarithms over the layers, so that all layers count equally."""
        return self.held_out.log().mean(dim=1)


@torch.inference_mode()
def attempt(recipe: Recipe, on: Layers | None = None) -> Attempt:
    """Prune every layer with a recipe and measure the errors.

    Raises:
        ValueError: for a recipe that does not return a weight of the same shape, finite, and half zero.
    """
    on = on or layers()
    calibration, held_out = [], []
    for name, weight in on.weights.items():
        pruned = _checked(recipe(weight.clone(), on.calibration[name].clone()), weight, name)
        calibration.append(_size(weight - pruned, on.calibration[name]) / on.sizes[name][0])
        windows_of = [_size(weight - pruned, window[name]) for window in on.held_out]
        held_out.append(torch.stack(windows_of) / on.sizes[name][1:])
    return Attempt(torch.stack(calibration), torch.stack(held_out, dim=1))


def _size(change: Float[Tensor, "O I"], gram: Float[Tensor, "I I"]) -> Float[Tensor, ""]:
    """‖X Δᵀ‖² from XᵀX."""
    return (change @ gram).mul_(change).sum()


def _checked(pruned: object, weight: Tensor, name: str) -> Tensor:
    shape = tuple(pruned.shape) if isinstance(pruned, Tensor) else type(pruned).__name__
    if shape != tuple(weight.shape):
        raise ValueError(f"got {shape} for {name}; expected the pruned weight, of shape {tuple(weight.shape)}.")
    if not bool(pruned.isfinite().all()):
        raise ValueError(f"got NaN or infinite weights for {name}; expected finite ones. Is the damping too small?")
    if sparsity_of(pruned) < SPARSITY - SLACK:
        raise ValueError(
            f"got {percent(sparsity_of(pruned), 1)} zeros in {name}; expected at least {percent(SPARSITY)}."
        )
    return pruned


def sparsegpt_with_order(
    weight: Float[Tensor, "O I"],
    gram: Float[Tensor, "I I"],
    order: Int64[Tensor, "I"] | None = None,
    block_size: int = 128,
    damping: float = 0.01,
    sparsity: float = SPARSITY,
) -> Float[Tensor, "O I"]:
    """Run SparseGPT with the columns frozen in a given order; from left to right when None."""
    order = torch.arange(weight.shape[1]) if order is None else order
    factor = factorise(gram[order][:, order], damping)
    solution = solve(weight[:, order], factor, Unstructured(sparsity, per="layer"), block_size)
    return solution.weight[:, order.argsort()]


def largest_first(weight: Tensor, gram: Tensor) -> Tensor:
    """Freeze the largest inputs first, while most columns can still be updated. GPTQ's code calls this act-order."""
    return sparsegpt_with_order(weight, gram, gram.diagonal().argsort(descending=True))


def smallest_first(weight: Tensor, gram: Tensor) -> Tensor:
    return sparsegpt_with_order(weight, gram, gram.diagonal().argsort())


def two_passes(weight: Tensor, gram: Tensor) -> Tensor:
    return sparsegpt_with_order(sparsegpt_with_order(weight, gram, sparsity=SPARSITY / 2), gram)


def gram_of(matrix: Float[Tensor, "I I"]) -> Gram:
    """Make a Gram with these products, from as many synthetic tokens as there are inputs."""
    matrix, n = matrix.double(), len(matrix)
    rows = torch.linalg.cholesky(matrix + 1e-6 * matrix.diagonal().mean() * torch.eye(n)).T
    gram = Gram(n)
    gram.add(rows.float())
    return gram


def refitted(weight: Tensor, gram: Tensor, damping: float = 0.01) -> Tensor:
    pruner = Refit(Unstructured(SPARSITY, per="layer"), chooser=SparseGPT, damping=damping)
    return pruner.prune(weight, gram_of(gram))


def swapped(weight: Tensor, gram: Tensor) -> Tensor:
    return Refit(Unstructured(SPARSITY, per="row"), chooser=SparseSwaps).prune(weight, gram_of(gram))


USUAL = "SparseGPT as in the lesson"
IDEAS: dict[str, Recipe] = {
    USUAL: sparsegpt_with_order,
    "blocks of 32 columns": partial(sparsegpt_with_order, block_size=32),
    "one block of all columns": partial(sparsegpt_with_order, block_size=2**16),
    "damping of 0.001": partial(sparsegpt_with_order, damping=0.001),
    "damping of 0.1": partial(sparsegpt_with_order, damping=0.1),
    "largest inputs first (act-order)": largest_first,
    "smallest inputs first": smallest_first,
    "two passes, a quarter and then half": two_passes,
    "its mask, best weights": refitted,
    "its mask, best weights, damping of 0.1": partial(refitted, damping=0.1),
    "mask by swaps, best weights": swapped,
}


def stored(rows: list[dict]) -> dict[str, Attempt]:
    """Return the measured ideas from the rows of a result."""
    return {row["idea"]: Attempt(torch.tensor(row["calibration"]), torch.tensor(row["held_out"])) for row in rows}


def row(idea: str, seed: int) -> Tables:
    """Measure one idea on the four layers."""
    made = attempt(IDEAS[idea], layers(seed))
    return {"ideas": [{"idea": idea, "calibration": made.calibration.tolist(), "held_out": made.held_out.tolist()}]}


EXPERIMENT = replace(
    by_idea("Recipes for four layers", IDEAS, (USUAL, "damping of 0.1"), row),
    quick_part=Part(n_blocks=BLOCK + 1),
)
