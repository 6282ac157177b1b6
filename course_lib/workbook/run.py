"""`course run`: execute a lesson from top to bottom and show its output."""

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

from course_lib.measure.progress import bar
from course_lib.workbook import lookup, masters
from course_lib.workbook.build import write

CELL_SECONDS = 600
_FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$(?!\s)((?:[^$\n]|\n(?!\n))+?)(?<!\s)\$", re.DOTALL)


def run(lesson: str, *, student: bool = False, html: bool = False, root: Path = masters.ROOT) -> int:
    """Execute the master (checks raise) or the student notebook; keep the result under build/run/.

    In a student's copy, which has no masters, it is the student's own notebook.
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
    """Run all cells in a new kernel. Return None, or the error of the cell that failed; earlier outputs are kept.

    Raises:
        KeyboardInterrupt: after Ctrl-C, when the kernel has ended.
    """
    n_code = sum(cell.cell_type == "code" for cell in notebook.cells)
    stopped = asyncio.Event()
    with bar(console=console) as shown:
        task = shown.add_task("cells", total=n_code)

        def done(cell: NotebookNode, cell_index: int, **_) -> None:
            shown.advance(task)
            for output in cell.get("outputs", []):
                if text := _text(output):
                    console.print(text.rstrip(), markup=False, highlight=False, soft_wrap=True)

        # A failing cell reports its error; warnings of the kernel do not help a student.
        quiet = ["--IPKernelApp.log_level=50"]
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            iopub_timeout=CELL_SECONDS,  # on a busy machine, output may be late; without this, nothing would report it
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
    """Let Ctrl-C end the run like an exception. nbclient alone would end the kernel twice, with a traceback."""
    running = asyncio.current_task()

    def stop() -> None:
        stopped.set()
        running.cancel()

    with contextlib.suppress(RuntimeError):  # not on Windows, and only in the main thread
        for asked in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(asked, stop)


def _text(output: NotebookNode) -> str:
    if output.output_type == "stream":
        return output.text if output.name == "stdout" else ""
    data = output.get("data", {})
    pictured = "image/png" in data or "application/vnd.jupyter.widget-view+json" in data
    return "" if pictured else data.get("text/plain", "")


def environment(root: Path, strict: bool) -> dict[str, str]:
    """Make the environment: strict for masters, with a separate progress record, so that a test run never counts."""
    home = {"COURSE_HOME": str(root / "build" / "home")}
    # If a cell of another notebook runs this command, that notebook's name must not be passed on.
    return os.environ | home | {"COURSE_STRICT": "1" if strict else "", "JPY_SESSION_NAME": ""}


def _render(notebook: NotebookNode, path: Path) -> Path:
    """Write the executed notebook as one page. Formulas become MathML, so that no browser has to fetch a script."""
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
