"""Parts that are pruned together: the axis of each parameter that counts neurons, heads, key-value groups, channels.

    neuron          row of gate and up (with its bias), column of down
    query head      `head size` rows of the query projection, columns of the output projection
    key-value group rows of key and value, together with the query heads h with h // G equal to the group
    width channel   embedding, every norm, the input or output side of every linear, the LM head
    block           everything in it

Surgery, counting and scoring use the same table, so that they agree on the matrices of each part.
"""

from dataclasses import dataclass

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from course_lib.models import Architecture, architecture, blocks, final_norm, head, heads

Axes = tuple[str | None, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Parameter:
    """A parameter with the kind of part that each of its axes counts; None for an axis that is never pruned.

    Args:
        name: as in `state_dict`. block: the index of its block, None outside of the blocks.
        repeats: how many entries of each axis one part has: a head has `head size` rows.
    """

    name: str
    tensor: Tensor
    axes: Axes
    repeats: tuple[int, ...]
    block: int | None


def parameters_of(model: PreTrainedModel) -> list[Parameter]:
    """Return all parameters of a causal language model of a known family; tied parameters appear once.

    Raises:
        ValueError: for a parameter that belongs to no known part; the message names it.
    """
    model_blocks, size = blocks(model), heads(model).size
    kind = architecture(model_blocks[0])
    inside = {id(p): (i, name) for i, block in enumerate(model_blocks) for name, p in block.named_parameters()}
    outside = _outside(model)
    parameters = []
    for name, tensor in model.named_parameters():
        index, part = inside.get(id(tensor), (None, name))
        axes = outside.get(id(tensor)) if index is None else _axes(part, tensor, model_blocks[index], kind, size)
        if axes is None:
            raise ValueError(
                f"got the parameter {name} of shape {tuple(tensor.shape)}, which belongs to no part that "
                f"{kind.family} models are known to have; cutting would leave it as it is, and the model broken."
            )
        repeats = tuple(size if axis in ("heads", "groups") else 1 for axis in axes)
        parameters.append(Parameter(name=name, tensor=tensor, axes=axes, repeats=repeats, block=index))
    return parameters


def _axes(name: str, tensor: Tensor, block: nn.Module, kind: Architecture, size: int) -> Axes | None:
    """Return the axes of a block's parameter, such as "mlp.up_proj.weight"; None if the parameter is not known."""
    path, _, what = name.rpartition(".")
    if path in kind.norms:
        return ("width",)
    if path in (*kind.attention, *kind.mlp):
        out, into = linear_axes(path, kind)
        axes = (out,) if what == "bias" else (out, into)
        return axes[::-1] if isinstance(block.get_submodule(path), Conv1D) else axes
    if path.endswith(("q_norm", "k_norm")) and tensor.shape == (size,):  # shared by all heads
        return (None,)
    return None


def linear_axes(path: str, kind: Architecture) -> tuple[str | None, str | None]:
    """Return the kinds of a linear's outputs and inputs."""
    if path in kind.mlp:
        return ("width", "neurons") if path == kind.mlp[-1] else ("neurons", "width")
    if kind.fused:  # one matrix for queries, keys and values; no configuration can describe it pruned
        return ("width", None) if path == kind.attention[-1] else (None, "width")
    query, *_, output = kind.attention
    return ("width", "heads") if path == output else ("heads" if path == query else "groups", "width")


def _outside(model: PreTrainedModel) -> dict[int, Axes]:
    """Return the axes of parameters outside of the blocks, by identity: embeddings, last norm, LM head."""
    axes: dict[int, Axes] = {}
    for module in model.modules():
        if isinstance(module, nn.Embedding):  # token embedding, and position embedding if there is one
            axes[id(module.weight)] = (None, "width")
    axes |= {id(parameter): ("width",) for parameter in final_norm(model).parameters()}
    return axes | {id(parameter): (None, "width")[: parameter.ndim] for parameter in head(model).parameters()}
