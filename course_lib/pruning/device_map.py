"""Prune a model that accelerate spreads over GPUs, memory and disk, with all weights loaded from the start."""

import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from course_lib.pruning.allocation.base import UNIFORM, Allocation
from course_lib.pruning.base import LayerPruner
from course_lib.pruning.report import PruneReport
from course_lib.pruning.sequential import prune_model
from course_lib.pruning.stream.resume import make_folder


def prune_dispatched(
    source: Path,
    out: Path,
    pruner: LayerPruner,
    calibration: Tensor,
    allocation: Allocation = UNIFORM,
    device_map: str | dict[str, str | int] = "auto",
    progress: bool = True,
    ignore: Sequence[str] = (),
) -> PruneReport:
    """Prune the checkpoint in `source` into the new folder `out`, on a GPU in the checkpoint's type, else in float32.

    Unlike `prune_checkpoint` it cannot resume an interrupted run: `out` appears only when it is complete.

    Raises:
        ValueError: accelerate is not installed, or the request is not possible.
    """
    if importlib.util.find_spec("accelerate") is None:
        raise ValueError("a device map needs accelerate, which is not installed: run `pip install accelerate`.")
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ValueError(f"{out} is there already and not an empty folder; nothing is overwritten. Give a new folder.")
    dtype = "auto" if torch.cuda.is_available() else torch.float32
    make_folder(out.parent)
    with tempfile.TemporaryDirectory(prefix=f"{out.name}.", suffix=".part", dir=out.parent) as folder:
        model = AutoModelForCausalLM.from_pretrained(
            source, device_map=device_map, dtype=dtype, offload_folder=Path(folder) / "offloaded"
        )
        report = prune_model(model.eval(), pruner, calibration, progress, allocation, ignore)
        model.save_pretrained(Path(folder) / "out")
        if any(source.glob("tokenizer*")):
            AutoTokenizer.from_pretrained(source).save_pretrained(Path(folder) / "out")
        (Path(folder) / "out").replace(out)
    return report
