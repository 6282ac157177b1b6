"""Cut a model down to what stays: a new model of the same class, which every tool loads; the old one is not touched.

RMSNorm divides by √(S/d + ε), S the sum of squares over d channels. When d − d′ channels leave that hold nothing, S
stays and the output must too. With w the norm's weight,

    x / √(S/d′ + ε′) · w′ = x / √(S/d + ε) · w    for    w′ = w √(d/d′),  ε′ = ε d/d′.

The configuration has one ε for all norms. Where queries and keys have norms too (Qwen3), these get ε′ although heads
keep their size; the query and key projections times √(d/d′) give the output that they had with ε.
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
    """A model of the target's shape that keeps what scores best.

    Args:
        rescale: make up for the norm over fewer channels, when width leaves.

    Raises:
        ValueError: for scores that do not fit, or a shape that this family cannot have.
    """
    return take(model, choose(scores, shape_of(model), target), rescale)


def take(model: PreTrainedModel, kept: Kept, rescale: bool = True) -> PreTrainedModel:
    """A model of what is kept, of the same class, in evaluation mode and with the same settings for generation.

    Raises:
        ValueError: when this family's configuration cannot describe what would be left, or a model without weights.
    """
    if model.device.type == "meta":
        raise ValueError("got a model on the meta device, which has no weights; load it onto the CPU or a GPU.")
    before, after = shape_of(model), kept.shape
    check_family(model, before, after)
    rescale = rescale and before.width != after.width
    config = _config(model, kept, rescale)
    with torch.device("meta"):  # no memory, and none of the random weights that every new model draws
        smaller = type(model)(config)
    values = {_renamed(p, kept): cut_parameter(p, kept) for p in parameters_of(model) if _stays(p, kept)}
    if rescale:
        factor, _ = narrowed(before.width, after.width)
        values |= {name: values[name] * factor for name in (*_norm_weights(smaller), *_normed_projections(smaller))}
    buffers = dict(model.named_buffers())  # such as the angles of RoPE, of which no cut changes any
    _fill(smaller, values | {name: buffers[name].clone() for name, _ in smaller.named_buffers()})
    smaller.generation_config = copy.deepcopy(model.generation_config)
    return smaller.to(model.device).eval()


def narrowed(before: int, after: int) -> tuple[float, float]:
    """What to multiply an RMSNorm's weight and its epsilon by, when of `before` channels `after` stay.

    The squares of the channels that stay are divided by fewer of them: with those that left at zero, everything is as
    it was.
    """
    # x w / √(S / d + ε) = x (w √(d / d′)) / √(S / d′ + ε d / d′), S the sum of squares
    return (before / after) ** 0.5, before / after


def _fill(model: PreTrainedModel, values: dict[str, Tensor]) -> None:
    """Put values where a model on the meta device has places alone; a place that two modules share gets one value."""
    filled: dict[int, Tensor] = {}
    for prefix, module in model.named_modules():
        for kind in (module._parameters, module._buffers):
            for own, place in kind.items():
                if place is not None and id(place) not in filled:
                    value = values.pop(f"{prefix}.{own}".removeprefix("."))
                    filled[id(place)] = nn.Parameter(value) if isinstance(place, nn.Parameter) else value
                kind[own] = None if place is None else filled[id(place)]
    assert not values, f"nothing takes {', '.join(values)}"


def check_family(model: PreTrainedModel, before: Shape, after: Shape) -> None:
    """Raises ValueError, naming what the family cannot express, for a shape that its configuration cannot describe."""
    kind, name = architecture(blocks(model)[0]), type(model).__name__
    has_fixed_heads = not (kind.head_size_key and _has_free_head_size(type(model)))
    if (before.heads, before.groups) != (after.heads, after.groups) and has_fixed_heads:
        raise ValueError(
            f"got {after.heads} heads and {after.groups} groups for a {name}, in which a head is always width / heads "
            f"wide: {before.heads} have to stay. Cut neurons or blocks of it."
        )
    if before.width != after.width and isinstance(final_norm(model), nn.LayerNorm):
        raise ValueError(
            f"got width {after.width} for a {name}, whose LayerNorm subtracts the mean over the width: no factor makes "
            f"up for channels that leave. Keep {before.width}; cut neurons or blocks of it."
        )
    if before.width != after.width and not _scales_by_weight(final_norm(model)):
        raise ValueError(
            f"got width {after.width} for a {name}, whose norm does not multiply by its weight as RMSNorm does: the "
            f"factor for channels that leave is not known. Keep {before.width}; cut neurons or blocks of it."
        )
    if before.width != after.width and not hasattr(model.config, "rms_norm_eps"):
        raise ValueError(
            f"got width {after.width} for a {name}, whose configuration has no rms_norm_eps: what its norms add to the "
            f"mean square cannot follow the width. Keep {before.width}; cut neurons, heads or blocks of it."
        )
    if after.width % after.heads and not _takes_any_heads(model.config, after):
        step = lcm(after.heads, 4)  # rows of a whole number of 16 bytes in float32
        low = after.width // step * step
        offers = [size for size in (low, low + step) if 0 < size < before.width] or [before.width]
        raise ValueError(
            f"got width {after.width} with {after.heads} heads; {type(model.config).__name__} wants the width to be "
            f"a multiple of the heads, though a head's size is given. Use {' or '.join(map(str, offers))}."
        )


@lru_cache
def _has_free_head_size(family: type[PreTrainedModel]) -> bool:
    """Whether attention reads a head's size from the configuration; StableLM's divides the width by the heads."""
    sizes = {"hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    with torch.device("meta"):
        model = family(family.config_class(num_hidden_layers=1, intermediate_size=8, **sizes))
    (block,) = blocks(model)
    return block.get_submodule(architecture(block).attention[0]).out_features == 4 * 8


def _takes_any_heads(config: PreTrainedConfig, after: Shape) -> bool:
    """Whether this class of configuration takes a width that its heads do not divide; Llama's does not."""
    asked = copy.copy(config)
    asked.hidden_size, asked.num_attention_heads = after.width, after.heads
    try:
        getattr(asked, "validate_architecture", lambda: None)()
    except ValueError:
        return False
    return True


