"""A table of a lesson: a pandas DataFrame with a caption, a format per column, and a note below it.

    Table(
        [{"method": "Wanda", "perplexity": 21.34, "error": 0.52, "accuracy": 0.44}],
        caption="Perplexity and accuracy at 50 % sparsity",
        formats={("perplexity", "error"): plus_minus(1), "accuracy": percent},
        note="± one standard error.",
    )

Jupyter, the site and the slides show it as HTML, a terminal as aligned text. Both show every row and every column.
"""

import html
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from numbers import Real
from typing import Any

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from course_lib.lessons.common.results import percent as percent  # imported with the other formats of this module

WIDTH = 80  # characters of a line in a terminal
GAP = "  "  # between two columns of text
TEXT_WIDTH = 18  # characters per line that a page gives to a text at least
MISSING = "–"

Format = Callable[..., str]
Key = str | tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """One column as shown: a heading and one text per row."""

    heading: str
    cells: list[str]
    numeric: bool

    @property
    def least(self) -> int:
        """The width below which a word or a number would be broken."""
        words = [*self.heading.split(), *(self.cells if self.numeric else " ".join(self.cells).split())]
        return max(map(len, words), default=0)

    @property
    def most(self) -> int:
        """The width at which nothing is wrapped."""
        return max(map(len, [self.heading, *self.cells]))

    def lines(self, text: str, width: int) -> list[str]:
        """Wrap a text between words and pad each line to `width` characters; numbers are never wrapped."""
        parts = [text] if self.numeric and text != self.heading else textwrap.wrap(text, width, **_WHOLE_WORDS)
        return [part.rjust(width) if self.numeric else part.ljust(width) for part in parts or [""]]


_WHOLE_WORDS = {"break_long_words": False, "break_on_hyphens": False}


