"""Hidden states on their way through the blocks of a model, with the arguments that each block is called with.

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

BATCH_TOKENS = 4096  # large enough to keep the cores busy, small enough for the activations of one block
FORGOTTEN = ("past_key_values", "layer_past")  # blocks run without a cache


@dataclass
class Batch:
    """Hidden states, and for each block what else it is called with: masks and positions may differ between blocks."""

    hidden: Float[Tensor, "B T D"]
    arguments: dict[nn.Module, dict[str, Any]]

    def through(self, block: nn.Module) -> Float[Tensor, "B T D"]:
        """What the block makes of the hidden states."""
        output = block(self.hidden, **self.arguments[block])
        return output[0] if isinstance(output, tuple) else output


class _ReachedTheEnd(Exception):
    """Stops a forward pass once every block has been called."""


def first_inputs(
    model: nn.Module, calibration: Int[Tensor, "n T"], model_blocks: Sequence[nn.Module] | None = None
) -> list[Batch]:
    """What the first block is called with, batch by batch. Only the embedding is computed.

    Args:
        model_blocks: the blocks of the model where they are known already.
    """
    return list(iterate_first_inputs(model, calibration, model_blocks or list(blocks(model))))


def iterate_first_inputs(
    model: nn.Module, calibration: Int[Tensor, "n T"], model_blocks: Sequence[nn.Module]
) -> Iterator[Batch]:
    """The same, one batch at a time."""
    earlier: dict[nn.Module, dict[str, Any]] = {}
    for ids in calibration.split(max(1, BATCH_TOKENS // calibration.shape[1])):
        with _recorded_calls(model_blocks) as calls:
            model(ids.to(_device(model)), use_cache=False)
        known: dict[int, Any] = {}  # blocks mostly share the very same objects
        arguments = {}
        for block, (_, call) in calls.items():
            before = earlier.get(block, {})
            for name, value in call.items():
                known.setdefault(id(value), _shared(value, before.get(name)))
            arguments[block] = {name: known[id(value)] for name, value in call.items()}
        earlier = arguments
        yield Batch(next(iter(calls.values()))[0], arguments)


def advance(block: nn.Module, batches: list[Batch]) -> None:
    """Replace each batch's hidden states by what the block makes of them."""
    for batch in batches:
        batch.hidden = batch.through(block)


def n_bytes(batches: list[Batch]) -> int:
    """What the batches hold in memory, arguments that are shared counted once."""
    held: dict[int, int] = {}
    for batch in batches:
        _count([vars(batch).get("hidden"), list(batch.arguments.values())], held)
    return sum(held.values())


@contextmanager
def _recorded_calls(model_blocks: Sequence[nn.Module]):
    """Inside, the blocks of a model record what they are called with, compute nothing, and the last one stops."""
    calls: dict[nn.Module, tuple[Tensor, dict[str, Any]]] = {}
    own = [block.__dict__.get("forward") for block in model_blocks]  # accelerate puts one there

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
        for block, forward in zip(model_blocks, own, strict=True):
            del block.forward
            if forward is not None:
                block.forward = forward


def _signature(block: nn.Module) -> inspect.Signature:
    """That of the block's forward, or where a wrapper that is (*args, **kwargs) hides it, that of its class."""
    own = inspect.signature(block.forward)
    return inspect.signature(type(block).forward.__get__(block)) if _takes_any(own) else own


def _takes_any(signature: inspect.Signature) -> bool:
    return any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.parameters.values())


def _named(signature: inspect.Signature, args: tuple, kwargs: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """The hidden states, which come first, and all other arguments by name; GPT-2 passes its mask by position."""
    if _takes_any(signature):
        if len(args) > 1:
            raise ValueError(
                f"got blocks whose forward is {signature}, called with {len(args)} arguments by position; expected one "
                "that names them. Give the wrapper around it functools.wraps(forward)."
            )
        bound = dict(zip(("hidden states",), args, strict=False)) | kwargs
    else:
        bound = signature.bind(*args, **kwargs).arguments
        rest = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), None)
        bound |= bound.pop(rest, {})
    hidden = bound.pop(next(iter(bound)))
    return hidden, {name: value for name, value in bound.items() if name not in FORGOTTEN}


def _shared(value: Any, earlier: Any) -> Any:
    """The earlier value where it is the same, so that a mask is held once and not once a batch."""
    if isinstance(value, tuple) and isinstance(earlier, tuple) and len(value) == len(earlier):
        return tuple(_shared(new, old) for new, old in zip(value, earlier, strict=True))
    if not isinstance(value, Tensor) or not isinstance(earlier, Tensor):
        return value
    alike = (value.shape, value.dtype, value.device) == (earlier.shape, earlier.dtype, earlier.device)
    return earlier if alike and torch.equal(value, earlier) else value


def _count(value: Any, held: dict[int, int]) -> None:
    if isinstance(value, Tensor):
        held[value.data_ptr()] = max(value.nbytes, held.get(value.data_ptr(), 0))
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            _count(item, held)


def _device(model: nn.Module) -> torch.device:
    """Where token ids go: the first weights that are anywhere; those moved out of memory are on "meta"."""
    return next((p.device for p in model.parameters() if not p.is_meta), torch.device("cpu"))
