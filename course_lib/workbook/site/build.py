"""`course site`: run changed lessons, then let Sphinx write the pages, with myst-nb and the theme furo."""

import io
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from nbformat import NotebookNode
from rich.console import Console
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from course_lib.data.assets.cache import asset_path
from course_lib.measure.progress import bar, tracked
from course_lib.workbook import masters, run
from course_lib.workbook.build import write
from course_lib.workbook.decks import page as decks
from course_lib.workbook.site import access, made, mathml, place, source
from course_lib.workbook.site.executed import drawn, executed
from course_lib.workbook.site.files import in_files
from course_lib.workbook.site.treated import treated

THEME = Path(__file__).parent / "theme"
MAKERS = (Path(__file__).parent, Path(decks.__file__).parent)  # the code that makes the pages
TITLE = "Sparsity in large language models"
STOPPED = "Stopped. Executed lessons are kept, and the existing pages are complete. `course site` continues."
# Notebooks already have their outputs.
OPTIONS = {
    "project": TITLE,
    "extensions": ["myst_nb", mathml.__name__, access.__name__],
    "html_theme": "furo",
    "html_title": TITLE,
    "html_static_path": [str(THEME / name) for name in ("course.css", "course.js")],
    "html_css_files": ["course.css"],
    "html_js_files": ["course.js"],
    "html_show_sphinx": False,
    "html_show_copyright": False,
    "html_copy_source": False,
    "html_use_index": False,  # no page has index entries
    "html_math_renderer": mathml.NAME,
    "nb_execution_mode": "off",
    "myst_enable_extensions": ["dollarmath", "colon_fence"],
    "myst_heading_anchors": 3,
    "pygments_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def build(
    names: Sequence[str] | None = None,
    *,
    with_solutions: bool = False,
    fresh: bool = False,
    slides: bool = True,
    root: Path = masters.ROOT,
    out: Path | None = None,
    console: Console | None = None,
) -> int:
    """Write the site to build/site/html, or to `out`. Only lessons whose code has changed are executed.

    Returns the exit code: 1 if Sphinx warns, 130 when interrupted.

    Args:
        with_solutions: show the folded solution after each exercise.
        fresh: execute all lessons and draw all decks again.
        slides: include the decks.

    Raises:
        ValueError: for a lesson that fails, a full disk, an `out` with other files, and while another `course site` is
            running.
    """
    console = console or Console()
    folder = root / "build" / "site"
    if out:
        place.ours(out)
    target = out or folder / "html"
    try:
        with place.alone(folder):
            pages = _lessons(names, folder, root, console, with_solutions, fresh)
            if fresh:
                shutil.rmtree(folder / "drawn", ignore_errors=True)
            shown = _decks([stem for stem, _ in pages] if slides else [], folder, root, console)
            source.tree(pages, shown, folder / "source", root)
            with bar(console=console) as progress:
                progress.add_task("writing the pages", total=None)
                warnings = _pages(folder, target)
    except KeyboardInterrupt:
        console.print(STOPPED, soft_wrap=True)
        return 130
    except OSError as error:
        if error.errno not in place.FULL:
            raise
        raise ValueError(place.NO_ROOM.format(error=error)) from error
    console.print(warnings, markup=False, highlight=False, end="")
    n_bytes = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    console.print(
        f"{len(list(target.rglob('*.html')))} pages, {n_bytes / 1e6:.1f} MB. Open {target / 'index.html'}",
        soft_wrap=True,
    )
    return int(bool(warnings))


def _lessons(
    names: Sequence[str] | None, folder: Path, root: Path, console: Console, with_solutions: bool, fresh: bool
) -> list[tuple[str, NotebookNode]]:
    """Make the pages of these lessons; execute those that have changed."""
    runs, pages = _runner(console, folder, root), []
    for master in tracked(masters.masters(list(names or []), root), "lessons", console=console):
        notebook = masters.for_students(master)
        new = executed(notebook, master.stem, folder / "executed", runs, fresh)
        console.print(f"{master.stem}: {'executed' if new else 'unchanged'}", highlight=False)
        pages.append((master.stem, treated(notebook, masters.with_solutions(master) if with_solutions else None)))
    return pages


def _runner(console: Console, folder: Path, root: Path) -> Callable[[NotebookNode], str | None]:
    """Execute as for a beginner: nothing is solved, checks do not raise, and no stored progress is used."""
    home = folder / "home"

    def execute(notebook: NotebookNode) -> str | None:
        shutil.rmtree(home, ignore_errors=True)
        return run.execute(notebook, console, run.environment(root, strict=False) | {"COURSE_HOME": str(home)})

    return execute


def _decks(stems: list[str], folder: Path, root: Path, console: Console) -> list[Path]:
    """Put the decks of these lessons, and only them, into the folder that Sphinx copies; return the decks."""
    found = [path for path in decks.decks(None, root) if path.stem in stems] if stems else []
    target = folder / "extra" / "decks"
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    for path in tracked(found, "slides", console=console):
        page = in_files(drawn(path, folder / "drawn", decks.as_html), target / "files", "files")
        write(target / f"{path.stem}.html", page)
    return found


def _pages(folder: Path, target: Path) -> str:
    """Let Sphinx write the pages, unless they are up to date; return its warnings."""
    made_of = made.inputs([folder / "source", folder / "extra", *MAKERS, asset_path("math-font")])
    if made.as_made(target, made_of):
        return ""
    with place.replacing(target) as empty:
        warnings = _sphinx(folder, empty)
        place.has_room(warnings)
        if not warnings:
            made.stamp(empty, made_of)
    return warnings


def _sphinx(folder: Path, target: Path) -> str:
    """Run Sphinx and return its warnings."""
    warned = io.StringIO()
    settings = OPTIONS | {"html_extra_path": [str(folder / "extra"), str(THEME / "404.html")]}
    write(folder / "source" / "conf.py", "".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    paths = (folder / "source", folder / "source", target, folder / "trees")
    with docutils_namespace():  # it removes registrations, so that a process can build twice
        Sphinx(*paths, "html", status=None, warning=warned, freshenv=True).build()
    return warned.getvalue()
