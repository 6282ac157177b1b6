"""A student's hands in JupyterLab: open a notebook, type into a cell, run it, read what is shown below it."""

import time
from pathlib import Path

from playwright.sync_api import ElementHandle, Page

IDLE = """path => {
  const tab = window.jupyterapp?.shell.currentWidget;
  if (tab?.context?.path !== path) return false;
  return tab.sessionContext.session?.kernel?.status === "idle" && tab.content.widgets.length > 0;
}"""
# Types a source, if there is one, into the cell and runs it as Shift-Enter does; resolves when the kernel is done.
RUN = """async ([index, source]) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = index;
  if (source !== null) notebook.activeCell.model.sharedModel.setSource(source);
  await window.jupyterapp.commands.execute("notebook:run-cell");
  await notebook.scrollToCell(notebook.activeCell);
}"""
CELLS = """() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells.map(
  cell => [cell.cell_type, cell.getSource()])"""
OUTPUTS = """index => window.jupyterapp.shell.currentWidget.content.model.cells.get(index).outputs.toJSON()"""


class Notebook:
    """One notebook, open in a tab.

    Args:
        seconds: how long a cell may take; far above what one takes, for machines that are busy with other tests.
    """

    def __init__(self, page: Page, address: str, path: str, token: str, seconds: float = 300):
        self.page, self.path, self.milliseconds = page, path, 1000 * seconds
        page.goto(f"{address}/lab/tree/{path}?token={token}", timeout=self.milliseconds)
        self._wait()

    def _wait(self) -> None:
        """Until this notebook is in front and its kernel has nothing to do."""
        self.page.wait_for_function(IDLE, arg=self.path, timeout=self.milliseconds)

    def index(self, part: str, kind: str = "code") -> int:
        """The place of the first cell that holds a text."""
        return next(i for i, (of, source) in enumerate(self.page.evaluate(CELLS)) if of == kind and part in source)

    def run(self, index: int, source: str | None = None) -> str:
        """Run a cell, with another source if one is given; everything below it as text."""
        self.page.evaluate(RUN, [index, source])
        self._wait()
        return self.shown(index)

    def append(self, source: str) -> str:
        """Run a new cell at the end."""
        self.page.evaluate(
            """source => {
              const shared = window.jupyterapp.shell.currentWidget.content.model.sharedModel;
              shared.insertCell(shared.cells.length, {cell_type: "code", source, metadata: {}});
            }""",
            source,
        )
        return self.run(len(self.page.evaluate(CELLS)) - 1)

    def run_all(self) -> None:
        """From top to bottom."""
        self.page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        time.sleep(1)
        self._wait()

    def restart(self) -> None:
        """A new kernel, which has forgotten everything."""
        self.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
        self._wait()

    def shown(self, index: int) -> str:
        """What stands below a cell: printed text, HTML, and the names of errors."""
        parts = []
        for output in self.page.evaluate(OUTPUTS, index):
            data = output.get("data", {})
            parts += [output.get("text", ""), data.get("text/html", ""), data.get("text/plain", "")]
            parts += ["\n".join(output.get("traceback", []))]
        return "\n".join("".join(part) for part in parts)

    def errors(self) -> list[str]:
        """The tracebacks of all cells."""
        code = (i for i, (kind, _) in enumerate(self.page.evaluate(CELLS)) if kind == "code")
        return [text for i in code if "Traceback" in (text := self.shown(i))]

    def picture(self) -> ElementHandle | None:
        """The last picture on the screen."""
        found = self.page.query_selector_all(".jp-OutputArea-output img")
        return found[-1] if found else None


def course_folder(folder: Path, root: Path, names: tuple[str, ...]) -> Path:
    """A folder with copies of the notebooks, in which a student may write."""
    (folder / "notebooks").mkdir(parents=True)
    for name in names:
        (source,) = (root / "notebooks").glob(f"{name}_*.ipynb")
        (folder / "notebooks" / source.name).write_bytes(source.read_bytes())
    return folder
