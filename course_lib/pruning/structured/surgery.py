"""Structured pruning by tensor surgery: copy the kept parts into a new, smaller model of the same class.

The new model loads with standard tools. The old one is unchanged.

RMSNorm computes x / √(S/d + ε) · w, with S = Σ x² over d channels and weight w. Suppose we prune d − d′ channels that
are zero. Then S is unchanged, and the output of the remaining channels should be unchanged as well:

    x / √(S/d′ + ε′) · w′ = x / √(S/d + ε) · w    for    w′ = w √(d/d′),  ε′ = ε d/d′.

The configuration has one ε for all norms. Some models (Qwen3) also normalise queries and keys per head. These norms get
ε′ although the head size is unchanged. Multiplying the query and key projections by √(d/d′) restores their output: for
x′ = x √(d/d′), x′ / √(mean(x′²) + ε′) = x / √(mean(x²) + ε).
"""

import copy
from functools import lru_cache
from math import lcm

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from course_lib.models import architecture, blocks, final_norm, heads
from course_lib.pruning.structured.choice import Kept, Scores, choose
from course_lib.pruning.structured.parts import Parameter, parameters_of
from course_lib.pruning.structured.shape import Shape, shape_of


def cut(model: PreTrainedModel, target: Shape, scores: Scores, rescale: bool = True) -> PreTrainedModel:
    """Prune a copy of the model to the target's shape, keeping the parts with the highest scores.

    Args:
        rescale: when the width shrinks, adapt the norms to the smaller number of channels.

    Raises:
        ValueError: for scores that do not fit, or a shape that this model family does not support.
    """
    return take(model, choose(scores, shape_of(model), target), rescale)


def take(model: PreTrainedModel, kept: Kept, rescale: bool = True) -> PreTrainedModel:
    """Build a model of the same class from the kept parts, in evaluation mode and with the same generation settings.

    Raises:
        ValueError: when this family's configuration cannot describe the smaller shape, or for a model without weights.
    """
    if model.device.type == "meta":
        raise ValueError("got a model on the meta device, which has no weights; load it onto the CPU or a GPU.")
    full, target = shape_of(model), kept.shape
    check_family(model, full, target)
    rescale = rescale and full.width != target.width
    config = _config(model, kept, rescale)
    with torch.device("meta"):  # allocates no memory and skips the random initialisation
        smaller = type(model)(config)
    values = {_renamed(p, kept): cut_parameter(p, kept) for p in parameters_of(model) if _stays(p, kept)}
    if rescale:
        factor, _ = narrowed(full.width, target.width)  # √(d / d′)
        values |= {name: values[name] * factor for name in (*_norm_weights(smaller), *_normed_projections(smaller))}
    buffers = dict(model.named_buffers())  # such as RoPE frequencies, which do not depend on the shape
    _fill(smaller, values | {name: buffers[name].clone() for name, _ in smaller.named_buffers()})
    smaller.generation_config = copy.deepcopy(model.generation_config)
    return smaller.to(model.device).eval()


def narrowed(before: int, after: int) -> tuple[float, float]:
    """Return the factors √(d/d′) on an RMSNorm's weight and d/d′ on its ε, for d = `before` and d′ = `after` channels.

    With them the norm's output is unchanged if the pruned channels were zero.
    """
    # x w / √(S / d + ε) = x (w √(d / d′)) / √(S / d′ + ε d / d′), S the sum of squares
    return (before / after) ** 0.5, before / after


def _fill(model: PreTrainedModel, values: dict[str, Tensor]) -> None:
    """Replace the parameters and buffers of a model on the meta device with values. Tied parameters stay tied."""
    filled: dict[int, Tensor] = {}
    for prefix, module in model.named_modules():
        for kind in (module._parameters, module._buffers):
            for name, empty in kind.items():
                if empty is not None and id(empty) not in filled:
                    value = values.pop(f"{prefix}.{name}".removeprefix("."))
                    filled[id(empty)] = nn.Parameter(value) if isinstance(empty, nn.Parameter) else value
                kind[name] = None if empty is None else filled[id(empty)]
    assert not values, f"nothing takes {', '.join(values)}"


def check_family(model: PreTrainedModel, before: Shape, after: Shape) -> None:
    """Raise ValueError, with the reason, for a shape that the model family's configuration cannot describe."""
    kind, name = architecture(blocks(model)[0]), type(model).__name__
    has_fixed_heads = not (kind.head_size_key and _has_free_head_size(type(model)))
    if (before.heads, before.groups) != (after.heads, after.groups) and has_fixed_heads:
        raise ValueError(
            f"got {after.heads} heads and {after.groups} groups for a {name}, in which a head is always width / heads "
            f"wide: keep all {before.heads} heads. Prune neurons or blocks instead."
        )
    if before.width != after.width and isinstance(final_norm(model), nn.LayerNorm):
        raise ValueError(
            f"got width {after.width} for a {name}, whose LayerNorm subtracts the mean over the width: no factor "
            f"compensates for pruned channels. Keep {before.width}; prune neurons or blocks instead."
        )
    if before.width != after.width and not _scales_by_weight(final_norm(model)):
        raise ValueError(
            f"got width {after.width} for a {name}, whose norm does not multiply by its weight as RMSNorm does: the "
            f"factor for pruned channels is not known. Keep {before.width}; prune neurons or blocks instead."
        )
    if before.width != after.width and not hasattr(model.config, "rms_norm_eps"):
        raise ValueError(
            f"got width {after.width} for a {name}, whose configuration has no rms_norm_eps, so the ε of its norms "
            f"cannot be adapted. Keep {before.width}; prune neurons, heads or blocks instead."
        )
    if after.width % after.heads and not _takes_any_heads(model.config, after):
        step = lcm(after.heads, 4)  # rows of a whole number of 16 bytes in float32
        low = after.width // step * step
        offers = [size for size in (low, low + step) if 0 < size < before.width] or [before.width]
        raise ValueError(
            f"got width {after.width} with {after.heads} heads; {type(model.config).__name__} requires a width "
            f"that is a multiple of the heads, though a head's size is given. Use {' or '.join(map(str, offers))}."
        )


