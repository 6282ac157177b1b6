"""Look at SparseGPT while it works: the matrix between two columns, and what one layer loses under several methods.

Dimension key: O outputs of a layer, I its inputs.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_lib.models import linears, weight_of
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.layerwise.gram import Gram
from course_lib.pruning.layerwise.solver import Solution
from course_lib.pruning.methods.sparsegpt import SparseGPT


def settled_until(weight: Float[Tensor, "O I"], solution: Solution, column: int) -> Float[Tensor, "O I"]:
    """The matrix when the columns left of `column` are settled and have sent their errors to the right.

    W − Σ_{i < column} e_i · U_i / U_ii: row i of U over its diagonal entry is 1 at column i, so that column i itself
    comes down to what it is settled at.
    """
    scaled = solution.errors[:column] / solution.factor.diagonal[:column, None]
    now = weight.float() - scaled.T @ solution.factor.upper[:column]
    now[:, :column] *= solution.keep[:, :column]  # zero, and not nearly so
    return now


def settled_to(
    weight: Float[Tensor, "O I"], values: Float[Tensor, "O"], upper: Float[Tensor, "I I"], j: int
) -> Float[Tensor, "O I"]:
    """Column j takes these values, whatever they are, and those right of it make up for it: one step of the sweep."""
    # w_k − (w_j − v) U_jk / U_jj for k ≥ j; at k = j itself that is v
    spread = (upper[j, j:] / upper[j, j])[None]
    behind = weight[:, j:].addmm((weight[:, j] - values)[:, None], spread, alpha=-1)
    return torch.cat([weight[:, :j], behind], dim=1).index_copy(1, torch.tensor([j]), values[:, None].to(weight.dtype))


def first_inputs_of(gram: Gram, n: int) -> Gram:
    """The Gram of the first n inputs alone."""
    return gram_of(gram.matrix[:n, :n])


def gram_of(matrix: Float[Tensor, "I I"]) -> Gram:
    """A Gram with these products, from as many made-up tokens as there are inputs."""
    matrix, n = matrix.double(), len(matrix)
    rows = torch.linalg.cholesky(matrix + 1e-6 * matrix.diagonal().mean() * torch.eye(n)).T
    made_up = Gram(n)
    made_up.add(rows.float())
    return made_up


@dataclass
class WithoutUpdates(LayerPruner):
    """The mask of another pruner, and the weights as they were: what its updates are worth is the difference."""

    chooser: type[LayerPruner] = SparseGPT

    def _score(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Float[Tensor, "O I"]:
        return self.chooser(self.pattern)._score(weight, inputs)

    def _keep(self, weight: Float[Tensor, "O I"], inputs: Gram) -> Bool[Tensor, "O I"]:
        return self.chooser(self.pattern)._keep(weight, inputs)


def relative_error(weight: Float[Tensor, "O I"], pruned: Float[Tensor, "O I"], inputs: Gram) -> float:
    """‖X(W − Ŵ)ᵀ‖² / ‖XWᵀ‖²: the share of the layer's output, squared, that pruning changes."""
    changed = output_change(weight, pruned, inputs.matrix)
    return (changed / output_change(weight, torch.zeros_like(weight), inputs.matrix)).item()


def output_change(
    weight: Float[Tensor, "O I"], pruned: Float[Tensor, "O I"], gram: Float[Tensor, "I I"]
) -> Float[Tensor, ""]:
    """‖X(W − Ŵ)ᵀ‖² from XᵀX alone, in float64: sums over all of a layer's entries, of which many cancel."""
    change = weight.double() - pruned.double()
    return (change @ gram.double() * change).sum()


@torch.inference_mode()
def errors_in_block(
    block: nn.Module, grams: Mapping[str, Gram], methods: Mapping[str, LayerPruner], n_outputs: int | None = None
) -> dict[str, dict[str, float]]:
    """The relative error of every layer of a block, by layer and method, on the inputs that `grams` are of.

    `n_outputs`: only the first outputs of each layer, as a smaller layer; all of them when None.
    """
    weights = {name: weight_of(layer)[:n_outputs] for name, layer in linears(block).items()}
    return {
        name: {
            method: relative_error(weight, pruner.prune(weight, grams[name]), grams[name])
            for method, pruner in methods.items()
        }
        for name, weight in weights.items()
    }


def race_of_block_sizes(
    weight: Float[Tensor, "O I"], inputs: Gram, sizes: tuple[int, ...], rounds: int = 3
) -> tuple[dict[int, float], dict[int, float]]:
    """Seconds (the shortest of some rounds, in turns) and relative error of SparseGPT by block size."""
    inputs.factor(SparseGPT().damping)  # shared by all, so not part of the race
    seconds, errors = dict.fromkeys(sizes, float("inf")), {}
    for _ in range(rounds):
        for size in sizes:
            start = time.perf_counter()
            pruned = SparseGPT(block_size=size).prune(weight, inputs)
            seconds[size] = min(seconds[size], time.perf_counter() - start)
            errors[size] = relative_error(weight, pruned, inputs)
    return seconds, errors
