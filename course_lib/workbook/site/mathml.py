"""A Sphinx extension: formulas as MathML, which browsers can draw, in a font reduced to the letters used."""

import logging
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

from course_lib.data.assets.cache import asset_path
from course_lib.workbook.build import write
from course_lib.workbook.decks.fonts import math_face
from course_lib.workbook.decks.markdown import mathematics

NAME = "mathml"


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension to Sphinx."""
    app.add_html_math_renderer(NAME, (_inline, None), (_block, None))
    app.add_css_file("math.css")
    app.connect("build-finished", _font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append(mathematics(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append(f'<div class="formula" tabindex="0">{mathematics(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def _font(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        logging.getLogger("fontTools").setLevel(logging.WARNING)  # it logs every table of the font
        pages = "".join(path.read_text(encoding="utf-8") for path in sorted(Path(app.outdir).rglob("*.html")))
        rule = math_face(asset_path("math-font"), pages)
        write(Path(app.outdir) / "_static" / "math.css", f'{rule}\nmath {{ font-family: "Deck Math", math; }}\n')
