"""Run one part in its own process with a time limit, and start it again after the step that crashed or hung.

The process appends records (one line of JSON each) to a file before and after each step. So if it crashes, its earlier
results are known, and so is the step that it was running.
"""

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Some containers switch float32 products to tf32, which has 11 bits instead of 24.
ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "NVIDIA_TF32_OVERRIDE": "0", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "0"}
STARTS = 6  # of one part; each start skips the step that ended the process before
SETTINGS = "settings.json"  # the file that a waiting process reads
LAST_WORDS = 2000  # last characters of a failed process's output that are kept

Record = dict[str, Any]
_running: set[subprocess.Popen] = set()


@dataclass(frozen=True)
class Part:
    """What to run, and two limits in seconds: for the whole part, and for each step from one record to the next."""

    kind: str  # a function of parts.py
    name: str
    seconds: float
    step_seconds: float
    environment: dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """The records of a part; `broken` maps each step that ended a process to how it ended."""

    records: list[Record]
    broken: dict[str, str]
    seconds: float


@dataclass(frozen=True)
class Waiting:
    """A process that imports the modules of its part, which takes seconds, and then waits for its settings."""

    folder: tempfile.TemporaryDirectory
    process: subprocess.Popen

    def go(self, settings: dict[str, Any]) -> subprocess.Popen:
        """Pass the settings in a file that is renamed when complete, so that the process never reads half of it."""
        temporary = Path(self.folder.name) / "settings.tmp"
        temporary.write_text(json.dumps(settings), encoding="utf-8")
        temporary.replace(Path(self.folder.name) / SETTINGS)
        return self.process

    def discard(self) -> None:
        """End the process of a part that will not run."""
        kill(self.process)
        self.folder.cleanup()


def start_early(kind: str, name: str) -> Waiting:
    """Start the process of a part before its turn; pass the result to `run`."""
    folder = tempfile.TemporaryDirectory(prefix="gpu-")
    records, printed = _files(folder.name)
    records.write_text("", encoding="utf-8")
    part = Part(kind, name, 0, 0, {})
    return Waiting(folder, _launch(part, records, f"@{Path(folder.name) / SETTINGS}", printed))


def run(
    part: Part, settings: dict[str, Any], earlier: Sequence[Record] = (), waiting: Waiting | None = None
) -> Outcome:
    """Run the part, and start it again after a crash or a hang, as long as each start begins a new step.

    Args:
        part: what to run, with its limits.
        settings: passed to the process as JSON.
        earlier: records of an earlier run of this part, which continues from there; the outcome includes them.
        waiting: a process of this part that was started early and has recorded nothing yet.
    """
    begin, broken = time.monotonic(), {}
    with waiting.folder if waiting else tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        records, printed = _files(folder)
        if waiting is None:
            records.write_text("".join(json.dumps(record) + "\n" for record in earlier), encoding="utf-8")
        for start in range(STARTS):
            n_before = len(read(records))
            if waiting and start == 0:
                process = waiting.go(settings)
            else:
                process = _launch(part, records, json.dumps(settings), printed)
            reason = _end(process, part, records, begin + part.seconds)
            lines = read(records)
            if lines and lines[-1]["record"] == "end":
                break
            output = printed.read_text(errors="replace")[-LAST_WORDS:].strip()
            steps = [record["name"] for record in lines[n_before:] if record["record"] == "begin"]
            broken[steps[-1] if steps else "start"] = f"{reason}. {output}"
            if not steps or time.monotonic() > begin + part.seconds:
                break
        return Outcome(read(records), broken, time.monotonic() - begin)


def _files(folder: str) -> tuple[Path, Path]:
    """Return the paths of a process's records and of its printed output."""
    return Path(folder) / "records.jsonl", Path(folder) / "printed.txt"


def read(path: Path) -> list[Record]:
    """Read the complete lines of a file of records; a process that was killed may leave half a line at the end."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def _launch(part: Part, records: Path, settings: str, printed: Path) -> subprocess.Popen:
    """Start the process of a part; `settings` is JSON, or @PATH of a file that will contain it."""
    command = [sys.executable, "-m", "course_lib.kernels.gpu.parts", part.kind, part.name, str(records), settings]
    with printed.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | ENVIRONMENT | part.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _running.add(process)
    return process


def _end(process: subprocess.Popen, part: Part, records: Path, end: float) -> str:
    """Wait for the process, kill it if it is still running, and return how it ended."""
    try:
        return _wait(process, part, records, end)
    finally:
        kill(process)


def _wait(process: subprocess.Popen, part: Part, records: Path, end: float) -> str:
    # The limit per step applies only after the first new record, which shows that all modules are loaded.
    size, since = records.stat().st_size, end
    while process.poll() is None:
        time.sleep(0.05)
        now = time.monotonic()
        if (length := records.stat().st_size) != size:
            size, since = length, now
        if now > end:
            return f"out of time: {part.name} reached its limit of {part.seconds:.0f} s"
        if now > since + part.step_seconds:
            return f"hung: no end after {part.step_seconds:.0f} s"
    if process.returncode < 0:
        return f"killed by {signal.Signals(-process.returncode).name}"
    return f"ended with exit code {process.returncode}"


def kill(process: subprocess.Popen) -> None:
    """Kill the process and all processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _running.discard(process)


@atexit.register
def _kill_all() -> None:
    for process in list(_running):
        kill(process)
