"""The shape of a model: how many of each part it has, equal in all blocks, and how many parameters that makes."""

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
    """The shape that a model has."""
    parts, model_blocks = heads(model), blocks(model)
    return Shape(
        width=model.config.hidden_size,
        blocks=len(model_blocks),
        neurons=n_neurons(model_blocks[0]),
        heads=parts.n_query,
        groups=parts.n_key_value,
    )


def n_parameters(model: PreTrainedModel, shape: Shape) -> int:
    """Parameters that this model would have in another shape; a head that is tied to the embedding counts once."""
    return counter(model)(shape)


def counter(model: PreTrainedModel) -> Callable[[Shape], int]:
    """`n_parameters` of one model, for many shapes: its parameters are listed once."""
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
    """Parameters of a decoder without biases and norms, by part, from its sizes alone.

    Args:
        mlp_matrices: 3 for a gated MLP (gate, up, down), 2 without a gate.
        tied: whether the head is the embedding once more, so that it costs nothing.
    """
    # queries and output: heads × head size; keys and values: groups × head size
    attention = 2 * shape.width * head_size * (shape.heads + shape.groups)
    return {
        "embedding": vocabulary * shape.width,
        "attention": shape.blocks * attention,
        "mlp": shape.blocks * mlp_matrices * shape.width * shape.neurons,
        "head": 0 if tied else vocabulary * shape.width,
    }
