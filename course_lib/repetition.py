"""Reproducible training: random numbers that depend only on the seed and the step, and digests of the inputs."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

P, R = ParamSpec("P"), TypeVar("R")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, torch's global generators start from the seed; on exit their earlier state is restored."""
    # Before the first use of CUDA there is no state to keep, and fork_rng would initialise every device.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=list(devices)):
        torch.manual_seed(seed)
        yield


def seeded_step(seed: int, step: int) -> AbstractContextManager[None]:
    """Seed one step of a training, because dropout has no generator of its own and uses the global one.

    Its masks are then the same in every run, also in a run that was interrupted and resumed from a file.
    """
    return seeded((seed * 1_000_003 + step) % 2**63)


@contextmanager
def in_evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Inside, dropout is off; on exit every part of the model has its earlier mode."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, was_training in modes.items():
            module.training = was_training


def evaluated(function: Callable[Concatenate[nn.Module, P], R]) -> Callable[Concatenate[nn.Module, P], R]:
    """Decorate a function so that its first argument, a model, is in evaluation mode, without dropout."""

    @wraps(function)
    def inside(model: nn.Module, *args: P.args, **kwargs: P.kwargs) -> R:
        with in_evaluation_mode(model):
            return function(model, *args, **kwargs)

    return inside


def digest_of(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Return 16 hexadecimal digits that depend on names, types, shapes and every bit of these tensors."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in tensors:
        digest.update(repr((name, tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


# Entries of a configuration about the origin and loading of a model, not about its computation.
OF_LOADING = {
    *("_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "architectures", "dtype", "torch_dtype"),
    *("use_cache", "return_dict", "output_attentions", "output_hidden_states"),
}


def settings_of(model: PreTrainedModel) -> str:
    """Return 16 hexadecimal digits that depend on the model's configuration, such as its activation and RoPE base."""
    settings = _without_loading(model.config.to_dict())
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _without_loading(settings: object) -> object:
    """Remove the entries of OF_LOADING, also when nested; keys become text, because JSON cannot sort mixed keys."""
    if not isinstance(settings, dict):
        return settings
    return {str(key): _without_loading(value) for key, value in settings.items() if key not in OF_LOADING}