@lru_cache
def _has_free_head_size(family: type[PreTrainedModel]) -> bool:
    """Whether the configuration sets the head size. StableLM, for example, divides the width by the number of heads."""
    sizes = {"hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    with torch.device("meta"):
        model = family(family.config_class(num_hidden_layers=1, intermediate_size=8, **sizes))
    (block,) = blocks(model)
    return block.get_submodule(architecture(block).attention[0]).out_features == 4 * 8


def _takes_any_heads(config: PreTrainedConfig, after: Shape) -> bool:
    """Whether this configuration class accepts a width that the heads do not divide. Llama's does not."""
    candidate = copy.copy(config)
    candidate.hidden_size, candidate.num_attention_heads = after.width, after.heads
    try:
        getattr(candidate, "validate_architecture", lambda: None)()
    except ValueError:
        return False
    return True


@torch.no_grad()
def _scales_by_weight(norm: nn.Module) -> bool:
    """Whether the norm maps a vector of ones to its weight, as RMSNorm does.

    Gemma's norm, in contrast, multiplies by 1 + weight, and OLMo's has no weight.
    """
    if getattr(norm, "weight", None) is None:
        return False
    output = norm(torch.ones_like(norm.weight)).float()
    return torch.allclose(output, norm.weight.float(), rtol=1e-2, atol=1e-4)


def _config(model: PreTrainedModel, kept: Kept, rescale: bool) -> PreTrainedConfig:
    config, kind, after = copy.deepcopy(model.config), architecture(blocks(model)[0]), kept.shape
    for key, value in config.to_dict().items():  # settings with one entry per block, such as layer_types
        if isinstance(value, list) and len(value) == config.num_hidden_layers:
            setattr(config, key, [value[index] for index in kept.blocks.tolist()])
    sizes = {"num_hidden_layers": after.blocks, kind.neurons_key: after.neurons}
    if kind.head_size_key:
        # Without an explicit size, the head size would become width / heads, and fewer heads would be wider.
        sizes |= {kind.head_size_key: heads(model).size, "hidden_size": after.width}
        sizes |= {"num_attention_heads": after.heads, "num_key_value_heads": after.groups}
        if rescale:
            sizes["rms_norm_eps"] = config.rms_norm_eps * narrowed(model.config.hidden_size, after.width)[1]
    for key, value in sizes.items():
        setattr(config, key, value)
    return config


def _stays(parameter: Parameter, kept: Kept) -> bool:
    return parameter.block is None or parameter.block in kept.blocks.tolist()


def _renamed(parameter: Parameter, kept: Kept) -> str:
    """Return the parameter's name with its block renumbered: a KV cache needs consecutive block numbers."""
    if parameter.block is None:
        return parameter.name
    prefix, number, suffix = parameter.name.partition(f".{parameter.block}.")
    return f"{prefix}.{kept.blocks.tolist().index(parameter.block)}.{suffix}" if number else parameter.name


def cut_parameter(parameter: Parameter, kept: Kept) -> Tensor:
    """Copy the kept entries of one parameter."""
    tensor = parameter.tensor.detach()
    for dimension, (axis, repeat) in enumerate(zip(parameter.axes, parameter.repeats, strict=True)):
        if axis is not None:
            index = kept.width if axis == "width" else getattr(kept, axis)[parameter.block]
            # Each kept part i covers `repeat` consecutive entries, such as a head its size: i r … i r + r − 1.
            entries = (index[:, None] * repeat + torch.arange(repeat)).flatten()
            tensor = tensor.index_select(dimension, entries.to(tensor.device))
    return tensor.clone()


def _normed_projections(model: PreTrainedModel) -> list[str]:
    """Return the names of the weights and biases of query and key projections that a norm per head follows."""
    parameter_ids = []
    for block in blocks(model):
        parts = dict(block.named_modules())
        for path in architecture(block).attention[:2]:  # self_attn.q_proj has self_attn.q_norm, and keys likewise
            if path.replace("_proj", "_norm") in parts:
                parameter_ids += [id(parameter) for parameter in parts[path].parameters()]
    return [name for name, parameter in model.named_parameters() if id(parameter) in parameter_ids]


def _norm_weights(model: PreTrainedModel) -> list[str]:
    """Return the names of the weights of the norms over the width."""
    kind = architecture(blocks(model)[0])
    norms = [final_norm(model), *(block.get_submodule(path) for block in blocks(model) for path in kind.norms)]
    weights = {id(norm.weight) for norm in norms}
    return [name for name, parameter in model.named_parameters() if id(parameter) in weights]
