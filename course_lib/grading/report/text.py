"""Make text of any origin readable, and format numbers. Nothing is escaped here: the templates do that."""

import re

NAME, SENTENCE = 120, 700  # maximum number of characters of a name and of a sentence
TRACE, TRACE_LINES = 6000, 60

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # could change how a page reads


def clean(text: str, limit: int = SENTENCE) -> str:
    """Return text on one line, shortened, without colour codes, control characters, direction marks and surrogates."""
    part = " ".join(_readable(text[: 2 * limit]).split())
    if len(text) <= 2 * limit and len(part) <= limit:
        return part
    return f"{part[:limit].rstrip()} … ({max(len(text) - limit, 1):,} more characters)"


def name(text: str) -> str:
    """Shorten text of any origin to a name."""
    return clean(text, NAME)


def sentence(text: str) -> str:
    """Return text of any origin as a sentence that begins with a capital letter."""
    return (part := clean(text))[:1].upper() + part[1:]


def trace(text: str) -> str:
    """Return the end of a traceback, the most informative part, with its line breaks."""
    whole = _readable(text[-2 * TRACE :].replace("\r\n", "\n").replace("\r", "\n")).strip("\n")
    kept = "\n".join(whole.split("\n")[-TRACE_LINES:])[-TRACE:]
    return kept if kept == whole and len(text) <= 2 * TRACE else f"…\n{kept}"


def _readable(text: str) -> str:
    return _UNREADABLE.sub("\ufffd", _DIRECTION.sub("", _ANSI.sub("", text)))


def number(value: float | int) -> str:
    """Format a number with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def whole_percent(share: float) -> str:
    """Format a fraction in whole percent; 0 and 100 only if they are exact."""
    rounded = min(max(round(100 * share), int(share > 0)), 99 if share < 1 else 100)
    return f"{rounded} %"


def counted(n: int, what: str, many: str = "") -> str:
    """Format a number with its noun: 1 case, 2 cases."""
    return f"{n:,} {what if n == 1 else many or what + 's'}"


def points_of(points: float | int, of: float | int) -> str:
    """Format points for students."""
    return f"{number(points)} of {number(of)} {'point' if of == 1 else 'points'}"


def duration(seconds: float | int) -> str:
    """Format a time in suitable units."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
