"""The checks before any weight changes, and the error if pruning stops before all layers are pruned."""

import fnmatch
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from course_lib.models import Layer, by_block, layers_of, weight_of
from course_lib.pruning import offload
from course_lib.pruning.allocation.base import Allocation
from course_lib.pruning.base import LayerPruner, check_pattern
from course_lib.sparsity.patterns import Pattern
from course_lib.sparsity.ranking import all_finite

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
HALF_PRUNED = "The model is half pruned: load it again before going on."
UNCHANGED = "The model is as it was."


class PruningError(RuntimeError):
    """Pruning stopped at the block or layer `reached`. Earlier blocks are pruned, later ones are not."""

    def __init__(self, reached: str, n_layers: int, cause: Exception, remedy: str | None = None):
        self.reached = reached
        super().__init__(
            f"pruning stopped at {reached}, after {n_layers} layers were pruned: {type(cause).__name__}: "
            f"{str(cause).rstrip('.')}. "
            f"{remedy or (HALF_PRUNED if n_layers else UNCHANGED)}"
        )


def checked_layers(model: object) -> list[Layer]:
    """Return the layers of a causal language model.

    Raises:
        ValueError: a model of an unknown family, or weights that are not in floating point.
    """
    if not isinstance(model, PreTrainedModel) or not hasattr(model.config, "vocab_size"):
        raise ValueError(
            f"got a {type(model).__name__}; expected a causal language model of transformers, as load_model() gives it."
        )
    layers = layers_of(model)
    kinds = {weight_of(layer.module).dtype for layer in layers}
    if strange := [str(kind) for kind in kinds if kind not in FLOATS]:
        raise ValueError(
            f"got weights in {', '.join(strange)}; expected float32, bfloat16 or float16. "
            "Load the model unquantised, with dtype=torch.float32."
        )
    return layers


def layers_to_prune(layers: list[Layer], ignore: Sequence[str] = ()) -> dict[nn.Module, list[Layer]]:
    """Return for each block the layers that no pattern of `ignore` matches; the list may be empty.

    Ignored layers are also removed from the groups of layers that share an input.

    Args:
        ignore: patterns for names, with the wildcards of a shell, such as "blocks.0.*" or "*.mlp.down_proj".

    Raises:
        ValueError: a pattern matches no layer, or all layers are ignored.
    """
    if isinstance(ignore, str):
        raise ValueError(f"got ignore={ignore!r}; expected a list of patterns, such as [{ignore!r}].")
    names = [layer.name for layer in layers]
    ignored = {pattern: {name for name in names if fnmatch.fnmatchcase(name, pattern)} for pattern in ignore}
    if idle := [pattern for pattern, matched in ignored.items() if not matched]:
        raise ValueError(
            f"got the pattern {idle[0]!r} for layers to leave dense, which matches none; expected one for names from "
            f"{names[0]} to {names[-1]}, such as '*.{layers[-1].part}' for that part of every block."
        )
    kept = set(names).difference(*ignored.values())
    if not kept:
        raise ValueError(f"got {', '.join(ignore)}, which leaves all layers dense; expected at least one to prune.")
    layers_in = {block: [] for block in by_block(layers)}
    for layer in layers:
        if layer.name in kept:
            group = tuple(name for name in layer.group if name in kept)
            layers_in[layer.block].append(replace(layer, group=group))
    return layers_in


def check_ready(
    model: PreTrainedModel, layers: list[Layer], pruner: LayerPruner, calibration: Tensor, allocation: Allocation
) -> None:
    """Raise ValueError unless pruning can run; the message says what was received, what is expected, and what to do."""
    check_method(pruner, allocation)
    check_calibration(model, calibration)
    for layer in layers:
        offload.check_place(layer.name, layer.module)
        if (weight := offload.read(layer.module)).is_meta:
            raise ValueError(f"got {layer.name} on the meta device, without data; load the weights before pruning.")
        check_finite(layer.name, weight)
    inside = {id(layer.module.weight) for layer in layers}
    for name, parameter in model.named_parameters():
        if not parameter.is_meta and id(parameter) not in inside:
            check_finite(name, parameter)
    check_fit(pruner.pattern, layers)


def check_method(pruner: object, allocation: object) -> None:
    """Check that the pruner has a pattern and that the allocation can vary it."""
    if not isinstance(pruner, LayerPruner):
        raise ValueError(f"got pruner {pruner!r}; expected an instance such as Wanda() or Magnitude(NofM(2, 4)).")
    check_pattern(pruner.pattern)
    if not isinstance(allocation, Allocation):
        raise ValueError(f"got allocation {allocation!r}; expected an instance such as Uniform(), OWL(), OneRanking().")
    allocation.check(pruner.pattern)


def check_finite(name: str, weight: Tensor) -> None:
    """Check that no weight is NaN or infinite."""
    if not all_finite(weight):
        raise ValueError(
            f"got {int((~weight.isfinite()).sum())} NaN or infinite weights in {name}; load a checkpoint without them."
        )


def check_fit(pattern: Pattern, layers: list[Layer]) -> None:
    """Check that the pattern divides every layer; one layer of each shape is tried."""
    first_of: dict[tuple[int, ...], str] = {}
    for layer in layers:
        first_of.setdefault(tuple(weight_of(layer.module).shape), layer.name)
    for shape, name in first_of.items():
        try:
            pattern.keep(torch.zeros(shape))
        except ValueError as error:
            part = name.split(".", 2)[2]
            raise ValueError(
                f"the pattern {pattern} does not fit {name} of shape {shape}: {str(error).rstrip('.')}. Such layers "
                f"are left dense by ignore=['*.{part}'], or by --ignore '*.{part}' with `course prune`."
            ) from error


def check_calibration(model: PreTrainedModel, calibration: object) -> None:
    """Check that calibration has token ids of this model: at least one window, none longer than its positions."""
    if not isinstance(calibration, Tensor):
        kind = type(calibration).__name__
        raise ValueError(f"got calibration of type {kind}; expected a tensor of token ids. Use corpora.windows(...).")
    got = f"got calibration of shape {tuple(calibration.shape)} and {calibration.dtype}"
    if calibration.ndim != 2 or calibration.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{got}; expected token ids, one window per row. Use corpora.windows(...).")
    if calibration.numel() == 0:
        raise ValueError(
            f"{got}, which is empty; expected at least one window. Use corpora.windows('wikipedia', 32, 512, ...)."
        )
    size = model.config.vocab_size
    low, high = int(calibration.min()), int(calibration.max())
    if low < 0 or high >= size:
        raise ValueError(
            f"got token ids from {low} to {high}; expected 0 to {size - 1}. Use this model's own tokenizer."
        )
    longest = getattr(model.config, "max_position_embeddings", None)
    if longest and calibration.shape[1] > longest:
        raise ValueError(
            f"{got}; expected windows of at most {longest} tokens, the positions that this model has. "
            f"With `course prune`, give --length {longest}."
        )
