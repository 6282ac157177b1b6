"""docs/claims.md: how many claims came out how, then every claim by document, then what decides each of them."""

from collections import Counter
from collections.abc import Iterable

from course_lib.lessons.common.verdicts import WORDS
from course_lib.workbook.catalogue import exercises_of
from course_lib.workbook.ledger.everything import all_sources, name_of
from course_lib.workbook.ledger.judge import judged, shown
from course_lib.workbook.ledger.record import LIBRARY, Claim, Rule, Source

PATH = LIBRARY.parent / "docs" / "claims.md"
NOT_MEASURED, AWAITED = "not measured", "not measured yet"
TITLE = "# Claims"
INTRODUCTION = """
What the documents claim that this course is built from, in words of ours, and what became of each claim here. This page
is written by `course claims` from the committed results; nobody types a verdict or a number into it.

A verdict comes from an effect and its error, by the lesson's own line. The effect is measured from what the claim asks
for: positive is on the claim's side, and within two standard errors of zero nothing can be told. Where a claim names
several cases, all must hold. "Not at this scale" is said of claims about larger models: the default model has 135
million parameters, and its weights were rounded to 4 bits once. "Counted" effects have no error: all cases that exist
were counted. n is the number of independent samples of a case, – where it is not known. What is published is the
source's own number.
""".strip()


def page(sources: Iterable[Source] | None = None) -> str:
    """The whole page, of all documents if none are given; the same from the same results."""
    sources = list(sources or all_sources())
    claims = [claim for source in sources for claim in source.claims]
    parts = [TITLE, INTRODUCTION, *counts(claims)]
    for source in sources:
        parts += [f"## {source.title}", source.about + ".", *filter(None, [source.same_as]), table(source.claims)]
    return "\n\n".join([*parts, *deciding(claims)]) + "\n"


def verdict_of(claim: Claim) -> str:
    """One of five, or that it is not measured."""
    if claim.rule:
        return judged(claim.rule).verdict
    return AWAITED if claim.awaits else NOT_MEASURED


def counts(claims: Iterable[Claim]) -> list[str]:
    """A row a verdict."""
    found = Counter(map(verdict_of, claims))
    lines = ["| verdict | claims |", "|:--|--:|"]
    lines += [f"| {word} | {found[word]} |" for word in (*WORDS, NOT_MEASURED, AWAITED)]
    return ["\n".join([*lines, f"| all | {sum(found.values())} |"])]


def table(claims: Iterable[Claim]) -> str:
    """A row a claim."""
    head = ("", "claim", "verdict", "effect ± standard error", "n", "published", "decided by")
    lines = [_row(head), "|:--|:--|:--|:--|--:|:--|:--|"]
    return "\n".join([*lines, *(_row(_cells(claim)) for claim in claims)])


def _cells(claim: Claim) -> tuple[str, ...]:
    said = f"{claim.says} ({claim.at})"
    if claim.rule is None:
        why = claim.why_not or f"`{claim.awaits}` will judge it"
        return claim.id, said, verdict_of(claim), why, "", claim.published, ""
    found = judged(claim.rule)
    effect = f"{shown(found.effects)}: {claim.rule.effect}"
    where = f"lesson {lesson_of(claim.rule)[:2]}, [{name_of(claim.rule)}](#{name_of(claim.rule)}), {_run(claim.rule)}"
    return claim.id, said, found.words, effect, found.n, claim.published, where


def _run(rule: Rule) -> str:
    """The commands behind a rule, and their seeds."""
    found = judged(rule)
    if not found.commands:
        return "counted from shapes"
    seeds = f", seed {', '.join(map(str, found.seeds))}" if found.seeds else ""
    return f"{', '.join(f'`{command}`' for command in found.commands)}{seeds}"


def deciding(claims: Iterable[Claim]) -> list[str]:
    """Every line that decides, lesson by lesson."""
    rules = sorted({claim.rule for claim in claims if claim.rule}, key=lambda rule: (lesson_of(rule), name_of(rule)))
    parts = ["## What decides", "Lines that the lessons print of their committed results."]
    for lesson in dict.fromkeys(map(lesson_of, rules)):
        lines = [_row(("", "what is asked, in the words of the lesson", "it would be refuted by")), "|:--|:--|:--|"]
        for rule in (rule for rule in rules if lesson_of(rule) == lesson):
            label = f'<a id="{name_of(rule)}"></a>{name_of(rule)}'
            lines.append(_row((label, judged(rule).line, rule.refuted)))
        parts += [f"### {lesson}", "\n".join(lines)]
    return parts


def lesson_of(rule: Rule) -> str:
    """Its number and name, as in "07 KV eviction"."""
    return exercises_of(rule.lesson).LESSON


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
