"""Tables that spreadsheets open: CSV in which nothing that a submission says can run.

Text that a spreadsheet would run as a formula is turned into text by an apostrophe in front. A plain number stays as it
is, also a negative one: nothing can be run in it, and an id may look like that.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from course_lib.grading.report.text import SENTENCE, clean

MARK = "\ufeff"  # the byte order mark, once encoded

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_FORMULA = re.compile(r"[\s'\"]*[=+\-@＝＋－＠]")
# Where the semicolon separates columns, as in Excel with a decimal comma, a formula may begin after one.
_AFTER_SEMICOLON = re.compile(r";(?=[\s'\"]*[=+\-@＝＋－＠])")


def cell(text: str, limit: int = SENTENCE) -> str:
    """Text of any origin for one cell: one line, of bounded length, and nothing that a spreadsheet would run."""
    part = _AFTER_SEMICOLON.sub(",", clean(text, limit))
    return f"'{part}" if _FORMULA.match(part) and not _NUMBER.fullmatch(part) else part


def written(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """The whole table as CSV. Every cell that holds text of any origin has been through `cell`."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows(lines)
    return file.getvalue()
