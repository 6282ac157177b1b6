"""`course run`: execute a lesson from top to bottom, showing what it prints as it goes."""

import asyncio
import contextlib
import copy
import os
import re
import signal
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from course_lib.workbook import lookup, masters
from course_lib.workbook.build import write

CELL_SECONDS = 600
_FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$(?!\s)((?:[^$\n]|\n(?!\n))+?)(?<!\s)\$", re.DOTALL)


def run(lesson: str, *, student: bool = False, html: bool = False, root: Path = masters.ROOT) -> int:
    """Execute the master (checks raise) or the student notebook; keep the result under build/run/.

    In a student's copy, which has no masters, it is the notebook as it stands, with whatever was written in it.
    """
    console = Console()
    student = student or not (root / "solutions").is_dir()
    stem, notebook = _lesson(lesson, student, root)
    path = root / "build" / "run" / f"{stem}{'.student' if student else ''}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    try:
        error = execute(notebook, console, environment(root, strict=not student))
    finally:
        write(path, masters.as_text(notebook))
    seconds = time.perf_counter() - start
    if error:
        console.print(error, style="red", markup=False)
    console.print(f"{'Failed' if error else 'Ran'} in {seconds:.0f} s: {path}", soft_wrap=True)
    if html:
        console.print(f"HTML: {_render(notebook, path)}", soft_wrap=True)
    return int(bool(error))


def _lesson(lesson: str, student: bool, root: Path) -> tuple[str, NotebookNode]:
    if not (root / "solutions").is_dir():
        (path,) = lookup.chosen([lesson], sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb")))
        return path.stem, nbformat.read(path, as_version=4)
    (master,) = masters.masters([lesson], root)
    return master.stem, masters.for_students(master) if student else masters.with_solutions(master)


def execute(notebook: NotebookNode, console: Console, environment: dict[str, str]) -> str | None:
    """Run all cells in a fresh kernel. None, or the error of the cell that failed; earlier outputs are kept.

    Raises:
        KeyboardInterrupt: when it is asked for; the kernel has ended by then.
    """
    n_code = sum(cell.cell_type == "code" for cell in notebook.cells)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    stopped = asyncio.Event()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("cells", total=n_code)

        def done(cell: NotebookNode, cell_index: int, **_) -> None:
            progress.advance(task)
            for output in cell.get("outputs", []):
                if text := _text(output):
                    progress.console.print(text.rstrip(), markup=False, highlight=False, soft_wrap=True)

        # What fails is said by the cell; warnings of the kernel say nothing to a student.
        quiet = ["--IPKernelApp.log_level=50"]
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            iopub_timeout=CELL_SECONDS,  # a busy machine may send a cell's output late; without it nothing would say so
            raise_on_iopub_timeout=True,
            kernel_name="python3",
            on_notebook_start=lambda notebook: _stop_when_asked(stopped),
            on_cell_executed=done,
            extra_arguments=quiet,
        )
        try:
            client.execute(env=environment)
        except (CellExecutionError, CellTimeoutError, DeadKernelError, asyncio.CancelledError) as error:
            if stopped.is_set():
                raise KeyboardInterrupt from None
            return str(error)
    return None


def _stop_when_asked(stopped: asyncio.Event) -> None:
    """Ctrl-C ends the run as an exception would. Left to itself nbclient ends the kernel twice, with a traceback."""
    running = asyncio.current_task()

    def stop() -> None:
        stopped.set()
        running.cancel()

    with contextlib.suppress(RuntimeError):  # Windows has no such signals, and no other thread than the first one
        for asked in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(asked, stop)


def _text(output: NotebookNode) -> str:
    if output.output_type == "stream":
        return output.text if output.name == "stdout" else ""
    data = output.get("data", {})
    pictured = "image/png" in data or "application/vnd.jupyter.widget-view+json" in data
    return "" if pictured else data.get("text/plain", "")


def environment(root: Path, strict: bool) -> dict[str, str]:
    """Strict for masters; progress is kept apart, so that a test run never counts as a student's."""
    home = {"COURSE_HOME": str(root / "build" / "home")}
    # Given from a cell of another notebook, the command would hand on that notebook's name.
    return os.environ | home | {"COURSE_STRICT": "1" if strict else "", "JPY_SESSION_NAME": ""}


def _render(notebook: NotebookNode, path: Path) -> Path:
    """The executed notebook as one page. Mathematics becomes MathML here, so that no browser has to fetch a script."""
    from nbconvert import HTMLExporter

    from course_lib.workbook.decks.markdown import mathematics

    page = copy.deepcopy(notebook)
    for cell in page.cells:
        if cell.cell_type == "markdown":
            cell.source = _FORMULA.sub(lambda m: mathematics(m[1] or m[2], "block" if m[1] else "inline"), cell.source)
    body, _ = HTMLExporter(template_name="lab").from_notebook_node(page)
    target = path.with_suffix(".html")
    write(target, body)
    return target
