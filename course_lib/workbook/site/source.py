"""The sources of the pages for Sphinx: front page, lessons, slides, and the pages of docs/."""

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from course_lib.workbook import masters
from course_lib.workbook.build import write
from course_lib.workbook.folders import repository
from course_lib.workbook.site.slides import listed

DOCS = ("claims", "glossary", "papers", "install", "students", "models", "instructors", "contributing")
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_LINK = re.compile(r"\[((?:[^\[\]]|`[^`]*`)*)\]\((?!\w+:|#)([^)\s]+)\)")
_HERE = re.compile(r"\[([^\]]+)\]\(#([\w-]+)\)")  # to an anchor that is HTML in the page
_BESIDE = re.compile(rf"\]\(\.\./docs/(?=(?:{'|'.join(DOCS)})\.md)")  # a link of a lesson
_LESSON = re.compile(r"lessons? ((?:\d\d(?:, | and )?)+)")


def tree(
    lessons: Iterable[tuple[str, NotebookNode]], decks: Sequence[Path], folder: Path, root: Path = masters.ROOT
) -> None:
    """Write the whole source of the site into a new `folder`.

    Args:
        lessons: (stem, executed notebook).
        decks: the texts of the slides.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lessons").mkdir(parents=True)
    address = repository(root)
    stems, with_deck = [], [path.stem for path in decks]
    for stem, notebook in lessons:
        around = [f'<a href="../decks/{stem}.html">Slides</a>'] if stem in with_deck else []
        if around := around + ([launch(stem, address)] if address else []):
            notebook.cells.insert(1, new_markdown_cell(" · ".join(around)))
        for number, cell in enumerate(notebook.cells):
            cell.id = f"cell-{number}"  # a random id would change the page each time
            if cell.cell_type == "markdown":
                cell.source = from_lesson(cell.source)
        write(folder / "lessons" / f"{stem}.ipynb", masters.as_text(notebook))
        stems.append(stem)
    there = [name for name in DOCS if (root / "docs" / f"{name}.md").is_file()]
    for name in there:
        write(folder / f"{name}.md", page((root / "docs" / f"{name}.md").read_text(encoding="utf-8"), address))
    write(folder / "by_lesson.md", by_lesson((root / "docs" / "papers.md").read_text(encoding="utf-8")))
    write(folder / "security.md", page((root / "SECURITY.md").read_text(encoding="utf-8"), address))
    for picture in (root / "docs").glob("*.png"):
        shutil.copy(picture, folder / picture.name)
    if decks:
        write(folder / "decks.md", listed(decks))
    front = page((root / "README.md").read_text(encoding="utf-8"), address, stems)
    write(folder / "index.md", front + contents("Lessons", [f"lessons/{stem}" for stem in stems]) + contents(
        "Reference", [*(["decks"] if decks else []), *there[:3], "by_lesson", *there[3:], "security"]
    ))  # fmt: skip


def launch(stem: str, address: str) -> str:
    """Make links to services that run the lesson without an installation."""
    name = address.removeprefix("https://github.com/")
    binder = f"https://mybinder.org/v2/gh/{name}/HEAD?labpath=notebooks/{stem}.ipynb"
    colab = f"https://colab.research.google.com/github/{name}/blob/main/notebooks/{stem}.ipynb"
    first = f"!pip install -q git+{address} && course setup"
    return f"[Run it in Binder]({binder}) · [in Colab]({colab}), after a first cell `{first}`"


def page(text: str, address: str = "", stems: Sequence[str] = ()) -> str:
    """Convert a page of the repository to one of the site: remove comments, and link to pages of the site.

    A link to a file without a page leads to the repository, or is plain text if its address is not set.

    Args:
        stems: the lessons with a page.
    """

    def place(match: re.Match) -> str:
        words, (target, _, anchor) = match[1], match[2].partition("#")
        name = Path(target).name
        if Path(target).stem in stems:
            return f"[{words}](lessons/{name})"
        if target.endswith(".png"):
            return f"[{words}]({name})"
        if name.removesuffix(".md") in (*DOCS, "SECURITY"):
            return f"[{words}]({name.lower()}{'#' + anchor if anchor else ''})"
        return f"[{words}]({address}/blob/main/{target.removeprefix('../')})" if address else words

    return _HERE.sub(r'<a href="#\2">\1</a>', _LINK.sub(place, _COMMENT.sub("", text)))


def from_lesson(text: str) -> str:
    """Correct links of a lesson to pages that have another place on the site than in the repository."""
    return _BESIDE.sub("](../", text)


def by_lesson(papers: str) -> str:
    """Invert the index of papers: list every lesson with its papers."""
    found: dict[str, list[str]] = {}
    for line in papers.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        for match in _LESSON.finditer(cells[-1]) if len(cells) == 2 else ():
            for number in re.findall(r"\d\d", match[1]):
                found.setdefault(number, []).append(cells[0])
    parts = ["# Papers by lesson\n"]
    for number in sorted(found):
        parts += [f"## Lesson {number}\n", *(f"- {paper}" for paper in found[number]), ""]
    return "\n".join(parts)


def contents(title: str, names: list[str]) -> str:
    """Make a hidden table of contents for the side bar."""
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *names, "```", ""])
