"""Pictures for the README, of a lesson in JupyterLab and of the built site: `course site`, then this file."""

import io
import os
import tempfile
from pathlib import Path

from browser import browser
from notebook_in_browser import Notebook, course_folder
from PIL import Image
from playwright.sync_api import Browser, Page

from course_lib.cli import lab
from course_lib.workbook.masters import ROOT

PAGES = ROOT / "build" / "site" / "html"
COLOURS = 128  # enough for text, lines and figures


def lesson(page: Page) -> None:
    """A figure of lesson 04 with the lines around it."""
    page.goto((PAGES / "lessons" / "04_wanda.html").as_uri())
    page.locator("article img").first.evaluate("picture => picture.scrollIntoView({block: 'center'})")


def claims(page: Page) -> None:
    """The claims page, filtered by words, on a phone in dark mode."""
    page.goto((PAGES / "claims.html").as_uri() + "?words=initial+tokens+window+fails")
    page.locator("form.claims").scroll_into_view_if_needed()
    below_the_bar = "form => { form.style.scrollMarginTop = '4rem'; form.scrollIntoView({behavior: 'instant'}) }"
    page.locator("form.claims").evaluate(below_the_bar)


def slide(page: Page) -> None:
    """A slide of lesson 00."""
    page.goto((PAGES / "decks" / "00_start_here.html").as_uri() + "#/4")


def answered(chromium: Browser) -> bytes:
    """An exercise of lesson 00 in JupyterLab, answered wrong and right."""
    answer = (
        'def sparsity(tensor):\n    """Compute the fraction of the entries of `tensor` (any shape) that are zero."""'
    )
    start = lab.command
    lab.command = lambda *where: [*start(*where), "--LabApp.expose_app_in_browser=True"]
    with tempfile.TemporaryDirectory() as name:
        folder = course_folder(Path(name), ROOT, ("00",))
        os.environ["COURSE_HOME"] = str(folder / "home")
        os.environ["JUPYTERLAB_SETTINGS_DIR"] = str(folder / "settings")  # the default theme, whatever the user chose
        with lab.server_on(port := lab.free_port(8950), "student", folder) as server:
            lab.wait_until_up(server, port)
            page = chromium.new_page(viewport={"width": 784, "height": 1075})
            notebook = Notebook(page, f"http://127.0.0.1:{port}", "notebooks/00_start_here.ipynb", "student")
            page.evaluate("window.jupyterapp.shell.collapseLeft()")
            notebook.run(1)
            notebook.run(notebook.index("def sparsity("), f"{answer}\n    return (tensor != 0).double().mean().item()")
            notebook.run(asked := notebook.index('check("start.sparsity"'))
            page.evaluate(INSERTED, asked + 1)
            right = f'{answer}\n    return (tensor == 0).double().mean().item()\n\n\ncheck("start.sparsity", sparsity)'
            notebook.run(asked + 1, right)
            page.get_by_role("heading", name="The sparsity of a tensor").first.evaluate("each => each.scrollIntoView()")
            page.wait_for_timeout(1000)
            return page.locator(".jp-WindowedPanel-outer").first.screenshot()


INSERTED = """index => window.jupyterapp.shell.currentWidget.content.model.sharedModel.insertCell(
  index, {cell_type: "code", source: "", metadata: {}})"""
SHOTS = (
    ("lesson", lesson, (1120, 720), "light"),
    ("claims", claims, (390, 770), "dark"),
    ("slide", slide, (1120, 720), "light"),
)


def main() -> None:
    """Write docs/lesson.png and docs/site-NAME.png, each with a palette of its own."""
    with browser() as chromium:
        _save(answered(chromium), ROOT / "docs" / "lesson.png")
        for name, show, (width, height), theme in SHOTS:
            page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
            show(page)
            page.wait_for_timeout(500)
            _save(page.screenshot(), ROOT / "docs" / f"site-{name}.png")
            page.close()


def _save(shot: bytes, path: Path) -> None:
    drawn = Image.open(io.BytesIO(shot)).convert("RGB")
    drawn.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
