"""Forward passes in another order or with parts left out: attention parallel to the MLP, parallel or skipped blocks.

If a block changes its input only a little, the next block can also read the input from before it (Deja Vu, appendix L).
Everything is still computed, only from other inputs, so this measures the loss in quality and not the time saved.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from course_lib.contextual.attention.trials import check_second_norm
from course_lib.contextual.neurons import neurons_of
from course_lib.contextual.seen import Seen, looking
from course_lib.hooks import hooking
from course_lib.models import architecture, blocks, check_is_model
from course_lib.settings import is_count


@contextmanager
def halves_in_parallel(model: PreTrainedModel, first: int = 0) -> Iterator[None]:
    """Compute y = x + attention(x) + mlp(x) in every block: the MLP reads the input of attention, through its own norm.

    Args:
        first: blocks below this number do not change; the lowest blocks change x the most.

    Raises:
        ValueError: the second norm of the model is not the one before the MLP, or there is no block `first`.
    """
    check_is_model(model)
    _check_first(model, first)
    check_second_norm(model)
    with hooking() as handles:
        for block in list(blocks(model))[first:]:
            read: list[Tensor] = []
            handles.append(block.register_forward_pre_hook(_note(read), with_kwargs=True))
            norm = block.get_submodule(architecture(block).norms[1])
            handles.append(norm.register_forward_pre_hook(lambda _, args, read=read: (read[0].reshape(args[0].shape),)))
        yield


@contextmanager
def pairs_in_parallel(model: PreTrainedModel, first: int = 0) -> Iterator[None]:
    """Compute y = x + F_i(x) + F_{i+1}(x) for pairs of blocks: the first and second, the third and fourth, ...

    Args:
        first: blocks below this number do not change, and neither does a last block without a partner.

    Raises:
        ValueError: `model` is not a supported model, or there is no block `first`.
    """
    check_is_model(model)
    _check_first(model, first)
    in_order = list(blocks(model))[first:]
    with hooking() as handles:
        for lower, upper in zip(in_order[::2], in_order[1::2], strict=False):
            read, between = [], []
            handles.append(lower.register_forward_pre_hook(_note(read), with_kwargs=True))
            handles.append(upper.register_forward_pre_hook(_swap(read, between), with_kwargs=True))
            handles.append(upper.register_forward_hook(_add(read, between)))
        yield


@contextmanager
def skipping(model: PreTrainedModel, left_out: Collection[int]) -> Iterator[None]:
    """Skip the blocks with these numbers: their output is their input. range(3, n, 4) skips every fourth block.

    Raises:
        ValueError: the model does not have one of these blocks.
    """
    check_is_model(model)
    n_blocks = len(blocks(model))
    if not isinstance(left_out, Collection) or not all(is_count(index, least=0) for index in left_out):
        raise ValueError(
            f"got {left_out!r} to leave out; expected a collection of block numbers from 0 to {n_blocks - 1}, such as "
            "[1]."
        )
    unknown = sorted(set(left_out) - set(range(n_blocks)))
    if unknown:
        raise ValueError(f"got blocks {unknown} to leave out; expected numbers from 0 to {n_blocks - 1}.")
    with hooking() as handles:
        for index in sorted(set(left_out)):
            read: list[Tensor] = []
            handles.append(blocks(model)[index].register_forward_pre_hook(_note(read), with_kwargs=True))
            handles.append(blocks(model)[index].register_forward_hook(_give(read)))
        yield


@contextmanager
def activated_by(model: PreTrainedModel, activation: str) -> Iterator[None]:
    """Replace the activation function of every MLP, by its name in transformers, such as "relu"; nothing is trained.

    Raises:
        ValueError: transformers does not have an activation function of this name.
    """
    if activation not in ACT2FN:
        raise ValueError(f"got activation {activation!r}; expected a name such as relu, silu, gelu.")
    swapped = [replace(neurons, activation=activation) for neurons in neurons_of(model)]

    def look(block: int, seen: Seen) -> Tensor:
        return swapped[block].values(seen.x)

    with looking(model, look):
        yield


def _check_first(model: PreTrainedModel, first: object) -> None:
    n_blocks = len(blocks(model))
    if not is_count(first, least=0) or first > n_blocks:
        raise ValueError(
            f"got first {first!r}; expected the number of a block from 0 to {n_blocks}, where {n_blocks} leaves all "
            "blocks as they are."
        )


def _hidden(args: tuple, kwargs: dict) -> Tensor:
    return args[0] if args else kwargs["hidden_states"]


def _note(read: list[Tensor]) -> Callable:
    """Return a hook that stores the input of a block."""

    def hook(_: nn.Module, args: tuple, kwargs: dict) -> None:
        read[:] = [_hidden(args, kwargs)]

    return hook


def _give(read: list[Tensor]) -> Callable:
    """Return a hook that outputs the stored input of the block."""

    def hook(_: nn.Module, args: tuple, output: Tensor | tuple) -> Tensor | tuple:
        return _like(output, read[0])

    return hook


def _swap(read: list[Tensor], between: list[Tensor]) -> Callable:
    """Return a hook that replaces a block's input by the input of another block, and stores the original input."""

    def hook(_: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        between[:] = [_hidden(args, kwargs)]
        return ((read[0], *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": read[0]})

    return hook


def _add(read: list[Tensor], between: list[Tensor]) -> Callable:
    """Return a hook that adds the difference that the block before it has made."""

    def hook(_: nn.Module, args: tuple, output: Tensor | tuple) -> Tensor | tuple:
        hidden = output[0] if isinstance(output, tuple) else output
        return _like(output, hidden + between[0] - read[0])

    return hook


def _like(output: Tensor | tuple, hidden: Tensor) -> Tensor | tuple:
    """Return the hidden states in the form of `output`: in some families a tuple that begins with them."""
    return (hidden, *output[1:]) if isinstance(output, tuple) else hidden
