"""Hooks for the duration of a `with` block, also on a model that torch.compile has compiled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import nn


class Handle(Protocol):
    """What torch returns when it registers a hook."""

    def remove(self) -> None: ...


@contextmanager
def hooking() -> Iterator[list[Handle]]:
    """Inside, append the handles of your hooks to the list; they are removed on exit, also after an error.

    Inside, code compiled by torch.compile runs eagerly. Compiled code does not check whether a module has new hooks
    (torch._dynamo.config.skip_nnmodule_hook_guards) or another attention function, so a model that was compiled before
    would ignore them. `generate` compiles by itself if the cache has a fixed size. On exit the compiled code is used
    again; nothing is compiled a second time.
    """
    handles: list[Handle] = []
    with torch.compiler.set_stance("force_eager"):
        try:
            yield handles
        finally:
            for handle in handles:
                handle.remove()


@contextmanager
def calling(module: nn.Module, forward: Callable) -> Iterator[None]:
    """Inside, this module runs `forward` instead of its own; hooks still run. On exit its own forward is restored."""
    own = vars(module).get("forward")  # as other libraries set it
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own
