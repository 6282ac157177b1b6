"""One part in a process of its own, with a limit on its time, started again behind what crashed or hung.

The process appends records to a file (a line of JSON each) before and after each step, so that whatever happens to
it, what it had found is known, and which step was under way.
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
STARTS = 6  # of one part, each behind the step that ended the last
SETTINGS = "settings.json"  # of a process that waits for them
LAST_WORDS = 2000  # characters of what a process printed that are kept when it did not end by itself

Record = dict[str, Any]
_running: set[subprocess.Popen] = set()


@dataclass(frozen=True)
class Part:
    """What runs, in at most so many seconds for the whole, and for each step from one record to the next."""

    kind: str  # a function of parts.py
    name: str
    seconds: float
    step_seconds: float
    environment: dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """What the part recorded, and the steps that ended its process: which, and how."""

    records: list[Record]
    broken: dict[str, str]
    seconds: float


@dataclass(frozen=True)
class Waiting:
    """A process that has made the imports of its part, which take seconds, and waits for its settings."""

    folder: tempfile.TemporaryDirectory
    process: subprocess.Popen

    def go(self, settings: dict[str, Any]) -> subprocess.Popen:
        """Gives it its settings, in a file that appears whole."""
        written = Path(self.folder.name) / "settings.tmp"
        written.write_text(json.dumps(settings), encoding="utf-8")
        written.replace(Path(self.folder.name) / SETTINGS)
        return self.process

    def discard(self) -> None:
        """Ends it where its part gets no turn."""
        kill(self.process)
        self.folder.cleanup()


def start_early(kind: str, name: str) -> Waiting:
    """Starts the process of a part that `run` is to be called with later."""
    folder = tempfile.TemporaryDirectory(prefix="gpu-")
    records, printed = _files(folder.name)
    records.write_text("", encoding="utf-8")
    part = Part(kind, name, 0, 0, {})
    return Waiting(folder, _launch(part, records, f"@{Path(folder.name) / SETTINGS}", printed))


def run(
    part: Part, settings: dict[str, Any], earlier: Sequence[Record] = (), waiting: Waiting | None = None
) -> Outcome:
    """Starts the part, and again after a crash or a hang, as long as each start gets further.

    `earlier` is what it recorded before, in which it goes on; the outcome holds that, too. `waiting` is a process of
    this part that was started early; it has recorded nothing yet.
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
            ended = _end(process, part, records, begin + part.seconds)
            written = read(records)
            if written and written[-1]["record"] == "end":
                break
            words = printed.read_text(errors="replace")[-LAST_WORDS:].strip()
            steps = [record["name"] for record in written[n_before:] if record["record"] == "begin"]
            broken[steps[-1] if steps else "start"] = f"{ended}. {words}"
            if not steps or time.monotonic() > begin + part.seconds:
                break
        return Outcome(read(records), broken, time.monotonic() - begin)


def _files(folder: str) -> tuple[Path, Path]:
    """Where a process records what it finds, and where what it prints goes."""
    return Path(folder) / "records.jsonl", Path(folder) / "printed.txt"


def read(path: Path) -> list[Record]:
    """The whole lines of a file of records; the process may have died within the last."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def _launch(part: Part, records: Path, settings: str, printed: Path) -> subprocess.Popen:
    """Its process; the settings are JSON, or @ and the file in which they will be."""
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
    """How the process ended."""
    try:
        return _wait(process, part, records, end)
    finally:
        kill(process)


def _wait(process: subprocess.Popen, part: Part, records: Path, end: float) -> str:
    size, since = records.stat().st_size, end  # a step is waited for once the first record shows that all is loaded
    while process.poll() is None:
        time.sleep(0.05)
        now = time.monotonic()
        if (length := records.stat().st_size) != size:
            size, since = length, now
        if now > end:
            return f"out of time: the {part.seconds:.0f} s for all of {part.name} were up"
        if now > since + part.step_seconds:
            return f"hung: no end after {part.step_seconds:.0f} s"
    if process.returncode < 0:
        return f"killed by {signal.Signals(-process.returncode).name}"
    return f"ended with exit code {process.returncode}"


def kill(process: subprocess.Popen) -> None:
    """With all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _running.discard(process)


@atexit.register
def _kill_all() -> None:
    for process in list(_running):
        kill(process)
