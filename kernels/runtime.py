"""How kernels run: compiled for a GPU, interpreted on the CPU, or replaced by their references in PyTorch.

Importing a kernel needs neither triton nor a GPU. Without triton (for example on macOS) the decorators below return the
kernel as a plain function, which is never called. To interpret kernels, set `TRITON_INTERPRET=1` before triton is first
imported: it fixes the choice for the whole process.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
    from triton.testing import do_bench
except ImportError:
    triton = tl = do_bench = None

_in_order: ContextVar[bool] = ContextVar("kernels may not overlap", default=False)
INTERPRETED: bool = triton is not None and bool(triton.knobs.runtime.interpret)


def mode() -> str:
    """Return how launchers run kernels: "compiled", "interpreted" or "reference"."""
    if INTERPRETED:
        return "interpreted"
    return "compiled" if triton is not None and torch.cuda.is_available() else "reference"


def reason() -> str:
    """Explain the result of `mode()` in one sentence."""
    if INTERPRETED:
        return (
            f"TRITON_INTERPRET is set, so triton {triton.__version__} interprets kernels on the CPU: correct, but slow."
        )
    if triton is None:
        return "triton is not installed (it exists for Linux only), so kernels run as their references in torch."
    if not torch.cuda.is_available():
        return f"triton {triton.__version__} found no GPU, so kernels run as their references in torch."
    return f"triton {triton.__version__} compiles kernels for {torch.cuda.get_device_name()}."


def runs_kernel(tensor: Tensor) -> bool:
    """Return whether a launcher runs the kernel on this tensor; otherwise it runs the reference."""
    return triton is not None and (INTERPRETED or tensor.is_cuda)


def programs_to_fill(device: torch.device, a_multiprocessor: int, elsewhere: int) -> int:
    """Return the number of programs that fill a GPU, `a_multiprocessor` on each; `elsewhere` for other devices."""
    if device.type != "cuda":
        return elsewhere
    return a_multiprocessor * torch.cuda.get_device_properties(device).multi_processor_count


def cdiv(n: int, by: int) -> int:
    """Divide and round up, like triton.cdiv, which takes a microsecond longer to detect whether a kernel calls it."""
    return -(-n // by)


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n, like triton.next_power_of_2."""
    return 1 << (n - 1).bit_length()


def overlap_of(device: torch.device) -> dict[str, bool]:
    """Return launch options that let a kernel start before the previous one has ended (programmatic dependent launch).

    The kernel must call `tl.extra.cuda.gdc_wait()` before it accesses memory of the previous kernel. They overlap only
    if the previous kernel calls `gdc_launch_dependents()`. CPUs, and GPUs before Hopper, have no options.
    """
    return {"launch_pdl": True} if _can_overlap(device) and not _in_order.get() else {}


@lru_cache  # looked up in each call of a layer, which is often limited by the host
def _can_overlap(device: torch.device) -> bool:
    return not INTERPRETED and device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


@contextmanager
def one_by_one() -> Iterator[None]:
    """Switch off overlapping launches in this context, as work in several streams requires."""
    token = _in_order.set(True)
    try:
        yield
    finally:
        _in_order.reset(token)


def jit(kernel: Callable | None = None, *, lengths: tuple[str, ...] = ()) -> Any:
    """Apply `triton.jit` where triton is installed.

    Args:
        lengths: names of arguments that vary between calls. They share one binary for all values; by default triton
            compiles again for values that are 1 or multiples of 16.
    """
    if kernel is None:
        return lambda kernel: jit(kernel, lengths=lengths)
    return kernel if triton is None else triton.jit(kernel, do_not_specialize=list(lengths))


def tuned(
    key: list[str],
    *settings: dict[str, int],
    float32: tuple[dict[str, int], ...] = (),
    promising: Callable[..., bool] | None = None,
) -> Callable[[Callable], Any]:
    """Apply `triton.autotune` over `settings` (block sizes, num_warps, num_stages), once per value of `key`.

    The interpreter cannot time, so it uses the first setting, which should therefore work on every GPU.

    Args:
        key: names of the arguments whose values select a setting.
        float32: other settings for kernels whose first argument is in float32. Tensor cores do not compute such
            products exactly, so each thread computes its products one by one. With large tiles, ptxas then compiles for
            a minute, and the code spills its registers.
        promising: called with the block sizes of a setting and the keyword arguments of a call; returns whether the
            setting is worth timing. If it rejects all settings, all are timed.
    """
    if triton is None:
        return lambda kernel: kernel
    if INTERPRETED:
        return triton.autotune([_config(settings[0])], key=key)
    usual, exact = [_config(setting) for setting in settings], [_config(setting) for setting in float32]

    def suited(configs: list[Any], arguments: dict[str, Any], **others: Any) -> list[Any]:
        if exact and next(iter(arguments.values())).dtype == torch.float32:
            return exact
        if promising is None or not others:
            return usual
        return [config for config in usual if promising(config.kwargs, **others)] or usual

    quick = partial(do_bench, warmup=5, rep=20)  # milliseconds per setting; triton's default is 125
    return triton.autotune(usual + exact, key=key, prune_configs_by={"early_config_prune": suited}, do_bench=quick)


def _config(setting: dict[str, int]) -> Any:
    blocks = {name: value for name, value in setting.items() if name.isupper()}
    options = {name: value for name, value in setting.items() if not name.isupper()}
    return triton.Config(blocks, **options)
