"""A Sphinx extension: what the theme leaves out for people who use no mouse or hear the page."""

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from course_lib.workbook.build import write

# Captions of the side bar are headings without a level; what scrolls by itself is reached by no key.
CHANGES = {
    'class="caption" role="heading"': 'class="caption" role="heading" aria-level="2"',
    "<pre>": '<pre tabindex="0">',
}


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.connect("build-finished", _change)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _change(app: Sphinx, error: Exception | None) -> None:
    for path in sorted(Path(app.outdir).rglob("*.html")) if error is None else ():
        text = path.read_text(encoding="utf-8")
        for before, after in CHANGES.items():
            text = text.replace(before, after)
        write(path, text)
