"""The checks of `course doctor`: one function per row, which returns what it found and what to do about it."""

import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import psutil
import torch

from course_lib.data.assets.cache import asset_path, cache_folder
from course_lib.data.assets.catalogue import ASSETS
from course_lib.data.assets.checkpoint import quiet_transformers, verify_model
from course_lib.measure.machine import copy_bytes_per_second, decode_seconds, measure_device, prefill_seconds

FREE_BYTES = 2 * 10**9  # the most that set-up and a long session of writing results take
# The machine on which the lessons were timed: two cores, float32. A factor of two is worth a warning.
USUAL_FLOPS_PER_SECOND, USUAL_BYTES_PER_SECOND, SLOW = 120e9, 18e9, 2.0
BUSY = 50  # percent of all processors that other programs use


@dataclass(frozen=True)
class Row:
    """The result of one check."""

    what: str
    state: Literal["ok", "warning", "error"]
    found: str
    remedy: str = ""


def check_python() -> Row:
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.prefix == sys.base_prefix:
        remedy = "Install the course into one, as `make lab` does."
        return Row("Python", "warning", f"{python}, outside a virtual environment", remedy)
    return Row("Python", "ok", python)


def check_torch() -> Row:
    return Row("torch", "ok", f"torch {torch.__version__}, transformers {version('transformers')}")


def check_threads() -> Row:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    counts = f"{threads} {'thread' if threads == 1 else 'threads'}, {cores} {'core' if cores == 1 else 'cores'}"
    if 2 * threads < cores and threads < 4:
        return Row("threads", "warning", counts, "Unset OMP_NUM_THREADS; torch then uses every physical core.")
    if threads > cores:
        return Row(
            "threads", "warning", counts, f"Set OMP_NUM_THREADS={cores}; more threads than cores slow torch down."
        )
    return Row("threads", "ok", counts)


def check_gpu() -> Row:
    if not torch.cuda.is_available():
        return Row("GPU", "ok", "none that torch can use; no lesson needs one")
    memory = torch.cuda.get_device_properties(0).total_memory
    return Row("GPU", "ok", f"{torch.cuda.get_device_name(0)}, {memory / 1e9:.0f} GB")


def check_kernels() -> Row:
    from course_lib.kernels import runtime

    return Row("triton", "ok", runtime.reason())


def check_jupyter() -> Row:
    return Row("JupyterLab", "ok", f"jupyterlab {version('jupyterlab')}, ipywidgets {version('ipywidgets')}")


def check_kernelspec() -> Row:
    from jupyter_client.kernelspec import KernelSpecManager

    program = KernelSpecManager().get_kernel_spec("python3").argv[0]
    executable = shutil.which(program) if program not in ("python", "python3") else sys.executable
    if executable is None or Path(executable).absolute() != Path(sys.executable).absolute():
        remedy = "Another environment's kernel is found first; remove it with `jupyter kernelspec uninstall python3`."
        return Row("kernelspec", "error", f"python3 starts {program}, not {sys.executable}", remedy)
    return Row("kernelspec", "ok", "python3 starts this environment")


# BEGIN INSTRUCTORS
def check_sandbox() -> Row:
    """Check whether submissions can be graded here. Students do not need it."""
    from course_lib.grading.sandbox import bubblewrap, session

    if problem := session.unavailable():
        return Row("sandbox", "warning", "not available for `course grade`", problem)
    return Row("sandbox", "ok", f"{bubblewrap.version()}, for `course grade`")


# END INSTRUCTORS


def check_cache() -> Row:
    problems = []
    for asset in ASSETS:
        try:
            asset_path(asset.name)
        except FileNotFoundError as error:
            problems.append(str(error).split(" (", 1)[0].removeprefix("The asset "))
    if problems:
        return Row("cache", "error", "; ".join(problems), "Run `course setup`.")
    return Row("cache", "ok", f"{len(ASSETS)} assets in {cache_folder()}")


def check_disk() -> Row:
    folder = cache_folder()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    space = f"{free / 1e9:.0f} GB free in {folder}"
    if free < FREE_BYTES:
        remedy = f"Make room ({FREE_BYTES / 1e9:.0f} GB), or set COURSE_CACHE to a folder on a larger disk."
        return Row("disk", "warning", space, remedy)
    return Row("disk", "ok", space)


def check_load() -> Row:
    """Check whether other programs leave enough of the processors."""
    percent = psutil.cpu_percent(interval=0.5)
    found = f"other programs use {percent:.0f} % of the processors"
    if percent > BUSY:
        return Row("load", "warning", found, "Close them; until then, cells take longer than the lessons say.")
    return Row("load", "ok", found)


def check_model() -> Row:
    """Load the model as the lessons do, verify its output, and time it."""
    from course_lib.models import load_model

    with quiet_transformers():
        model, tokenizer = load_model(device="cpu")
    proof = f"tokenizer round trip and loss {verify_model(model, tokenizer):.4f} as recorded"
    decode, prefill = 1 / decode_seconds(model, steps=4), 128 / prefill_seconds(model, 128, repeats=1)
    return Row("model", "ok", f"{proof}; prefill {prefill:.0f} tokens/s, decode {decode:.1f} tokens/s on the CPU")


def check_speed() -> Row:
    device = measure_device()
    speeds = (
        f"{device.flops_per_second / 1e9:.0f} GFLOP/s (float32 matmul), {device.bytes_per_second / 1e9:.1f} GB/s read"
    )
    copied = copy_bytes_per_second(torch.device("cpu"))
    found = f"{speeds}, {copied / 1e9:.1f} GB/s copy (read + written)"
    times = max(USUAL_FLOPS_PER_SECOND / device.flops_per_second, USUAL_BYTES_PER_SECOND / device.bytes_per_second)
    if times >= SLOW:
        remedy = f"Cells may take about {times:.0f} times as long as the lessons say. Close other programs."
        return Row("speed", "warning", found, remedy)
    return Row("speed", "ok", found)


CHECKS: tuple[tuple[str, Callable[[], Row], str], ...] = (
    ("Python", check_python, "Install Python 3.11 or newer."),
    ("torch", check_torch, "Install the course again, as `make lab` does in a checkout."),
    ("threads", check_threads, ""),
    ("GPU", check_gpu, "The driver and torch disagree. To run the lessons without a GPU, set CUDA_VISIBLE_DEVICES="),
    ("triton", check_kernels, "Install the course again, as `make lab` does in a checkout."),
    ("JupyterLab", check_jupyter, "Install the course again, as `make lab` does in a checkout."),
    ("kernelspec", check_kernelspec, "Run `python -m ipykernel install --sys-prefix` in the environment."),
    # BEGIN INSTRUCTORS
    ("sandbox", check_sandbox, "Only instructors need it, for `course grade`."),
    # END INSTRUCTORS
    ("disk", check_disk, "Set COURSE_CACHE to a folder that you may write to."),
    ("cache", check_cache, "Run `course setup`."),
    ("load", check_load, ""),
    ("model", check_model, "Run `course setup`, which verifies the files and repairs them."),
    ("speed", check_speed, "Close other programs: about 1 GB of memory is needed."),
)
