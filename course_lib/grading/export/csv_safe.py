"""Write CSV files for spreadsheets, in which no text of a submission can run as a formula.

Text that a spreadsheet would run as a formula is turned into text by an apostrophe in front. A plain number stays as it
is, also a negative one: nothing can be run in it, and an id may look like that.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from course_lib.grading.report.text import SENTENCE, clean

MARK = "\ufeff"  # the encoded byte order mark

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_FORMULA = re.compile(r"[\s'\"]*[=+\-@＝＋－＠]")
# Where the semicolon separates columns, as in Excel with a decimal comma, a formula may begin after one.
_AFTER_SEMICOLON = re.compile(r";(?=[\s'\"]*[=+\-@＝＋－＠])")


def cell(text: str, limit: int = SENTENCE) -> str:
    """Prepare text of any origin for one cell: one line of limited length that no spreadsheet runs as a formula."""
    part = _AFTER_SEMICOLON.sub(",", clean(text, limit))
    return f"'{part}" if _FORMULA.match(part) and not _NUMBER.fullmatch(part) else part


def written(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return the whole table as CSV. Every cell with text of unknown origin must come from `cell`."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows(lines)
    return file.getvalue()
