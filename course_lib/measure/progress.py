"""A bar for loops that take seconds to minutes.

Trap: in a notebook every refresh of a bar is four messages to the browser. At rich's ten refreshes a second, a cell of
two minutes sends thousands; a client that reads them only at the end of the cell, as nbval does, loses the last ones,
and with them the news that the cell is done.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from rich.progress import Progress, track

REFRESHES_PER_SECOND = 1


def tracked(sequence: Iterable[Any], what: str, show: bool, total: int | None = None) -> Iterator[Any]:
    """`sequence`, with a bar that says `what` and leaves at the end; no bar unless `show`.

    `total` says how long a sequence without a length is.
    """
    yield from track(sequence, what, total, transient=True, refresh_per_second=REFRESHES_PER_SECOND, disable=not show)


def bar(show: bool) -> Progress:
    """A bar that is advanced by hand: `with bar(True) as shown: task = shown.add_task("scoring", total=3)`."""
    return Progress(transient=True, refresh_per_second=REFRESHES_PER_SECOND, disable=not show)
