"""A Sphinx extension: accessibility that the theme lacks, for the keyboard and for screen readers."""

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from course_lib.workbook.build import write

FORM = (
    '<form class="asked" action="search.html"><label>Words <input type="search" name="q"></label> '
    "<button>Search</button></form>"
)

# Captions of the side bar get a heading level; scrolling boxes can be reached by keyboard; side bars get names; an
# empty column header becomes an ordinary cell; a comma stays on the line of its formula; the search page gets a heading
# and a search field, which a phone would fold away; a figure links to itself in full size, for phones.
CHANGES = (
    (r'class="caption" role="heading"', r'\g<0> aria-level="2"'),
    (r'<pre(?=[\s>])|<div(?= class="table-wrapper)', r'\g<0> tabindex="0"'),
    (r'<aside(?= class="sidebar-drawer")', r'\g<0> aria-label="The course"'),
    (r'<aside(?= class="toc-drawer")', r'\g<0> aria-label="This page"'),
    (r'<th class="head[^"]*"><p></p></th>', "<td></td>"),
    (r'<math [^>]*display="inline">(?:(?!</math>).)*</math>[.,;:?!)]+', r'<span class="together">\g<0></span>'),
    (r'<div id="search-results">', rf"<h1>Search</h1>\n{FORM}\n\g<0>"),
    (r'<img alt="[^"]*" src="([^"]*_images/[^"]+)" */?>', r'<a class="full-size" href="\1">\g<0></a>'),
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension to Sphinx."""
    app.connect("build-finished", _change)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _change(app: Sphinx, error: Exception | None) -> None:
    for path in sorted(Path(app.outdir).rglob("*.html")) if error is None else ():
        text = path.read_text(encoding="utf-8")
        for before, after in CHANGES:
            text = re.sub(before, after, text)
        write(path, text)