@dataclass(frozen=True, repr=False)
class Table:
    """A frame of plain numbers and texts, and how to show it.

    It holds a DataFrame and is not a subclass of one. What pandas derives from a subclass (a sorted copy, a group, a
    single column) either loses the caption and the formats or keeps ones that no longer fit. `table.frame` is an
    ordinary DataFrame with unrounded numbers, which can be sorted, plotted and saved as always. The HTML is written
    here and not by `frame.style`: a Styler formats one column at a time, so that it cannot join a value and its error,
    and its rules are a <style> element, which Jupyter removes from a notebook that is not trusted.

    Args:
        frame: a DataFrame, or rows as dictionaries. An index is not shown.
        caption: what the table shows, in one line.
        formats: a function from value to text, by column name. A tuple of names is shown as one column under the first
            name; its function receives the values of all of them, as `plus_minus` does.
        note: how to read it, or where the numbers come from; below the table.

    Raises:
        ValueError: a format for a column that the frame does not have, a column in two formats, or a repeated name.
    """

    frame: pd.DataFrame | Iterable[Mapping[str, Any]]
    _: KW_ONLY
    caption: str
    formats: Mapping[Key, Format] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self):
        if not isinstance(self.frame, pd.DataFrame):
            object.__setattr__(self, "frame", pd.DataFrame(list(self.frame)))
        names = list(self.frame.columns)
        formatted = [name for key in self.formats for name in _names(key)]
        if unknown := [name for name in formatted if names and name not in names]:  # no rows, no columns
            raise ValueError(f"got a format for {unknown[0]!r}; expected one of the columns {names}.")
        if repeated := [name for name in names + formatted if max(names.count(name), formatted.count(name)) > 1]:
            raise ValueError(f"got the column {repeated[0]!r} twice; expected each column once, in one format.")

    def columns(self) -> list[Column]:
        """Return the columns as shown, every value as text and missing values as a dash."""
        keys = {_names(key)[0]: key for key in self.formats}
        joined = {name for key in self.formats for name in _names(key)[1:]}
        columns = []
        for name in self.frame.columns:
            if name in joined:
                continue
            values = self.frame[name]
            key = keys.get(name, name)
            rows = zip(*(self.frame[column] for column in _names(key)), strict=True)
            write = self.formats.get(key, plain)
            cells = [MISSING if _is_missing(row[0]) else write(*row) for row in rows]
            columns.append(Column(str(name), cells, is_numeric_dtype(values) and not is_bool_dtype(values)))
        return columns

    def __repr__(self) -> str:
        """Format as aligned text of at most 80 characters per line; further columns follow in another block."""
        return self.as_text()

    def as_text(self, width: int = WIDTH) -> str:
        """Format as aligned text of at most `width` characters per line, unless a single word or number is longer."""
        blocks = ["\n".join(_block(columns, width)) for columns in _blocks(self.columns(), width) if columns]
        parts = [textwrap.fill(self.caption, width), "", "\n\n".join(blocks or ["(no rows)"])]
        parts += ["", textwrap.fill(self.note, width, **_WHOLE_WORDS)] if self.note else []
        return "\n".join(parts)

    def as_html(self) -> str:
        """Format as an HTML table in a box that scrolls sideways on narrow pages; it inherits the page's colours."""
        columns = self.columns()
        heads = "".join(f'<th scope="col" style="{_look(c)}">{html.escape(c.heading)}</th>' for c in columns)
        rows = "".join(
            "<tr>" + "".join(_cell(c, c.cells[row]) for c in columns) + "</tr>" for row in range(len(self.frame))
        )
        caption, note = html.escape(self.caption), html.escape(self.note)
        note_html = f'<p style="margin:0.3em 0 0 0;font-size:0.9em">{note}</p>' if note else ""
        return (
            f'<div class="course-table" role="region" aria-label="{caption}" tabindex="0" style="overflow-x:auto">'
            '<table style="margin:0;border-collapse:collapse">'
            f'<caption style="caption-side:top;text-align:left;font-weight:bold;padding:0.3em 0">{caption}</caption>'
            f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{note_html}"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.as_html(), "text/plain": str(self)}


def _names(key: Key) -> tuple[str, ...]:
    return key if isinstance(key, tuple) else (key,)


def _is_missing(value: object) -> bool:
    return value is None or (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


def _blocks(columns: list[Column], width: int) -> list[list[Column]]:
    """Split the columns into blocks that fit the width; each begins with the text columns that label the rows."""
    n_labels = next((i for i, column in enumerate(columns) if column.numeric), 1) or 1
    labels, rest = columns[:n_labels], columns[n_labels:]
    blocks: list[list[Column]] = []
    for column in rest:
        if blocks and _least([*blocks[-1], column]) <= width:
            blocks[-1].append(column)
        else:
            blocks.append([*labels, column])
    return blocks or [labels]


def _least(columns: list[Column]) -> int:
    return sum(column.least for column in columns) + len(GAP) * (len(columns) - 1)


def _block(columns: list[Column], width: int) -> list[str]:
    """Format a block as lines. Spare width goes to the most wrapped column: first to texts, then to headings."""
    widths = [column.least for column in columns]
    for _ in range(width - _least(columns)):
        narrow = [i for i, column in enumerate(columns) if widths[i] < column.most]
        if narrow:
            widths[max(narrow, key=lambda i: (not columns[i].numeric, columns[i].most / widths[i]))] += 1
    wrapped = any(width < column.most for column, width in zip(columns, widths, strict=True) if not column.numeric)
    lines = _row(columns, widths, [column.heading for column in columns], bottom=True)
    lines.append(GAP.join("─" * width for width in widths))
    for i, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        lines += [""] * (wrapped and i > 0)  # an empty line marks where a wrapped row ends
        lines += _row(columns, widths, cells)
    return [line.rstrip() for line in lines]


def _row(columns: list[Column], widths: list[int], texts: Iterable[str], bottom: bool = False) -> list[str]:
    """Format one row as lines; cells with fewer lines align at the top, or at the bottom as headings do."""
    cells = [c.lines(text, width) for c, text, width in zip(columns, texts, widths, strict=True)]
    n_lines = max(map(len, cells))
    for i, cell in enumerate(cells):
        empty = [" " * widths[i]] * (n_lines - len(cell))
        cells[i] = empty + cell if bottom else cell + empty
    return [GAP.join(parts) for parts in zip(*cells, strict=True)]


def _look(column: Column) -> str:
    # Without a minimum, a browser narrows texts to their longest word before the box scrolls: too narrow to read.
    width = f"text-align:left;min-width:{min(column.most, TEXT_WIDTH)}ch"
    return f"{'text-align:right' if column.numeric else width};vertical-align:bottom;padding:0.3em 0.6em"


def _cell(column: Column, text: str) -> str:
    align = "text-align:right;white-space:nowrap" if column.numeric else "text-align:left"
    return f'<td style="{align};vertical-align:top;padding:0.3em 0.6em">{html.escape(text)}</td>'


# Formats: functions from values to text.


def plain(value: object) -> str:
    """Format a value without a format of its own: floats with six significant digits, Booleans as yes and no."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    return f"{value:g}" if pd.api.types.is_float(value) else str(value)


def count(value: Real) -> str:
    """Format an integer with thousands separators: 49,152."""
    return f"{value:,.0f}"


def number(digits: int = 0, unit: str = "", scale: Real = 1, sign: bool = False) -> Format:
    """Return a format with fixed decimals: number(1, "MB", 1e-6) writes 28,300,000 as 28.3 MB. Zero has no minus."""

    def write(value: Real) -> str:
        return f"{scale * value:{'+' if sign else ''}z,.{digits}f}{f' {unit}' if unit else ''}"

    return write


def plus_minus(digits: int = 0, unit: str = "", scale: Real = 1, sign: bool = False) -> Format:
    """Return a format for a value with its standard error, 21.3 ± 0.5, or alone where the error is missing."""
    value_alone, error_alone = number(digits, "", scale, sign), number(digits, "", scale)

    def write(value: Real, error: Real | None) -> str:
        error_text = "" if _is_missing(error) else f" ± {error_alone(error)}"
        return f"{value_alone(value)}{error_text}{f' {unit}' if unit else ''}"

    return write


def with_range(digits: int = 0, unit: str = "", scale: Real = 1) -> Format:
    """Return a format for three columns, a value with the smallest and the largest one: 14 (12–17)."""
    write_one = number(digits, "", scale)

    def write(value: Real, low: Real, high: Real) -> str:
        return f"{write_one(value)} ({write_one(low)}–{write_one(high)}){f' {unit}' if unit else ''}"

    return write
