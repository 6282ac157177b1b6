"""What both kinds of page share: text made safe, numbers in words, and the frame around a page.

A page is one file that fetches nothing. Whatever a submission says is cleaned, cut and escaped here, and the page's own
policy forbids every script but the page's.
"""

import base64
import hashlib
import html
import re
from pathlib import Path

NAME, SENTENCE = 120, 700  # characters of a name and of a sentence that are shown
TRACE, TRACE_LINES = 6000, 60

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # could make a page read as it is not written

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>
{styles}</style>
</head>
<body>
{body}
{script}</body>
</html>
"""


def clean(text: str, limit: int) -> str:
    """Text on one line, cut, without colour codes, control characters, direction marks and lone surrogates."""
    part = " ".join(_readable(text[: 2 * limit]).split())
    if len(text) <= 2 * limit and len(part) <= limit:
        return part
    return f"{part[:limit].rstrip()} … ({max(len(text) - limit, 1):,} more characters)"


def escape(text: str, limit: int = SENTENCE) -> str:
    """Text of any origin as HTML on one line."""
    return html.escape(clean(text, limit))


def sentence(text: str) -> str:
    """Text of any origin as an escaped sentence that begins with a capital letter."""
    return html.escape((part := clean(text, SENTENCE))[:1].upper() + part[1:])


def escape_trace(text: str) -> str:
    """A traceback as HTML: its end, which says most, in its own lines."""
    whole = _readable(text[-2 * TRACE :].replace("\r\n", "\n").replace("\r", "\n")).strip("\n")
    kept = "\n".join(whole.split("\n")[-TRACE_LINES:])[-TRACE:]
    return html.escape(kept if kept == whole and len(text) <= 2 * TRACE else f"…\n{kept}")


def _readable(text: str) -> str:
    return _UNREADABLE.sub("\ufffd", _DIRECTION.sub("", _ANSI.sub("", text)))


def number(value: float | int) -> str:
    """A number with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def counted(n: int, what: str, many: str = "") -> str:
    """A number with its noun: 1 case, 2 cases."""
    return f"{n:,} {what if n == 1 else many or what + 's'}"


def points_of(points: float | int, of: float | int) -> str:
    """Points as a student reads them."""
    return f"{number(points)} of {number(of)} {'point' if of == 1 else 'points'}"


def duration(seconds: float | int) -> str:
    """A time in the units that fit it."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def styles(*names: str) -> str:
    """The style sheets of those names, which lie beside this file."""
    return "".join(Path(__file__).with_name(f"{name}.css").read_text(encoding="utf-8") for name in names)


def frame(title: str, body: str, styles: str, script: str = "") -> str:
    """The whole page around a body. The title is escaped here; the body has to be already."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"
    ending = f"<script>{script}</script>\n" if script else ""
    return PAGE.format(policy=policy, title=escape(title, NAME), styles=styles, body=body, script=ending)
