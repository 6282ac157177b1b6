"""A model without weights; the weights of one part at a time are loaded from a checkpoint and freed again."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from course_lib.pruning.checks import FLOATS, check_finite, checked_layers, layers_to_prune
from course_lib.pruning.stream.reader import Source


class Skeleton:
    """A model without weights, which loads the weights of one part at a time."""

    def __init__(
        self, source: Source, device: torch.device, dtype: torch.dtype | None = None, ignore: Sequence[str] = ()
    ):
        self.source, self.device, self.dtype = source, device, dtype
        self.model = _empty_model(source.folder, device)
        layers = checked_layers(self.model)
        layers_in = layers_to_prune(layers, ignore)
        self.blocks, self.layers = list(layers_in), list(layers_in.values())
        self.n_ignored = len(layers) - sum(map(len, self.layers))
        names = {module: name for name, module in self.model.named_modules()}
        self._prefixes = [f"{names[block]}." for block in self.blocks]
        self._key_of = self._match()
        self._read_buffers()
        self._embedding = self._names_before_the_blocks()

    def keys_of(self, index: int) -> list[str]:
        """Return all keys of the checkpoint that belong to a block, even if the model does not use them."""
        prefix = self._prefixes[index]
        short = prefix.removeprefix(f"{self.model.base_model_prefix}.")
        return [key for key in self.source.keys if key.startswith((prefix, short))]

    def keys_outside(self) -> list[str]:
        inside = {key for index in range(len(self.blocks)) for key in self.keys_of(index)}
        return [key for key in self.source.keys if key not in inside]

    def names_of(self, index: int) -> dict[str, str]:
        """Return the key in the checkpoint by the weight's name in the block."""
        prefix = self._prefixes[index]
        return {n.removeprefix(prefix): key for n, key in self._key_of.items() if n.startswith(prefix)}

    @contextmanager
    def block(self, index: int) -> Iterator[nn.Module]:
        """Load the weights of the block inside the `with` block; they are freed on exit."""
        with self._loaded(self.blocks[index], self.names_of(index)) as module:
            yield module

    @contextmanager
    def embedded(self) -> Iterator[PreTrainedModel]:
        """Load everything but the blocks and the LM head, to turn token ids into the first hidden states."""
        with self._loaded(self.model, {name: self._key_of[name] for name in self._embedding}) as model:
            yield model

    def check(self) -> None:
        """Read every weight once to check that it exists, can be read, and is finite."""
        for name, key in self._key_of.items():
            check_finite(name, self.source.keys[key].read())

    @contextmanager
    def _loaded(self, module: nn.Module, keys: dict[str, str]) -> Iterator[nn.Module]:
        try:
            for name, key in keys.items():
                weight = self.source.keys[key].read()
                _put(module, name, weight.to(self.device, self.dtype or weight.dtype))
            yield module
        finally:
            for name in keys:
                _put(module, name, module.get_parameter(name).detach().to("meta"))

    def _names_before_the_blocks(self) -> list[str]:
        """Return the names of all weights outside of the blocks, except for an LM head that is not tied."""
        head = self.model.get_output_embeddings()
        tied = head is None or head.weight is self.model.get_input_embeddings().weight
        unused = set() if tied else {id(parameter) for parameter in head.parameters()}
        outside = [name for name in self._key_of if not name.startswith(tuple(self._prefixes))]
        return [name for name in outside if id(self.model.get_parameter(name)) not in unused]

    def _match(self) -> dict[str, str]:
        """Return the key in the checkpoint by the weight's name; some checkpoints omit the model's prefix."""
        key_of, prefix = {}, f"{self.model.base_model_prefix}."
        tied: dict[int, list[str]] = {}
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            tied.setdefault(id(parameter), []).append(name)
        for name, parameter in self.model.named_parameters():
            names = [n for alias in tied[id(parameter)] for n in (alias, alias.removeprefix(prefix))]
            key = next((n for n in names if n in self.source.keys), None)
            if key is None:
                raise ValueError(
                    f"{self.source.folder} lacks {name}; expected every weight. Fetch the checkpoint again."
                )
            place = self.source.keys[key]
            if place.shape != tuple(parameter.shape):
                raise ValueError(
                    f"{place.path}: {key} has shape {place.shape}, the model of config.json {tuple(parameter.shape)}; "
                    "expected files of one model. Fetch the checkpoint again."
                )
            if place.dtype not in FLOATS:
                raise ValueError(
                    f"{place.path}: {key} is {place.dtype}; expected float32, bfloat16 or float16. "
                    "Give the checkpoint that is not quantised."
                )
            key_of[name] = key
        return key_of

    def _read_buffers(self) -> None:
        """Read the buffers that the checkpoint stores, such as Gemma 4's factor per block; all others are computed."""
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        for name in (self.model.state_dict().keys() - parameters.keys()) & self.source.keys.keys():
            buffer = self.model.get_buffer(name)
            buffer.copy_(self.source.keys[name].read().view_as(buffer))


def _empty_model(folder: Path, device: torch.device) -> PreTrainedModel:
    """Build the model with weights on the meta device, which takes no memory; buffers such as RoPE's are computed."""
    config = AutoConfig.from_pretrained(folder)
    if getattr(config, "quantization_config", None):
        raise ValueError(f"{folder} holds a quantised model; expected float32, bfloat16 or float16. Give the original.")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config).eval()
    for module in model.modules():
        buffers = {name: buffer for name, buffer in module.named_buffers(recurse=False) if buffer.is_meta}
        for name, buffer in buffers.items():  # not weights: an embedding with a buffer may be tied
            module._buffers[name] = torch.empty_like(buffer, device=device)
        if buffers:
            model._init_weights(module)  # as from_pretrained does, which builds models this way too
    return model.requires_grad_(False)


def _put(module: nn.Module, name: str, weight: Tensor) -> None:
    """Assign the weight instead of copying it: a weight on the meta device has no memory to copy into."""
    owner, _, leaf = name.rpartition(".")
    module.get_submodule(owner)._parameters[leaf] = nn.Parameter(weight, requires_grad=False)
