"""Speculative decoding: tokens per pass of the model, measured and predicted from α."""

import math

from course_lib.attention.speculative.accept import expected_tokens
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.results import Measured, rows
from course_lib.lessons.common.verdicts import Effect, of_independent, of_samples
from course_lib.lessons.sparse_attention.experiments.drafts import COPYING, HALF, RUNNING
from course_lib.measure.paired import mean_and_error


def drafts(measured: Measured) -> list[str]:
    """Those that were measured on both kinds of text, in their order."""
    by_kind = [[row["draft"] for row in rows(measured, "speculated", kind=kind)] for kind in (RUNNING, COPYING)]
    return [draft for draft in by_kind[0] if draft in by_kind[1]]


def alpha(measured: Measured, draft: str, kind: str) -> tuple[float, float]:
    """Mean Σ min(p, q) and its error over texts."""
    return mean_and_error(rows(measured, "overlap", draft=draft, kind=kind)[0]["alpha"])


def tokens_a_pass(measured: Measured, draft: str, kind: str) -> tuple[float, float]:
    """As measured, with the error over texts."""
    return mean_and_error(by_text(rows(measured, "speculated", draft=draft, kind=kind)[0]))


def by_text(row: Row) -> list[float]:
    return [new / passes for new, passes in zip(row["new"], row["passes"], strict=True)]


def expected(measured: Measured, draft: str, kind: str) -> float:
    """(1 − α^{k+1}) / (1 − α) at the measured α; a lookup drafts only where it finds something."""
    share = rows(measured, "overlap", draft=draft, kind=kind)[0]["proposed"]
    return share * expected_tokens(alpha(measured, draft, kind)[0], measured["sizes"]["k"]) + 1 - share


def speeds(measured: Measured, row: Row) -> list[float]:
    """By text: bytes per token without a draft over those with it, with k passes of the draft per pass of the model."""
    drafted = row["drafted"] / sum(row["passes"])
    return [tokens / (1 + row["read"] * drafted) for tokens in by_text(row)]


def speculated(measured: Measured) -> dict[str, Row]:
    """One row per kind of text and draft, by the name of the case."""
    return {
        f"{draft}, {kind}": rows(measured, "speculated", draft=draft, kind=kind)[0]
        for kind in (RUNNING, COPYING)
        for draft in drafts(measured)
    }


def copied_minus_running(measured: Measured) -> dict[str, Effect]:
    """α where a text is copied minus α on running text, by draft."""
    return {
        draft: of_independent(alpha(measured, draft, RUNNING), alpha(measured, draft, COPYING))
        for draft in drafts(measured)
    }


def tokens_per_pass(measured: Measured) -> dict[str, Effect]:
    return {case: of_samples(by_text(row)) for case, row in speculated(measured).items()}


def prediction_errors(measured: Measured) -> dict[str, Effect]:
    """On running text: log of the larger over the smaller of measured and predicted tokens per pass, by draft."""
    effects = {}
    for draft in drafts(measured):
        mean, error = tokens_a_pass(measured, draft, RUNNING)
        n = len(rows(measured, "speculated", draft=draft, kind=RUNNING)[0]["new"])
        off = abs(math.log(mean / expected(measured, draft, RUNNING)))
        effects[draft] = Effect(value=off, error=error / mean, n=n)
    return effects


def byte_savings(measured: Measured) -> dict[str, Effect]:
    """Bytes read per token without a draft over those with it, by draft and kind of text; the oracle is left out."""
    cases = speculated(measured).items()
    return {case: of_samples(speeds(measured, row)) for case, row in cases if row["draft"] != HALF}
