"""The interface of structured scores: a method uses statistics of the model, and returns a score for each group."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from course_lib.models import Layer, architecture, by_block, heads, layers_of
from course_lib.pruning.checks import check_calibration
from course_lib.pruning.methods.fisher import Gradients, collect_gradients
from course_lib.pruning.structured.activations import Activations, observe
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.parts import linear_axes
from course_lib.pruning.structured.shape import Shape, shape_of


@dataclass(eq=False)
class Evidence:
    """Statistics of a model on calibration windows (N, T) of token ids; each is measured when first used."""

    model: PreTrainedModel
    windows: Int[Tensor, "N T"]
    progress: bool = True

    @cached_property
    def shape(self) -> Shape:
        return shape_of(self.model)

    @cached_property
    def layers(self) -> list[list[Layer]]:
        """The weight matrices of each block, in the order of the forward pass."""
        return list(by_block(layers_of(self.model)).values())

    @cached_property
    def activations(self) -> Activations:
        """Activation statistics from one forward pass."""
        check_calibration(self.model, self.windows)
        return observe(self.model, self.windows, self.progress)

    @cached_property
    def gradients(self) -> dict[str, Gradients]:
        """Gradients of the next-token loss, from one forward and backward pass per window."""
        check_calibration(self.model, self.windows)
        return collect_gradients(self.model, self.windows, self.progress)


class Scorer(ABC):
    """A method; it has settings but no state. High scores are kept; kinds that it does not score are None."""

    @abstractmethod
    def score(self, evidence: Evidence) -> Scores:
        """Return the scores of all groups of the model."""


def group_sums(scores: Float[Tensor, "L H"], n_groups: int) -> Float[Tensor, "L G"]:
    """Sum the query heads' scores in each key-value group; head h belongs to group h // (H / n_groups)."""
    return scores.unflatten(1, (n_groups, -1)).sum(2)


def by_group(evidence: Evidence, values: Callable[[Layer], Float[Tensor, "O I"]]) -> dict[str, Tensor]:
    """Sum a per-weight quantity over the weights of each group, separately for each of its matrices.

    Returns "neurons" (L, M, F), "heads" (L, M, H) and "groups" (L, M, G), with the M matrices of a group in the order
    of the forward pass: gate, up, down; query, output; key, value. Key-value groups do not include their query heads.
    """
    size = heads(evidence.model).size
    sums: dict[str, list[list[Tensor]]] = {"neurons": [], "heads": [], "groups": []}
    for layers in evidence.layers:
        for rows in sums.values():
            rows.append([])
        for layer in layers:
            element = values(layer)
            for dimension, axis in enumerate(linear_axes(layer.part, architecture(layer.block))):
                if axis in sums:
                    total = element.sum(1 - dimension)
                    sums[axis][-1].append(total if axis == "neurons" else total.unflatten(0, (-1, size)).sum(1))
    return {axis: torch.stack([torch.stack(row) for row in rows]) for axis, rows in sums.items() if rows[0]}
