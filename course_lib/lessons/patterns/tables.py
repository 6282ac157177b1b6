"""The tables of lesson 01, from the stored results."""

from collections.abc import Mapping

from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.patterns.experiments.budget import BUDGET, Attempt, stored
from course_lib.measure.paired import mean_and_error

HIGHER = "log-perplexity above the first row"


def ideas(attempt: Attempt | None = None, others: Mapping[str, Attempt] | None = None) -> Table:
    """Compare ideas for the open task with the first of them; your attempt comes last.

    A choice over the budget is not evaluated and has no perplexity.
    """
    others = others or stored(rows(load_measured("patterns", "budget"), "ideas"))
    first = next(iter(others.values()))
    table = []
    for name, each in {**others, **({"yours": attempt} if attempt else {})}.items():
        row = {"what is kept": name, "weights kept": each.density, "bytes": each.size}
        is_compared = each.losses is not None and each is not first
        value, error = mean_and_error(each.losses - first.losses) if is_compared else (None, None)
        perplexity = None if each.losses is None else each.losses.mean().exp().item()
        table.append(row | {"perplexity": perplexity, HIGHER: value, "its standard error": error})
    stored_as = ""
    if attempt:
        stored_as = f" Yours is stored as {', '.join(f'{name} ({n})' for name, n in attempt.formats.items())}."
    return Table(
        table,
        caption="What is kept within a budget of bytes",
        formats={
            "weights kept": number(1, "%", 100),
            "bytes": number(1, "%", 100),
            "perplexity": number(1),
            (HIGHER, "its standard error"): plus_minus(3, sign=True),
        },
        note="bytes: of the matrices of the blocks, compared with the dense ones. A choice over the budget of "
        f"{percent(BUDGET)} is not evaluated.{stored_as}",
    )
