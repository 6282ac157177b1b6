"""The fonts of a deck, embedded in its page: text has the same width everywhere, so slides fit everywhere."""

import html
import io
import re
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

from course_lib.workbook.decks.markdown import data_uri

RULE = '@font-face {{ font-family: "{}"; font-style: {}; font-weight: {}; src: url({}) format("woff"); }}'
FACES = (("regular", "normal", 400), ("italic", "italic", 400), ("semibold", "normal", 600))
# Browsers draw a letter of a formula as its italic form, which has its own code: Latin, Greek, and h.
ITALIC = (*range(0x1D434, 0x1D468), *range(0x1D6E2, 0x1D71C), 0x210E)
ASCII = range(0x20, 0x7F)
ROOT = 0x221A  # browsers draw it for <msqrt>, which does not contain it; without the glyph a root is invisible


def text_faces(folder: Path) -> str:
    """Return CSS rules for the text font "Deck", from the fonts folder of reveal.js."""
    files = {name: folder / "source-sans-pro" / f"source-sans-pro-{name}.woff" for name, _, _ in FACES}
    uris = {name: data_uri("font/woff", file.read_bytes()) for name, file in files.items()}
    return "\n".join(RULE.format("Deck", slant, weight, uris[name]) for name, slant, weight in FACES)


def math_face(font: Path, page: str) -> str:
    """Return a CSS rule for the font "Deck Math" with only the characters that the page's formulas can need."""
    formulas = "".join(re.findall(r"<math.*?</math>", page, re.DOTALL))
    if not formulas:
        return ""
    characters = {ord(letter) for letter in html.unescape(re.sub(r"<[^>]*>", "", formulas))}
    options = subset.Options(layout_features=["*"], flavor="woff", notdef_outline=True)
    cut = subset.Subsetter(options)
    cut.populate(unicodes=characters | {ROOT} | set(ITALIC) | set(ASCII))
    with TTFont(font, recalcTimestamp=False) as whole:
        cut.subset(whole)
        whole.flavor = "woff"
        buffer = io.BytesIO()
        whole.save(buffer)
    return RULE.format("Deck Math", "normal", 400, data_uri("font/woff", buffer.getvalue()))
