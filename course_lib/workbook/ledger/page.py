"""docs/claims.md: the number of claims with each verdict, all claims by document, and the rule for each verdict."""

import json
from collections import Counter
from collections.abc import Iterable

from course_lib.lessons.common.claim import Claim
from course_lib.lessons.common.verdicts import FAILS, HOLDS, MIXED, NOT_AT_THIS_SCALE, PARTLY, UNDECIDED, WORDS
from course_lib.workbook.catalogue import exercises_of
from course_lib.workbook.ledger.everything import all_claims, all_sources, all_statements
from course_lib.workbook.ledger.judge import judged, origin
from course_lib.workbook.ledger.record import LIBRARY, Label, Source, Statement

PATH = LIBRARY.parent / "docs" / "claims.md"
SUMMARY = LIBRARY / "lessons" / "capstone" / "verdicts.json"  # the same verdicts as data, for the last lesson
TITLE = "# Claims"
INTRODUCTION = f"""
This page lists what the course's source documents state, in our words, and what we measured. `course claims` writes it
from the committed results; no verdict and no number of ours is typed in by hand.

*Published* and *measured here* are in the same unit where they can be compared; ± is one standard error, and that of
the median of the repetitions for times. Ratios with a large error are given with their 95 % interval. *Counts as* is
the threshold from which on a claim is right, with its reason; where another reasonable threshold changes the verdict,
it follows. The verdict comes from the 95 % interval (Student's t) around our value. A claim **{HOLDS}** where the
interval lies on the claim's side of the threshold, **{FAILS}** where it lies on the other side, and is **{UNDECIDED}**
where it contains the threshold. Where a claim names several cases, all of them must hold; where it says that something
can happen ("permits", "up to"), one is enough. Otherwise it **{PARTLY}** where no case fails and at least half of them
hold, and is **{MIXED}** where some cases hold and others fail; single cases are decided after Holm's correction for
their number.

**{NOT_AT_THIS_SCALE.capitalize()}** replaces "{FAILS}" for claims about larger models: the default model has 135
million parameters, and its weights were rounded to 4 bits once. The label does not say that size is the reason:
OPT-125M in lesson 03's table is as small and loses less.

A value without ± was counted over all existing cases, such as the layers of a model, and says how many there are. n is
the number of independent samples per case, such as texts, questions or trainings. The layers of a model are no sample:
what lesson 07 counts in each layer comes from n = 16 articles. A dash means that there is no sample, or that its size
is not known.

Some statements need no measurement or cannot have one here: they are true by construction, theorems, counts of
operations or bytes, or comparisons within the source's own table, or they need a larger model or a GPU. Where a claim
is decided by the source's own numbers, its verdict follows the label.
""".strip()


def page(sources: Iterable[Source] | None = None) -> str:
    """Return the whole page, of all documents if none are given. The same results give the same page."""
    sources = list(sources or all_sources())
    statements = [statement for source in sources for statement in source.statements]
    parts = [TITLE, INTRODUCTION, *counts(statements)]
    for source in sources:
        parts += [f"## {source.title}", source.about + ".", *filter(None, [source.same_as]), table(source.statements)]
    return "\n\n".join([*parts, *by_lesson()]) + "\n"


def summary() -> str:
    """Return every statement with its verdict and the lesson that judges it, as JSON with one statement per line."""
    rows = [
        {
            "id": statement.id,
            "says": statement.says,
            "verdict": word if (word := verdict_of(statement)) in WORDS else Label.OPEN,
            "lesson": lesson_of(all_claims()[statement.claim])[:2] if statement.claim else None,
        }
        for statement in all_statements()
    ]
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"


def verdict_of(statement: Statement) -> str:
    """Return one of the words of the verdict rule, or the label that says why nothing is measured."""
    if not statement.claim:
        return str(statement.label)
    return str(Label.FROM_SOURCE) if all_claims()[statement.claim].from_source else judged(statement.claim).verdict


def counts(statements: Iterable[Statement]) -> list[str]:
    """Return one row per verdict, and then the number of claims, since one claim may judge several statements."""
    statements = list(statements)
    found = Counter(map(verdict_of, statements))
    lines = ["| verdict | statements |", "|:--|--:|"]
    lines += [f"| {word} | {found[word]} |" for word in (*WORDS, *Label)]
    judging = [statement.claim for statement in statements if statement.claim]
    said = f"{len(judging)} statements are judged by {len(set(judging))} claims of the lessons."
    return ["\n".join([*lines, f"| all | {sum(found.values())} |"]), said]


def table(statements: Iterable[Statement]) -> str:
    """Return one row per statement."""
    head = ("", "statement", "published", "measured here", "n", "counts as", "verdict", "decided by")
    lines = [_row(head), "|:--|:--|:--|:--|--:|:--|:--|:--|"]
    return "\n".join([*lines, *(_row(_cells(statement)) for statement in statements)])


def _cells(statement: Statement) -> tuple[str, ...]:
    said = f"{statement.says} ({statement.at})"
    if not statement.claim:
        return statement.id, said, statement.published, statement.why_not, "", "", verdict_of(statement), ""
    found, claim = judged(statement.claim), all_claims()[statement.claim]
    published = statement.published or claim.published_value
    decided = f"lesson {lesson_of(claim)[:2]}, [{statement.claim}](#{statement.claim}), {_run(claim)}"
    return statement.id, said, published, _ours(claim), found.n, counts_as(claim), _words(claim), decided


def _ours(claim: Claim) -> str:
    ours = claim.judge().ours
    return ours if claim.shown else f"{ours} ({claim.quantity})"


def _words(claim: Claim) -> str:
    words = claim.judge().words
    return f"{Label.FROM_SOURCE}: {words}" if claim.from_source else words


def counts_as(claim: Claim) -> str:
    """Describe the threshold with its reason, and other reasonable thresholds at which the verdict changes."""
    flips = [f"with {threshold}: {word}" for threshold, word in claim.judge().flips.items()]
    return "; ".join([claim.counts_as, *flips])


def _run(claim: Claim) -> str:
    """List the commands that produced a verdict, and their seeds."""
    commands, seeds = origin(claim)
    if not commands:
        return claim.basis
    seeds_text = f", seed {', '.join(map(str, seeds))}" if seeds else ""
    return f"{', '.join(f'`{command}`' for command in commands)}{seeds_text}"


def by_lesson() -> list[str]:
    """List every claim that a lesson judges, including those that no document above states."""
    ids = sorted(all_claims(), key=lambda name: (lesson_of(all_claims()[name]), name))
    parts = ["## All claims by lesson", "Each claim as the lesson words it."]
    head = ("", "claim", "published", "measured here", "counts as", "verdict", "it would be refuted by")
    for lesson in dict.fromkeys(lesson_of(all_claims()[name]) for name in ids):
        lines = [_row(head), "|:--|:--|:--|:--|:--|:--|:--|"]
        lines += [_row(_claim_cells(all_claims()[name])) for name in ids if lesson_of(all_claims()[name]) == lesson]
        parts += [f"### {lesson}", "\n".join(lines)]
    return parts


def _claim_cells(claim: Claim) -> tuple[str, ...]:
    anchor = f'<a id="{claim.id}"></a>{claim.id}'
    return anchor, claim.text, claim.published_value, _ours(claim), counts_as(claim), _words(claim), claim.refuted


def lesson_of(claim: Claim) -> str:
    """Return the lesson's number and name, as in "07 KV eviction"."""
    return exercises_of(claim.lesson).LESSON


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
