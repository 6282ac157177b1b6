"""docs/claims.md: how many claims came out how, then every claim by document, then what decides each of them."""

import json
from collections import Counter
from collections.abc import Iterable

from course_lib.lessons.common.claim import Claim
from course_lib.lessons.common.verdicts import FAILS, HOLDS, MIXED, NOT_AT_THIS_SCALE, PARTLY, UNDECIDED, WORDS
from course_lib.workbook.catalogue import exercises_of
from course_lib.workbook.ledger.everything import all_claims, all_sources, all_statements
from course_lib.workbook.ledger.judge import judged, origin, shown
from course_lib.workbook.ledger.record import LIBRARY, Source, Statement

PATH = LIBRARY.parent / "docs" / "claims.md"
SUMMARY = LIBRARY / "lessons" / "capstone" / "verdicts.json"  # the same verdicts as data, for the last lesson
NOT_MEASURED, AWAITED = "not measured", "not measured yet"
TITLE = "# Claims"
INTRODUCTION = f"""
What the documents claim that this course is built from, in our words, and what we measured. `course claims` writes this
page from the committed results; no verdict and no number of ours is typed in by hand.

*Ours* and *published* stand next to each other in the unit of the claim. The verdict comes from the distance between
our value and the claim's threshold: positive is on the claim's side, and ratios are compared as logarithms. A claim
**{HOLDS}** where the 95 % interval of this distance (Student's t) lies above zero, and **{FAILS}** where it lies below.
Where a claim names several cases, all of them must hold; it **{PARTLY}** where no case fails and at least half of them
hold, and is **{MIXED}** where some cases hold and others fail. It is **{UNDECIDED}** where the interval contains zero.
**{NOT_AT_THIS_SCALE.capitalize()}** replaces "{FAILS}" for claims about larger models: the default model has 135
million parameters, and its weights were rounded to 4 bits once. "Counted" distances have no error, because all existing
cases were counted. n is the number of independent samples per case; a dash means that it is not known.
""".strip()


def page(sources: Iterable[Source] | None = None) -> str:
    """The whole page, of all documents if none are given; the same from the same results."""
    sources = list(sources or all_sources())
    statements = [statement for source in sources for statement in source.statements]
    parts = [TITLE, INTRODUCTION, *counts(statements)]
    for source in sources:
        parts += [f"## {source.title}", source.about + ".", *filter(None, [source.same_as]), table(source.statements)]
    return "\n\n".join([*parts, *by_lesson()]) + "\n"


def summary() -> str:
    """Every statement with its verdict and the lesson that judges it, as JSON with one statement per line."""
    rows = [
        {
            "id": statement.id,
            "says": statement.says,
            "verdict": verdict_of(statement),
            "lesson": lesson_of(all_claims()[statement.claim])[:2] if statement.claim else None,
        }
        for statement in all_statements()
    ]
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"


def verdict_of(statement: Statement) -> str:
    """One of the words of the verdict rule, or that it is not measured."""
    if statement.claim:
        return judged(statement.claim).verdict
    return AWAITED if statement.awaits else NOT_MEASURED


def counts(statements: Iterable[Statement]) -> list[str]:
    """One row per verdict."""
    found = Counter(map(verdict_of, statements))
    lines = ["| verdict | claims |", "|:--|--:|"]
    lines += [f"| {word} | {found[word]} |" for word in (*WORDS, NOT_MEASURED, AWAITED)]
    return ["\n".join([*lines, f"| all | {sum(found.values())} |"])]


def table(statements: Iterable[Statement]) -> str:
    """One row per statement."""
    distance = "distance to the threshold ± standard error"
    head = ("", "claim", "verdict", "ours", "published", distance, "n", "decided by")
    lines = [_row(head), "|:--|:--|:--|:--|:--|:--|--:|:--|"]
    return "\n".join([*lines, *(_row(_cells(statement)) for statement in statements)])


def _cells(statement: Statement) -> tuple[str, ...]:
    said = f"{statement.says} ({statement.at})"
    if not statement.claim:
        why = statement.why_not or f"`{statement.awaits}` will judge it"
        return statement.id, said, verdict_of(statement), why, statement.published, "", "", ""
    found, claim = judged(statement.claim), all_claims()[statement.claim]
    effect = f"{shown(found.effects.values())}: {claim.quantity}"
    decided = f"lesson {lesson_of(claim)[:2]}, [{statement.claim}](#{statement.claim}), {_run(claim)}"
    return statement.id, said, found.words, found.ours, statement.published, effect, found.n, decided


def _run(claim: Claim) -> str:
    """The commands behind a verdict, and their seeds."""
    commands, seeds = origin(claim)
    if not commands:
        return "counted from shapes"
    seeds_text = f", seed {', '.join(map(str, seeds))}" if seeds else ""
    return f"{', '.join(f'`{command}`' for command in commands)}{seeds_text}"


def by_lesson() -> list[str]:
    """Every claim that a lesson judges, also those that no document above states."""
    ids = sorted(all_claims(), key=lambda name: (lesson_of(all_claims()[name]), name))
    parts = ["## All claims by lesson", "As the lessons word them: our value, the published one, and the verdict."]
    head = ("", "claim", "ours", "published", "verdict", "it would be refuted by")
    for lesson in dict.fromkeys(lesson_of(all_claims()[name]) for name in ids):
        lines = [_row(head), "|:--|:--|:--|:--|:--|:--|"]
        lines += [_row(_claim_cells(name)) for name in ids if lesson_of(all_claims()[name]) == lesson]
        parts += [f"### {lesson}", "\n".join(lines)]
    return parts


def _claim_cells(name: str) -> tuple[str, ...]:
    found, claim = judged(name), all_claims()[name]
    ours = found.ours if claim.shown else f"{found.ours} ({claim.quantity})"
    anchor = f'<a id="{name}"></a>{name}'
    return anchor, claim.text, ours, claim.published_value, found.words, claim.refuted


def lesson_of(claim: Claim) -> str:
    """The lesson's number and name, as in "07 KV eviction"."""
    return exercises_of(claim.lesson).LESSON


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
