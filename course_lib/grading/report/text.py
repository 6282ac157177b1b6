"""What any origin says, made readable, and numbers in words. Nothing is escaped here: the templates do that."""

import re

NAME, SENTENCE = 120, 700  # characters of a name and of a sentence that are shown
TRACE, TRACE_LINES = 6000, 60

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # could make a page read as it is not written


def clean(text: str, limit: int = SENTENCE) -> str:
    """Text on one line, cut, without colour codes, control characters, direction marks and lone surrogates."""
    part = " ".join(_readable(text[: 2 * limit]).split())
    if len(text) <= 2 * limit and len(part) <= limit:
        return part
    return f"{part[:limit].rstrip()} … ({max(len(text) - limit, 1):,} more characters)"


def name(text: str) -> str:
    """Text of any origin as a name: short."""
    return clean(text, NAME)


def sentence(text: str) -> str:
    """Text of any origin as a sentence that begins with a capital letter."""
    return (part := clean(text))[:1].upper() + part[1:]


def trace(text: str) -> str:
    """A traceback: its end, which says most, in its own lines."""
    whole = _readable(text[-2 * TRACE :].replace("\r\n", "\n").replace("\r", "\n")).strip("\n")
    kept = "\n".join(whole.split("\n")[-TRACE_LINES:])[-TRACE:]
    return kept if kept == whole and len(text) <= 2 * TRACE else f"…\n{kept}"


def _readable(text: str) -> str:
    return _UNREADABLE.sub("\ufffd", _DIRECTION.sub("", _ANSI.sub("", text)))


def number(value: float | int) -> str:
    """A number with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def whole_percent(share: float) -> str:
    """A share in whole percent, never 0 or 100 where it is not quite."""
    rounded = min(max(round(100 * share), int(share > 0)), 99 if share < 1 else 100)
    return f"{rounded} %"


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
