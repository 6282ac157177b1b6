"""Progress of loops that take seconds to hours: a bar in a terminal or a notebook, and an occasional line in a log.

Trap: in a notebook every refresh of a bar is four messages to the browser. At rich's ten refreshes per second, a cell
of two minutes sends thousands. A client that reads them only at the end of the cell, as nbval does, loses the last
ones, including the message that the cell has finished.
"""

import threading
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

REFRESHES_PER_SECOND = 1
LOG_SECONDS = 10.0  # between two lines of a log, or a tenth of the time so far if that is more, so that logs stay short

_open: list["Bar"] = []  # the outermost is first


def tracked(
    sequence: Iterable[Any], what: str, show: bool = True, total: int | None = None, console: Console | None = None
) -> Iterator[Any]:
    """Iterate over `sequence` with a bar that shows `what` and disappears at the end; without a bar unless `show`.

    Args:
        total: the length of a sequence that has no `len`.
    """
    with bar(show, console) as shown:
        yield from shown.track(sequence, total, description=what)


def bar(show: bool = True, console: Console | None = None) -> "Bar":
    """Make a bar that is advanced by hand: `with bar() as shown: task = shown.add_task("scoring", total=3)`.

    Args:
        console: where to show it; the console of the bar around it, or else rich's own, for None.
    """
    return Bar(show, console or (_open[0].console if _open else None))


class Bar(Progress):
    """A rich bar. In a file or pipe, which cannot show a bar, a line every ten seconds shows all open bars."""

    def __init__(self, show: bool, console: Console | None) -> None:
        counts = MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
        super().__init__(
            *(TextColumn("{task.description}", markup=False), BarColumn(), *counts),
            console=console,
            transient=True,
            refresh_per_second=REFRESHES_PER_SECOND,
            disable=not show,
        )
        self._stopped = threading.Event()
        self._log: threading.Thread | None = None

    def start(self) -> None:
        if self.disable:
            return
        _open.append(self)
        if self.console.is_interactive or self.console.is_jupyter:
            super().start()
        elif _open[0] is self:
            self._log = threading.Thread(target=self._write_lines, daemon=True)
            self._log.start()

    def stop(self) -> None:
        if self in _open:
            _open.remove(self)
        self._stopped.set()
        if self._log is not None:
            self._log.join()  # no line comes after the last one of the caller
        elif self.live.is_started:
            super().stop()

    def _write_lines(self) -> None:
        start, seconds = self.get_time(), LOG_SECONDS
        while not self._stopped.wait(seconds):
            elapsed = self.get_time() - start
            tasks = [each.tasks[-1] for each in tuple(_open) if each.tasks]
            done = [f": {task.completed:g} of {task.total:g} done" if task.total else "" for task in tasks]
            texts = "; ".join(f"{task.description}{n}" for task, n in zip(tasks, done, strict=True))
            line = f"{timedelta(seconds=round(elapsed))}  {texts}"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)
            seconds = max(LOG_SECONDS, elapsed / 10)
