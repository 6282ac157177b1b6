"""The JSON files of measured tables: what was run, where, and the rows. Written whole or not at all."""

import json
import math
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers

from course_lib.measure import processor_name

RESULTS = Path(__file__).with_name("results")


def load(name: str) -> dict[str, Any]:
    """A committed result: "tables" holds the rows by table, the other keys say how they came about."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise ValueError(f"got result {name!r}, which is not in {RESULTS}; make it with `course reproduce {name}`.")
    return json.loads(path.read_text(encoding="utf-8"))


def heading(experiment: str, command: str, seed: int, sizes: dict[str, Any]) -> dict[str, Any]:
    """What identifies a run, and no results yet."""
    return {
        "experiment": experiment,
        "command": command,
        "seed": seed,
        "sizes": plain(sizes),
        "machine": machine(),
        "started": now(),
        "steps": {},
        "tables": {},
    }


def machine() -> dict[str, Any]:
    """Where the numbers come from: times depend on it, and the last digits of everything else."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "cpu": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gigabytes": round(psutil.virtual_memory().total / 1e9),
        "gpu": gpu,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def continued(earlier: dict[str, Any], fresh: dict[str, Any], path: Path) -> dict[str, Any]:
    """The earlier result, if it was made the same way; numbers made in two ways do not belong into one file."""
    for key in ("experiment", "seed", "sizes", "machine"):
        if (got := earlier.get(key)) != fresh[key]:
            raise ValueError(
                f"{path} was made with {key} {json.dumps(got)}, this run has {json.dumps(fresh[key])}. "
                "Write elsewhere with --out, or measure everything anew with --no-resume."
            )
    return earlier


def write(result: dict[str, Any], path: Path) -> None:
    """Whole or not at all. NaN, which JSON has no word for, becomes null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(plain(result), indent=1, ensure_ascii=False, allow_nan=False)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
