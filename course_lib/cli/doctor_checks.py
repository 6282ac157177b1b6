"""What `course doctor` looks at: one function a row, each saying what was found and what to do about it."""

import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import torch

from course_lib.data.assets.cache import asset_path, cache_folder
from course_lib.data.assets.catalogue import ASSETS
from course_lib.data.assets.checkpoint import quiet_transformers, verify_model
from course_lib.measure.machine import copy_bytes_per_second, decode_seconds, measure_device, prefill_seconds

FREE_BYTES = 2 * 10**9  # what set-up and a long session of writing results take at most


@dataclass(frozen=True)
class Row:
    """One thing that was looked at."""

    what: str
    state: Literal["ok", "warning", "error"]
    found: str
    remedy: str = ""


def check_python() -> Row:
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.prefix == sys.base_prefix:
        remedy = "Install the course into one; `make lab` makes one."
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
        return Row("GPU", "ok", "none that torch can use; every lesson runs without")
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
    """Whether submissions can be graded here. Students do not need it."""
    from course_lib.grading.sandbox import bubblewrap, session

    if problem := session.unavailable():
        return Row("sandbox", "warning", "`course grade` has none", problem)
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


def check_model() -> Row:
    """Load the model as the lessons do, have it prove itself, and time it."""
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
    return Row("speed", "ok", f"{speeds}, {copied / 1e9:.1f} GB/s copy (read + written)")


CHECKS: tuple[tuple[str, Callable[[], Row], str], ...] = (
    ("Python", check_python, "Install Python 3.11 or newer."),
    ("torch", check_torch, "Install the course anew, as `make lab` does in a checkout."),
    ("threads", check_threads, ""),
    ("GPU", check_gpu, "The driver and torch disagree; without a GPU the lessons run too: set CUDA_VISIBLE_DEVICES="),
    ("triton", check_kernels, "Install the course anew, as `make lab` does in a checkout."),
    ("JupyterLab", check_jupyter, "Install the course anew, as `make lab` does in a checkout."),
    ("kernelspec", check_kernelspec, "Run `python -m ipykernel install --sys-prefix` in the environment."),
    # BEGIN INSTRUCTORS
    ("sandbox", check_sandbox, "Only instructors need it, for `course grade`."),
    # END INSTRUCTORS
    ("disk", check_disk, "Set COURSE_CACHE to a folder that can be written."),
    ("cache", check_cache, "Run `course setup`."),
    ("model", check_model, "Run `course setup`, which checks the files and makes them again if needed."),
    ("speed", check_speed, "Close other programs: about 1 GB of memory is needed."),
)
