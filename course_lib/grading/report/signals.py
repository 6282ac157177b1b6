"""The instructor's page, the signals that a human may want to follow up. None of them has changed a grade."""

from collections.abc import Sequence

from course_lib.grading.records import Result
from course_lib.grading.report import similar_code
from course_lib.grading.report.by_exercise import link, names
from course_lib.grading.report.by_student import MOST_ROWS, more
from course_lib.grading.report.html import NAME, escape
from course_lib.grading.report.similar_code import Pair, Shared, Signal
from course_lib.grading.report.tables import Cell, Column, table


def signals(results: Sequence[Result]) -> str:
    """What a human may want to look at."""
    pieces = similar_code.shared(results)
    note = (
        '<p class="note">These are reasons to look, not verdicts: none of them has changed a grade, and each can have '
        "an innocent cause.</p>"
    )
    touched = _signals(similar_code.touched(results), "Attempts to open what belongs to the grader", "What was touched")
    calls = _signals(similar_code.only_calls(results), "Functions that only call course_lib", "What is called")
    return f"{note}<h3>The same code</h3>{_same(pieces, similar_code.pairs(pieces))}{touched}{calls}"


def _same(pieces: list[Shared], pairs: list[Pair]) -> str:
    """Pairs with several exercises in common say most; below them every telling piece of code."""
    several = [pair for pair in pairs if len(pair.exercises) > 1]
    telling = [piece for piece in pieces if piece.telling]
    summary = (
        f"<p>Pieces of code that are at least {similar_code.LONG_ENOUGH} tokens long and shared by few: "
        f"{len(telling):,}. Pairs of submissions that share several of them: {len(several):,}. Names, comments and "
        f"formatting do not count. Shared too, but short or by many, which says nothing: "
        f"{len(pieces) - len(telling):,}.</p>"
    )
    return f"{summary}{_pairs(several) if several else ''}{_pieces(telling) if telling else ''}"


def _pairs(several: list[Pair]) -> str:
    columns = (
        Column("Two submissions", "name"),
        Column("Exercises in common", "number"),
        Column("Of these not right", "number"),
        Column("Which"),
    )
    rows = [
        [
            Cell(" and ".join(map(link, pair.students))),
            Cell(str(len(pair.exercises)), len(pair.exercises)),
            Cell(str(pair.wrong), pair.wrong),
            Cell(", ".join(escape(title, NAME) for title in pair.exercises)),
        ]
        for pair in several[:MOST_ROWS]
    ]
    return table("Pairs with the same code", columns, rows, "") + more(len(several))


def _pieces(telling: list[Shared]) -> str:
    columns = (
        Column("Exercise", "name"),
        Column("The code is", "tag"),
        Column("Tokens", "number"),
        Column("Shared by"),
    )
    rows = [
        [
            Cell(escape(piece.title, NAME)),
            Cell("right" if piece.right else "not right"),
            Cell(f"{piece.tokens:,}", piece.tokens),
            Cell(names(piece.students)),
        ]
        for piece in telling[:MOST_ROWS]
    ]
    return table("Code that few share", columns, rows, "") + more(len(telling))


def _signals(flagged: list[Signal], title: str, what: str) -> str:
    columns = (Column("Student", "name"), Column("Exercise"), Column(what))
    rows = [
        [Cell(link(signal.student)), Cell(escape(signal.title, NAME)), Cell(escape(", ".join(signal.seen)))]
        for signal in flagged[:MOST_ROWS]
    ]
    return f"<h3>{title}</h3>{table(title, columns, rows, 'None.')}{more(len(flagged))}"
