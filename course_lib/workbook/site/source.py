"""The pages as Sphinx reads them: front page, lessons, glossary, papers, whatever docs/ has for readers."""

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
_HERE = re.compile(r"\[([^\]]+)\]\(#([\w-]+)\)")  # to an anchor that stands in the page as HTML
_BESIDE = re.compile(rf"\]\(\.\./docs/(?=(?:{'|'.join(DOCS)})\.md)")  # a link of a lesson
_LESSON = re.compile(r"lessons? ((?:\d\d(?:, | and )?)+)")


def tree(
    lessons: Iterable[tuple[str, NotebookNode]], decks: Sequence[Path], folder: Path, root: Path = masters.ROOT
) -> None:
    """Write the whole source of the site into `folder`, anew.

    Args:
        lessons: (stem, executed notebook).
        decks: the texts of the slides that lie beside the lessons.
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
            cell.id = f"cell-{number}"  # one by lot would make of the same lesson another page each time
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
    """Where the lesson runs without an installation."""
    name = address.removeprefix("https://github.com/")
    binder = f"https://mybinder.org/v2/gh/{name}/HEAD?labpath=notebooks/{stem}.ipynb"
    colab = f"https://colab.research.google.com/github/{name}/blob/main/notebooks/{stem}.ipynb"
    first = f"!pip install -q git+{address} && course setup"
    return f"[Run it in Binder]({binder}) · [in Colab]({colab}), after a first cell `{first}`"


def page(text: str, address: str = "", stems: Sequence[str] = ()) -> str:
    """A page of the repository as one of the site: comments are left out, links lead to pages of the site.

    A link to a file that is no page leads to the repository, and is plain text while nobody has said where that is.

    Args:
        stems: the lessons that have a page.
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
    """The text of a lesson with links to pages that lie elsewhere on the site than in the repository."""
    return _BESIDE.sub("](../", text)


def by_lesson(papers: str) -> str:
    """The index of papers, turned round: every lesson with its papers in the order of their years."""
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
    """A hidden table of contents, which makes the side bar."""
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *names, "```", ""])
