"""Which way kernels run here: compiled for a GPU, interpreted on the CPU, or as their references in torch.

Importing a kernel needs neither triton nor a GPU: without triton (macOS has none) the decorators below leave a kernel
as a plain function that nobody calls. `TRITON_INTERPRET=1` must be in the environment before the first import of
triton, which fixes the choice for the whole process.
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
    """What the launchers will do: "compiled", "interpreted" or "reference"."""
    if INTERPRETED:
        return "interpreted"
    return "compiled" if triton is not None and torch.cuda.is_available() else "reference"


def reason() -> str:
    """One sentence on why `mode()` says what it says."""
    if INTERPRETED:
        return (
            f"TRITON_INTERPRET is set, so triton {triton.__version__} interprets kernels on the CPU: right, but slow."
        )
    if triton is None:
        return "triton is not installed (it exists for Linux only), so kernels run as their references in torch."
    if not torch.cuda.is_available():
        return f"triton {triton.__version__} found no GPU, so kernels run as their references in torch."
    return f"triton {triton.__version__} compiles kernels for {torch.cuda.get_device_name()}."


def runs_kernel(tensor: Tensor) -> bool:
    """Whether a launcher given this tensor runs the kernel; if not, it runs the reference."""
    return triton is not None and (INTERPRETED or tensor.is_cuda)


def programs_to_fill(device: torch.device, a_multiprocessor: int, elsewhere: int) -> int:
    """How many programs keep a GPU busy: so many for each of its multiprocessors. `elsewhere` where there is none."""
    if device.type != "cuda":
        return elsewhere
    return a_multiprocessor * torch.cuda.get_device_properties(device).multi_processor_count


def cdiv(n: int, by: int) -> int:
    """n / by, rounded up. triton.cdiv says the same, but takes a microsecond to find out where it is called."""
    return -(-n // by)


def power_of_two(n: int) -> int:
    """The lowest that is no less than n, as triton.next_power_of_2 gives it."""
    return 1 << (n - 1).bit_length()


def overlap_of(device: torch.device) -> dict[str, bool]:
    """Launch options of a kernel that starts before the one before it has ended, where the GPU has this (Hopper on).

    It has to call `tl.extra.cuda.gdc_wait()` before it reads or writes memory that the kernel before it uses, and that
    one `gdc_launch_dependents()`, or nothing overlaps. No options on a CPU and on older GPUs.
    """
    return {"launch_pdl": True} if _can_overlap(device) and not _in_order.get() else {}


@lru_cache  # asked for at each call of a layer, where the host often is what takes the time
def _can_overlap(device: torch.device) -> bool:
    return not INTERPRETED and device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


@contextmanager
def one_by_one() -> Iterator[None]:
    """Inside, no kernel starts before the one before it has ended, which is what work in several streams relies on."""
    token = _in_order.set(True)
    try:
        yield
    finally:
        _in_order.reset(token)


def jit(kernel: Callable | None = None, *, lengths: tuple[str, ...] = ()) -> Any:
    """`triton.jit` where there is triton.

    `lengths` are arguments that change from call to call. One binary serves all their values; triton would compile
    anew where one is 1 or a multiple of 16.
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
    """`triton.autotune` over `settings` (block sizes, num_warps, num_stages), once for each value of `key`.

    `float32`: other settings where the kernel's first argument is in float32. No tensor core makes such products
    exactly, so each thread has its share of them written out one by one: from a large tile, ptxas makes for a minute
    code that keeps nothing in registers.

    `promising(setting, **named)`: whether a setting is worth timing for these arguments, of those given by name. All
    are timed where it refuses all.

    The interpreter cannot time, so it takes the first setting; that is also the one to try first on a new GPU.
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

    quick = partial(do_bench, warmup=5, rep=20)  # milliseconds a setting, where triton would take 125
    return triton.autotune(usual + exact, key=key, prune_configs_by={"early_config_prune": suited}, do_bench=quick)


def _config(setting: dict[str, int]) -> Any:
    blocks = {name: value for name, value in setting.items() if name.isupper()}
    options = {name: value for name, value in setting.items() if not name.isupper()}
    return triton.Config(blocks, **options)
