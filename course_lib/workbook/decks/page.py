"""`course slides`: make one self-contained HTML file, and a PDF, from each deck in slides/."""

import html
import os
import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from course_lib.data.assets.cache import asset_path
from course_lib.measure.progress import tracked
from course_lib.workbook.decks import chromium
from course_lib.workbook.decks.fonts import math_face, text_faces
from course_lib.workbook.decks.markdown import section, split_slides, title_of
from course_lib.workbook.folders import ROOT
from course_lib.workbook.lookup import chosen

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<!-- reveal.js is part of this file under its licence:
{licence}
The fonts are Source Sans Pro and a part of STIX Two Math, both under the SIL Open Font License. -->
<style>{styles}</style>
</head>
<body tabindex="0">
<div class="reveal"><div class="slides">
{sections}
</div></div>
<script>{scripts}</script>
<script>
// Printing from a headless browser: nothing is ever drawn on a screen, so no frame would come.
if (/print/.test(location.search)) window.requestAnimationFrame = (go) => setTimeout(go, 0);
Reveal.initialize({{ width: 1280, height: 720, margin: 0.04, center: false, display: "flex", hash: true,
  slideNumber: "c/t",
  transition: "none", backgroundTransition: "none", controls: false, scrollLayout: "compact", scrollSnap: false,
  plugins: [RevealNotes] }});
</script>
</body>
</html>
"""


def decks(names: Sequence[str] | None = None, root: Path = ROOT) -> list[Path]:
    """Find the decks of these lessons, by any of their names; all of them for None."""
    files = sorted((root / "slides").glob("[0-9][0-9]_*.md"))
    if not files:
        raise ValueError(f"got no decks in {root / 'slides'}; run this command in a checkout of the course.")
    return sorted(chosen(names, files))


def as_html(deck: Path) -> str:
    """Make the whole page, with reveal.js, styles, fonts, figures and formulas inside."""
    text = deck.read_text(encoding="utf-8")
    reveal = asset_path("reveal")
    sections = "\n".join(section(slide, deck.parent) for slide in split_slides(text))
    return PAGE.format(
        title=html.escape(title_of(text)),
        licence=(reveal / "LICENSE").read_text(encoding="utf-8").replace("--", "- -"),
        styles=_styles(reveal, sections),
        sections=sections,
        scripts=_scripts(reveal),
    )


def _styles(reveal: Path, sections: str) -> str:
    house = Path(__file__).with_name("slides.css").read_text(encoding="utf-8")
    sheets = [(reveal / "dist" / name).read_text(encoding="utf-8") for name in ("reset.css", "reveal.css")]
    fonts = text_faces(reveal / "dist" / "theme" / "fonts"), math_face(asset_path("math-font"), sections)
    return "\n".join([*sheets, *fonts, house])


def _scripts(reveal: Path) -> str:
    files = (reveal / "dist" / "reveal.js", reveal / "plugin" / "notes" / "notes.js")
    joined = "\n".join(path.read_text(encoding="utf-8") for path in files)
    joined = re.sub(r"^//# sourceMappingURL=.*$", "", joined, flags=re.MULTILINE)
    return joined.replace("</script", "<\\/script")  # the page's own script must not end inside a string


def build(
    names: Sequence[str] | None = None, pdf: bool = True, root: Path = ROOT, console: Console | None = None
) -> int:
    """Write build/slides/NN_slug.html, and .pdf if Chromium is installed. Return the exit code.

    It is 1 if a slide does not fit its page, which only Chromium can find out.
    """
    console = console or Console()
    chosen, folder = decks(names, root), root / "build" / "slides"
    folder.mkdir(parents=True, exist_ok=True)
    program = chromium.find()
    too_full = False
    for deck in tracked(chosen, "slides", console=console):
        page = _written(folder / f"{deck.stem}.html", as_html(deck))
        console.print(f"{page} ({page.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)
        if program:
            too_full |= _checked(program, page, console)
        if program and pdf:
            chromium.print_pdf(program, page, page.with_suffix(".pdf"))
            console.print(f"{page.with_suffix('.pdf')}", soft_wrap=True)
    if not program:
        console.print("Chromium was not found, so there is no PDF, and it was not checked whether every slide fits.")
    console.print("Open a deck in a browser: arrow keys to move, S for the speaker notes, F for full screen.")
    return int(too_full)


def _written(path: Path, text: str) -> Path:
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
    return path


def _checked(program: str, page: Path, console: Console) -> bool:
    overflows = chromium.overflowing(program, page)
    for number, pixels in overflows.items():
        console.print(
            f"[red]error[/] slide {number} of {page.stem} is too full by {pixels} pixels; shorten or split it"
        )
    return bool(overflows)
