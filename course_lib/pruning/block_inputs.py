"""The calibration activations between a model's blocks, and the other arguments that each block is called with.

Dimension key: B windows in a batch, T tokens in a window, D hidden size.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.models import blocks

BATCH_TOKENS = 4096  # enough to use all cores, and few enough that the activations of one block fit in memory
FORGOTTEN = ("past_key_values", "layer_past")  # blocks run without a cache


@dataclass
class Batch:
    """Hidden states, and the other arguments of each block. Masks and positions may differ between blocks."""

    hidden: Float[Tensor, "B T D"]
    arguments: dict[nn.Module, dict[str, Any]]

    def through(self, block: nn.Module) -> Float[Tensor, "B T D"]:
        """Run the block on the hidden states and return its output."""
        output = block(self.hidden, **self.arguments[block])
        return output[0] if isinstance(output, tuple) else output


class _ReachedTheEnd(Exception):
    """Stops a forward pass once every block has been called."""


def first_inputs(
    model: nn.Module, calibration: Int[Tensor, "n T"], model_blocks: Sequence[nn.Module] | None = None
) -> list[Batch]:
    """Collect the inputs of the first block, batch by batch. Of the model, only the embedding is computed.

    Args:
        model_blocks: the model's blocks; None looks them up.
    """
    return list(iterate_first_inputs(model, calibration, model_blocks or list(blocks(model))))


def iterate_first_inputs(
    model: nn.Module, calibration: Int[Tensor, "n T"], model_blocks: Sequence[nn.Module]
) -> Iterator[Batch]:
    """Yield the batches of `first_inputs` one at a time."""
    previous_arguments: dict[nn.Module, dict[str, Any]] = {}
    for ids in calibration.split(max(1, BATCH_TOKENS // calibration.shape[1])):
        with _recorded_calls(model_blocks) as calls:
            model(ids.to(_device(model)), use_cache=False)
        value_by_id: dict[int, Any] = {}  # most blocks get the same objects, so each is compared once
        arguments = {}
        for block, (_, call) in calls.items():
            previous = previous_arguments.get(block, {})
            for name, value in call.items():
                value_by_id.setdefault(id(value), _shared(value, previous.get(name)))
            arguments[block] = {name: value_by_id[id(value)] for name, value in call.items()}
        previous_arguments = arguments
        yield Batch(next(iter(calls.values()))[0], arguments)


def advance(block: nn.Module, batches: list[Batch]) -> None:
    """Replace each batch's hidden states with the block's output."""
    for batch in batches:
        batch.hidden = batch.through(block)


def n_bytes(batches: list[Batch]) -> int:
    """Count the bytes of all tensors in the batches. Shared arguments count once."""
    bytes_by_address: dict[int, int] = {}
    for batch in batches:
        _count([vars(batch).get("hidden"), list(batch.arguments.values())], bytes_by_address)
    return sum(bytes_by_address.values())


@contextmanager
def _recorded_calls(model_blocks: Sequence[nn.Module]):
    """Inside, the blocks record their arguments instead of computing. The last block ends the forward pass."""
    calls: dict[nn.Module, tuple[Tensor, dict[str, Any]]] = {}
    # A forward of the instance itself, such as accelerate's wrapper, is put back on exit.
    instance_forwards = [block.__dict__.get("forward") for block in model_blocks]

    def record(block: nn.Module, signature: inspect.Signature):
        def forward(*args: Any, **kwargs: Any) -> Tensor:
            hidden, call = _named(signature, args, kwargs)
            calls[block] = (hidden, call)
            if block is model_blocks[-1]:
                raise _ReachedTheEnd
            return hidden

        return forward

    try:
        for block in model_blocks:
            block.forward = record(block, _signature(block))
        yield calls
    except _ReachedTheEnd:
        pass
    finally:
        for block, forward in zip(model_blocks, instance_forwards, strict=True):
            del block.forward
            if forward is not None:
                block.forward = forward


def _signature(block: nn.Module) -> inspect.Signature:
    """Return the signature of the block's forward, or of its class's if a (*args, **kwargs) wrapper hides it."""
    signature = inspect.signature(block.forward)
    return inspect.signature(type(block).forward.__get__(block)) if _takes_any(signature) else signature


def _takes_any(signature: inspect.Signature) -> bool:
    return any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.parameters.values())


def _named(signature: inspect.Signature, args: tuple, kwargs: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """Split a call into the hidden states, which come first, and all other arguments by name.

    Names are needed because some models, such as GPT-2, pass the mask by position.
    """
    if _takes_any(signature):
        if len(args) > 1:
            raise ValueError(
                f"got blocks whose forward is {signature}, called with {len(args)} arguments by position; expected a "
                "signature that names them. Apply functools.wraps(forward) to the wrapper."
            )
        call = dict(zip(("hidden states",), args, strict=False)) | kwargs
    else:
        call = signature.bind(*args, **kwargs).arguments
        kwargs_name = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), None)
        call |= call.pop(kwargs_name, {})
    hidden = call.pop(next(iter(call)))
    return hidden, {name: value for name, value in call.items() if name not in FORGOTTEN}


def _shared(value: Any, earlier: Any) -> Any:
    """Return the earlier value if both are equal, so that all batches share one mask in memory."""
    if isinstance(value, tuple) and isinstance(earlier, tuple) and len(value) == len(earlier):
        return tuple(_shared(new, old) for new, old in zip(value, earlier, strict=True))
    if not isinstance(value, Tensor) or not isinstance(earlier, Tensor):
        return value
    is_comparable = (value.shape, value.dtype, value.device) == (earlier.shape, earlier.dtype, earlier.device)
    return earlier if is_comparable and torch.equal(value, earlier) else value


def _count(value: Any, held: dict[int, int]) -> None:
    if isinstance(value, Tensor):
        held[value.data_ptr()] = max(value.nbytes, held.get(value.data_ptr(), 0))
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            _count(item, held)


def _device(model: nn.Module) -> torch.device:
    """Return the device for token ids: that of the first parameter with data. Offloaded parameters are on "meta"."""
    return next((p.device for p in model.parameters() if not p.is_meta), torch.device("cpu"))
