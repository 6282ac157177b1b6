"""The shape of a model: how many parts of each kind it has (equal in all blocks), and the resulting parameter count."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import prod

from transformers import PreTrainedModel

from course_lib.models import blocks, heads, n_neurons
from course_lib.pruning.structured.parts import Parameter, parameters_of


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a decoder: hidden width, blocks, MLP neurons, query heads and key-value heads ("groups") of a block."""

    width: int
    blocks: int
    neurons: int
    heads: int
    groups: int

    def __post_init__(self) -> None:
        for field in fields(self):
            size = getattr(self, field.name)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(f"got {field.name} {size!r}; expected a whole number of at least 1.")
        if self.heads % self.groups:
            raise ValueError(
                f"got {self.heads} query heads and {self.groups} key-value groups; expected groups of equal size. "
                f"Give {self.heads // self.groups * self.groups or self.groups} heads, or fewer groups."
            )

    def __str__(self) -> str:
        sizes = (f"{getattr(self, field.name)} {field.name}" for field in fields(self))
        return ", ".join(sizes)


def shape_of(model: PreTrainedModel) -> Shape:
    """Return the model's shape."""
    parts, model_blocks = heads(model), blocks(model)
    return Shape(
        width=model.config.hidden_size,
        blocks=len(model_blocks),
        neurons=n_neurons(model_blocks[0]),
        heads=parts.n_query,
        groups=parts.n_key_value,
    )


def n_parameters(model: PreTrainedModel, shape: Shape) -> int:
    """Count the parameters that this model would have in another shape; an LM head tied to the embedding adds none."""
    return counter(model)(shape)


def counter(model: PreTrainedModel) -> Callable[[Shape], int]:
    """Return `n_parameters` of one model as a function of the shape; the model's parameters are listed only once."""
    first = [parameter for parameter in parameters_of(model) if parameter.block in (None, 0)]

    def n_in(shape: Shape) -> int:
        return sum(_size(parameter, shape) * (shape.blocks if parameter.block == 0 else 1) for parameter in first)

    return n_in


def _size(parameter: Parameter, shape: Shape) -> int:
    sizes = zip(parameter.axes, parameter.tensor.shape, parameter.repeats, strict=True)
    return prod(size if axis is None else getattr(shape, axis) * each for axis, size, each in sizes)


def count(
    shape: Shape,
    *,
    vocabulary: int,
    head_size: int,
    mlp_matrices: int = 3,
    tied: bool = True,
) -> dict[str, int]:
    """Count the parameters of a decoder by part from its sizes alone, without biases and norms.

    Args:
        mlp_matrices: 3 for a gated MLP (gate, up, down), 2 without a gate.
        tied: whether the LM head shares the embedding's matrix, so that it adds no parameters.
    """
    # queries and output: heads × head size; keys and values: groups × head size
    attention = 2 * shape.width * head_size * (shape.heads + shape.groups)
    return {
        "embedding": vocabulary * shape.width,
        "attention": shape.blocks * attention,
        "mlp": shape.blocks * mlp_matrices * shape.width * shape.neurons,
        "head": 0 if tied else vocabulary * shape.width,
    }
