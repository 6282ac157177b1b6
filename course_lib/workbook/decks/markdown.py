"""Slides written in Markdown, turned into the sections of a reveal.js page.

`---` on a line of its own separates slides. `$...$` and `$$...$$` are mathematics, rendered to MathML here.
`![alt](figure:lesson.file.function)` shows the figure or table that a function of course_lib/lessons/lesson/file.py
returns without arguments: a plot of the lesson, whose arguments all have defaults. Other pictures are files
in the folder of the deck. The text after a line `Note:` is for the speaker.
"""

import base64
import html
import importlib
import inspect
import io
import mimetypes
import re
from collections.abc import Callable
from pathlib import Path

import matplotlib
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.token import Token
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from mdit_py_plugins.dollarmath import dollarmath_plugin

from course_lib.lessons.common.table import Table

FIGURE = "figure:"
LARGE_SVG = 400_000  # bytes; above it (a picture of a whole matrix, say) pixels are smaller and look the same
MATHEMATICS = {
    "math_inline": "inline",
    "math_inline_double": "block",
    "math_block": "block",
    "math_block_label": "block",
}
# Corrections to the converter: the bars of |x| and ‖x‖ must not stretch or add space. The name of a function gets a
# thin space, except next to operators and brackets. A minus after a relation or an opening bracket is a sign, ∞ is
# not an operator, and the bar over a letter must not be a macron, which has a fixed width.
THIN = "0.167em"
BEFORE_A_SIGN = r"&#x0(?:003D|002C|2190|2192|2208|2248|2264|2265|0028|007B);|\["
SET = (
    (r"<mo[^>]*>(&#x0007C;|&#x02016;)</mo>", r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>'),
    (r"<m([io])>([a-z]{2,})</m\1>", r'<mo lspace="0" rspace="0">\2</mo>'),
    (r'(<mo lspace="0" rspace=")0(">[a-z]+</mo>)(?=<m(?!o>|o |space))', rf"\g<1>{THIN}\2"),
    (r'(</m(?:i|n|sub|sup|subsup|frac)><mo lspace=")0(?=" rspace="[^"]+">[a-z])', rf"\g<1>{THIN}"),
    (r"<mo>&#x0221E;</mo>", "<mi>&#x0221E;</mi>"),
    (rf"((?:<mo[^>]*>(?:{BEFORE_A_SIGN})</mo>|</mtext>)<mo)(?=>&#x02212;)", r'\1 form="prefix"'),
    (r">&#x000AF;<", ">&#x0203E;<"),
)


def split_slides(text: str) -> list[str]:
    """Split a deck into slides. A `---` inside a code fence does not count."""
    slides, fenced = [[]], False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        if line.strip() == "---" and not fenced:
            slides.append([])
        else:
            slides[-1].append(line)
    return [joined for slide in slides if (joined := "\n".join(slide).strip())]


def title_of(text: str) -> str:
    """Return the deck's first heading."""
    match = re.search(r"^#+ +(.+)$", text, re.MULTILINE)
    if not match:
        raise ValueError("got a deck without a heading; begin its first slide with `# Title`")
    return match[1].strip()


def section(slide: str, folder: Path) -> str:
    """Convert one slide to HTML."""
    body, _, notes = re.sub(r"^Note: *", "\0", slide, count=1, flags=re.MULTILINE).partition("\0")
    aside = f'<aside class="notes">{render(notes, folder)}</aside>' if notes.strip() else ""
    return f"<section>\n{render(body, folder)}{aside}</section>"


def render(text: str, folder: Path) -> str:
    """Convert Markdown to HTML without external references."""
    parser = MarkdownIt("commonmark", {"html": True}).enable("table").use(dollarmath_plugin, allow_digits=False)
    tokens = parser.parse(text)
    for token in [part for block in tokens for part in (block, *(block.children or ()))]:
        if token.type in MATHEMATICS:
            _become_html(token, mathematics(token.content, MATHEMATICS[token.type]))
        elif token.type == "image":
            _become_html(token, _picture(token.attrs["src"], token.content, folder))
    return parser.renderer.render(tokens, parser.options, {})


def _become_html(token: Token, content: str) -> None:
    token.type, token.content, token.children = "html_inline", content, None


def mathematics(formula: str, display: str) -> str:
    """Convert a LaTeX formula to MathML; display is "inline" or "block"."""
    try:
        markup = convert(formula.strip(), display=display)
    except Exception as error:  # the library raises many kinds; all mean that the formula is not understood
        reason = str(error) or type(error).__name__
        raise ValueError(f"got the formula {formula!r}, which cannot be read: {reason}") from error
    if unknown := re.search(r">(\\[a-zA-Z]+)<", markup):  # passed through unchanged, where LaTeX would stop
        raise ValueError(f"got the formula {formula!r}, which cannot be read: {unknown[1]} is unknown")
    for before, after in SET:
        markup = re.sub(before, after, markup)
    return markup


def _picture(source: str, alternative: str, folder: Path) -> str:
    if source.startswith(FIGURE):
        kind, content = draw(source.removeprefix(FIGURE))
        if kind == "text/html":
            return content.decode()
    elif re.match(r"[a-z]+:|//", source):
        raise ValueError(f"got the picture {source}; a deck must not need a network: put the file into its folder")
    else:
        kind, content = mimetypes.guess_type(source)[0], (folder / source).read_bytes()
    return f'<img class="figure" alt="{html.escape(alternative)}" src="{data_uri(kind, content)}">'


def draw(name: str) -> tuple[str, bytes]:
    """Draw the figure or table that `lesson.file.function` of course_lib.lessons returns: (media type, bytes)."""
    plot = plot_of(name)()
    if isinstance(plot, Table):
        return "text/html", plot.as_html().encode()
    figure = plot if isinstance(plot, Figure) else plot.figure
    with matplotlib.rc_context({"svg.hashsalt": name}):
        vector = _saved(figure, "svg", metadata={"Date": None})
    return ("image/svg+xml", vector) if len(vector) < LARGE_SVG else ("image/png", _saved(figure, "png", dpi=200))


def plot_of(name: str) -> Callable[[], Figure | Axes | Table]:
    """Find the function `lesson.file.function` of course_lib.lessons, which needs no arguments."""
    module, _, function = name.rpartition(".")
    try:
        plot = getattr(importlib.import_module(f"course_lib.lessons.{module}"), function)
        inspect.signature(plot).bind()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        expected = "expected figure:lesson.file.function in course_lib/lessons, each argument with a default"
        raise ValueError(f"got figure:{name}, {expected} ({error})") from error
    return plot


def _saved(figure: Figure, kind: str, **settings) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **settings)
    return buffer.getvalue()


def data_uri(kind: str | None, content: bytes) -> str:
    """Make a data URI, an address that contains the file."""
    return f"data:{kind or 'application/octet-stream'};base64,{base64.b64encode(content).decode()}"