@torch.no_grad()
def _scales_by_weight(norm: nn.Module) -> bool:
    """Whether a vector of ones comes out as the weight, as from RMSNorm; Gemma's norm multiplies by 1 + weight.

    OLMo's has no weight at all.
    """
    if getattr(norm, "weight", None) is None:
        return False
    given = norm(torch.ones_like(norm.weight)).float()
    return torch.allclose(given, norm.weight.float(), rtol=1e-2, atol=1e-4)


def _config(model: PreTrainedModel, kept: Kept, rescale: bool) -> PreTrainedConfig:
    config, kind, after = copy.deepcopy(model.config), architecture(blocks(model)[0]), kept.shape
    for key, value in config.to_dict().items():  # what is said block by block, such as layer_types
        if isinstance(value, list) and len(value) == config.num_hidden_layers:
            setattr(config, key, [value[index] for index in kept.blocks.tolist()])
    sizes = {"num_hidden_layers": after.blocks, kind.neurons_key: after.neurons}
    if kind.head_size_key:
        # Without its size said, fewer heads would silently be wider ones.
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
    """Blocks are numbered anew, or a cache would have no place for them."""
    if parameter.block is None:
        return parameter.name
    before, number, after = parameter.name.partition(f".{parameter.block}.")
    return f"{before}.{kept.blocks.tolist().index(parameter.block)}.{after}" if number else parameter.name


def cut_parameter(parameter: Parameter, kept: Kept) -> Tensor:
    """A copy of what stays of one parameter."""
    tensor = parameter.tensor.detach()
    for dimension, (axis, each) in enumerate(zip(parameter.axes, parameter.repeats, strict=True)):
        if axis is not None:
            index = kept.width if axis == "width" else getattr(kept, axis)[parameter.block]
            entries = (index[:, None] * each + torch.arange(each)).flatten()
            tensor = tensor.index_select(dimension, entries.to(tensor.device))
    return tensor.clone()


def _normed_projections(model: PreTrainedModel) -> list[str]:
    """Names of weights and biases of the projections whose outputs have a norm of their own, head by head."""
    normed = []
    for block in blocks(model):
        parts = dict(block.named_modules())
        for path in architecture(block).attention[:2]:  # self_attn.q_proj has self_attn.q_norm, and keys likewise
            if path.replace("_proj", "_norm") in parts:
                normed += [id(parameter) for parameter in parts[path].parameters()]
    return [name for name, parameter in model.named_parameters() if id(parameter) in normed]


def _norm_weights(model: PreTrainedModel) -> list[str]:
    """Names of the weights of the norms over the width."""
    kind = architecture(blocks(model)[0])
    norms = [final_norm(model), *(block.get_submodule(path) for block in blocks(model) for path in kind.norms)]
    weights = {id(norm.weight) for norm in norms}
    return [name for name, parameter in model.named_parameters() if id(parameter) in weights]
