"""The JSON files of measured tables: settings, machine, and rows. They are written completely or not at all."""

import json
import math
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil


def load(path: Path) -> dict[str, Any]:
    """Load a result: "tables" holds the rows by table, the other keys describe how they were measured."""
    if not path.exists():
        raise ValueError(f"got {path}, which is not there; expected what `course reproduce` or `course bench` wrote.")
    return json.loads(path.read_text(encoding="utf-8"))


def heading(experiment: str, command: str, seed: int, sizes: dict[str, Any]) -> dict[str, Any]:
    """Return the entries that identify a run, without any results."""
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
    """Describe the machine: times depend on it, and so do the last digits of all other numbers."""
    import torch  # imported here, since reading a result needs neither
    import transformers

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


def processor_name() -> str:
    """Return the name of the CPU if the system provides it."""
    import torch

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine() or "CPU"
    return f"{name}, {torch.get_num_threads()} threads"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def continued(earlier: dict[str, Any], fresh: dict[str, Any], path: Path) -> dict[str, Any]:
    """Load the earlier result if it was measured in the same way; one file holds no numbers of different runs."""
    for key in ("experiment", "seed", "sizes", "machine", "part"):  # of the model, which a quick run alone has
        if (got := earlier.get(key)) != (wanted := fresh.get(key)):
            raise ValueError(
                f"{path} was made with {key} {json.dumps(got)}, this run has {json.dumps(wanted)}. "
                "Write elsewhere with --out, or measure everything again with --no-resume."
            )
    return earlier


def write(result: dict[str, Any], path: Path) -> None:
    """Write a file completely or not at all: the finished text replaces the file in one step."""
    text = as_text(result)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def as_text(result: dict[str, Any]) -> str:
    """Format as JSON with one line per row of a table and per step, so that a diff shows which rows changed."""
    parts = {key: _line(value) for key, value in result.items()}
    parts["steps"] = _block([f"{_line(name)}: {_line(step)}" for name, step in result["steps"].items()], "{}")
    tables = [f"{_line(name)}: {_block(map(_line, rows), '[]', 2)}" for name, rows in result["tables"].items()]
    parts["tables"] = _block(tables, "{}")
    return _block([f"{_line(key)}: {text}" for key, text in parts.items()], "{}", 0) + "\n"


def _block(lines: Iterable[str], brackets: str, depth: int = 1) -> str:
    inner = "".join(f",\n{' ' * (depth + 1)}{line}" for line in lines)[1:]
    return f"{brackets[0]}{inner}\n{' ' * depth}{brackets[1]}" if inner else brackets


def _line(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Convert to what JSON returns after loading: keys are strings, tuples are lists, and NaN is null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
