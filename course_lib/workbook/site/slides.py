"""The page that lists the decks, with their titles and the headings of their slides."""

import re
from collections.abc import Iterable
from pathlib import Path

from course_lib.workbook.decks.markdown import split_slides, title_of

_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def listed(decks: Iterable[Path]) -> str:
    """Make the source of the page from the texts of the decks."""
    parts = [
        "# Slides\n",
        "A deck for each lesson. Use the arrow keys to move; `s` opens the speaker notes.\n",
    ]
    for path in decks:
        text = path.read_text(encoding="utf-8")
        title, slides = title_of(text), split_slides(text)
        headings = [found[1].strip() for slide in slides if (found := _HEADING.search(slide))][1:]
        link = f'<a href="decks/{path.stem}.html">{len(slides)} slides</a>'
        parts += [
            f"## {path.stem[:2]} · {title}\n",
            f"{link} for [this lesson](lessons/{path.stem}.ipynb):\n",
            " · ".join(headings) + ("\n" if headings else ""),
        ]
    return "\n".join(parts)
