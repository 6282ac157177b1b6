"""The results of `make gpu`: one JSON file, written atomically after each part, and the same as text."""

import json
import math
import os
import platform
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from course_lib.kernels.gpu.process import Outcome, Part, Record
from course_lib.kernels.timing import WORDS

TYPES = ("float32", "float16", "bfloat16")


def environment(device: Any) -> dict[str, Any]:
    """Describe the machine and the versions; `device` is torch's."""
    import numpy
    import torch

    from course_lib.kernels import runtime

    machine = {"name": platform.processor() or platform.machine(), "kernels": runtime.mode(), "driver": None}
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        machine |= {"name": card.name, "driver": _driver(), "cuda": torch.version.cuda}
        machine |= {"capability": f"{card.major}.{card.minor}", "multiprocessors": card.multi_processor_count}
        machine |= {"memory_bytes": card.total_memory, "cache_bytes": getattr(card, "L2_cache_size", None)}
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__}
    return machine | versions | {"triton": getattr(runtime.triton, "__version__", None), "cores": os.cpu_count()}


def _driver() -> str | None:
    """Return the driver's version from nvidia-smi; torch does not report it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return output.strip().splitlines()[0] if output.strip() else None


class Report:
    """The results so far, as JSON."""

    def __init__(self, path: Path, command: str) -> None:
        self.path, self.begin = path, time.monotonic()
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self.content: dict[str, Any] = {"experiment": "gpu", "command": command, "started": started, "complete": False}
        self.content |= {"device": {}, "ceilings": {}, "tests": {}, "benches": {}, "wrong": []}

    def write(self, **values: Any) -> None:
        """Write the file atomically."""
        self.content |= values | {"seconds": round(time.monotonic() - self.begin, 1)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(_plain(self.content), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        temporary.replace(self.path)

    def add(self, part: Part, outcome: Outcome) -> list[str]:
        """Add a part's results, write the file, and return a description of the results."""
        label = part.name.split(".")[-1] if part.kind == "bench" else Path(part.name).stem
        entry, lines = (_tests if part.kind == "tests" else _bench)(outcome)
        entry["status"] = entry.get("status") or (
            "broken" if outcome.broken else "wrong" if entry["wrong"] else "right"
        )
        earlier = f"{part.kind} {label}: "  # lines of a part that was resumed and is added again
        self.content["wrong"] = [line for line in self.content["wrong"] if not line.startswith(earlier)]
        self.content["wrong"] += [f"{part.kind} {label}: {what}" for what in entry["wrong"]]
        self.content["wrong"] += [f"{part.kind} {label}: {step}: {how}" for step, how in outcome.broken.items()]
        self.content["tests" if part.kind == "tests" else "benches"][label] = entry
        self.write()
        ended = [f"  ENDED at {step}: {how.splitlines()[0]}" for step, how in outcome.broken.items()]
        return [f"{part.kind} {label}: {entry['status']}, {lines[0]} ({outcome.seconds:.0f} s)", *lines[1:], *ended]


def _tests(outcome: Outcome) -> tuple[dict[str, Any], list[str]]:
    """Count the outcomes, also by type, and list the failed tests with their messages."""
    ran = [record for record in outcome.records if record["record"] == "test"]
    count = Counter(test["outcome"] for test in ran)
    by_type = {kind: Counter(test["outcome"] for test in ran if kind in _types(test["name"])) for kind in TYPES}
    failed = [test for test in ran if test["outcome"] == "failed"]
    entry = {"passed": count["passed"], "failed": count["failed"], "skipped": count["skipped"], "by_type": by_type}
    entry |= {"seconds": outcome.seconds, "failures": failed, "broken": outcome.broken}
    entry["wrong"] = [test["name"].split("::")[-1] for test in failed]
    if not count["passed"] and not failed and not outcome.broken:
        entry["wrong"] = ["no test ran"]
    lines = [f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped"]
    return entry, lines + [f"  FAILED {test['name'].split('::')[-1]}: {_last(test['message'])}" for test in failed]


def _types(name: str) -> set[str]:
    """Return the types among the parameters in a test's name."""
    return set(name.partition("[")[2].rstrip("]").split("-"))


def _bench(outcome: Outcome) -> tuple[dict[str, Any], list[str]]:
    """Return the rows of `course bench`, and the errors on other numbers."""
    entry: dict[str, Any] = {"seconds": outcome.seconds, "broken": outcome.broken, "rows": [], "absent": {}}
    entry |= {"refused": {}, "wrong": [], "other_numbers": {}, "stopped": None}
    for record in outcome.records:
        _take(entry, record)
    if entry.get("status") == "absent":
        return entry, [entry["message"]]
    n_contests = len({row["contest"] for row in entry["rows"]})
    short = entry["stopped"] or entry.get("unchecked")
    lines = [f"{n_contests} comparisons{', ' + short if short else ''}"]
    lines += [_line(row) for row in entry["rows"]]
    lines += [f"  absent: {side}: {why}" for side, why in entry["absent"].items()]
    return entry, lines + [f"  FAILED {side}: {_last(why)}" for side, why in entry["refused"].items()]


def _take(entry: dict[str, Any], record: Record) -> None:
    kind, name = record["record"], record.get("name")
    if kind == "absent":
        entry |= {"status": "absent", "message": record["message"].replace(str(Path.home()), "~")}
    elif kind == "settings":
        entry |= {"dtype": record["dtype"], "tolerance": record["tolerance"], "seeds": record["seeds"]}
    elif kind == "contest":
        entry["rows"] += record["rows"]
        entry["absent"] |= {f"{name}: {side}": why for side, why in record["absent"].items()}
        entry["refused"] |= {f"{name}: {side}": why for side, why in record["refused"].items()}
        entry["wrong"] += [f"{name}: {row['side']}" for row in record["rows"] if not row["right"]]
        entry["wrong"] += [f"{name}: {side}: {why}" for side, why in record["refused"].items()]
    elif kind == "checked":
        entry["other_numbers"][name] = {side: error for side, (error, _) in record["errors"].items()}
        entry["wrong"] += [f"{name}, other numbers: {s}" for s, (_, right) in record["errors"].items() if not right]
    elif kind in ("stopped", "unchecked"):
        entry[kind] = record["message"]
    elif kind == "memory":
        entry["peak_bytes"] = record["peak_bytes"]


def _line(row: dict[str, Any]) -> str:
    """Format the median, the bound and the speedup over the reference."""
    head = f"  {row['contest'][:32]:<32} {row['side'][:28]:<28}"
    word = WORDS.get(row["verdict"], row["verdict"])
    if not row["repetitions"]:
        return f"{head} {word}, relative error {row['relative_error']:.1e}"
    times = f"{row['median_seconds'] * 1e6:>10,.1f} us, bound {row['bound_seconds'] * 1e6:>9,.1f} us"
    line = f"{head} {times} ({100 * row['share_of_bound']:>3.0f} %), {row['times_anchor']:>6.2f}x  {word}"
    numbers = row.get("numbers", {}).items()
    further = [f"{name}: {value}" if isinstance(value, str) else f"{name} {value:,.6g}" for name, value in numbers]
    return "\n    ".join([line, *([", ".join(further)] if further else [])])


def _last(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""


def _plain(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
