"""Where the tests of kernels run them: on the GPU where there is one, with a setting that is chosen, not timed."""

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

import pytest
import torch
from kernel_padding import changed
from torch import Tensor

from course_lib.kernels import runtime

COMPILED = runtime.mode() == "compiled"
DEVICE = "cuda" if COMPILED else "cpu"


def on_device(launch: Callable) -> Callable:
    """The launcher with its tensors moved to where kernels run, and its results moved back."""
    if not COMPILED:
        return launch

    @wraps(launch)
    def moved_there_and_back(*arguments: Any, **named: Any) -> Any:
        there = changed((*arguments, *named.values()), lambda name, tensor: moved(tensor))
        positional, rest = there[: len(arguments)], there[len(arguments) :]
        result = launch(*positional, **dict(zip(named, rest, strict=True)))
        if isinstance(result, Tensor):
            return result.cpu()
        return type(result)(*(part if part is None else part.cpu() for part in result))

    return moved_there_and_back


def moved(tensor: Tensor) -> Tensor:
    """With all the memory that it shows a part of: strides, and what lies around, stay."""
    whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
    return whole.to(DEVICE).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def tuners(module: ModuleType) -> list[Any]:
    """The kernels of a file that have settings to choose from."""
    return [value for value in vars(module).values() if hasattr(value, "early_config_prune")]


def n_settings(module: ModuleType, dtype: torch.dtype) -> int:
    """The most that any kernel of the file has for a type."""
    first = {"first": torch.empty(0, dtype=dtype)}
    return max((len(tuner.early_config_prune(tuner.configs, first)) for tuner in tuners(module)), default=1)


def use_setting(module: ModuleType, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run with this setting, untimed: a test of results needs no clock, and each setting has to be right."""
    for tuner in tuners(module):
        suited = tuner.early_config_prune

        def chosen(configs: list, arguments: dict, suited: Callable = suited, **others: Any) -> list:
            settings = suited(configs, arguments)
            return [settings[index % len(settings)]]

        monkeypatch.setattr(tuner, "cache", {})
        monkeypatch.setattr(tuner, "_bench", lambda *arguments, **named: [0.0, 0.0, 0.0])
        monkeypatch.setattr(tuner, "early_config_prune", chosen)
