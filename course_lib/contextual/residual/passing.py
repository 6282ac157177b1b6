"""What a block is given and gives, whatever the family calls it, for hooks.

Dimension key: B sequences of N tokens, D width.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from jaxtyping import Float
from torch import Tensor
from torch.utils.hooks import RemovableHandle


def given(args: tuple, kwargs: dict) -> Float[Tensor, "B N D"]:
    """The residual that a block was called with."""
    return args[0] if args else kwargs["hidden_states"]


def instead(args: tuple, kwargs: dict, hidden: Tensor) -> tuple[tuple, dict]:
    """The same call with another residual."""
    return ((hidden, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": hidden})


def first(output: Tensor | tuple) -> Tensor:
    """The residual that a block gives; some families return a tuple."""
    return output[0] if isinstance(output, tuple) else output


def with_first(output: Tensor | tuple, hidden: Tensor) -> Tensor | tuple:
    """The same output with another residual."""
    return (hidden, *output[1:]) if isinstance(output, tuple) else hidden


@contextmanager
def hooked(handles: Sequence[RemovableHandle]) -> Iterator[None]:
    """Inside, the hooks are there; they go on leaving, also by an error."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
