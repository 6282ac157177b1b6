"""Speculative decoding: how often the model's weights are loaded for 100 tokens, by draft."""

import math
from statistics import fmean

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.tables import Measured, load_measured, percent, rows
from course_lib.lessons.sparse_attention import claims
from course_lib.lessons.sparse_attention.estimates import rows as found
from course_lib.lessons.sparse_attention.estimates.drafts import (
    alpha,
    drafts,
    expected,
    speculated,
    speeds,
    tokens_a_pass,
)
from course_lib.lessons.sparse_attention.experiments.experiment_drafts import COPYING, LOOKUP, RUNNING


def results() -> Measured:
    """The committed measurement of `course reproduce drafts`."""
    return load_measured("sparse_attention", "experiments/drafts")


def provenance(measured: Measured) -> str:
    """What was run, where, when, with how much."""
    sizes = measured["sizes"]
    return found.provenance(
        measured,
        f"α on {sizes['texts']} texts of {sizes['length']} tokens; {sizes['n_new']} tokens written behind "
        f"{sizes['written']} of them, {sizes['k']} drafted a pass, temperature 1",
    )


def overlaps(measured: Measured) -> str:
    """α by draft on both kinds of text, and the share of places at which anything is proposed."""
    lines = [f"{'α = mean Σ min(p, q)':<24}{'read':>8}{RUNNING:>20}{COPYING:>20}"]
    for draft in drafts(measured):
        row = rows(measured, "speculated", draft=draft, kind=RUNNING)[0]
        cells = "".join(f"{_cell(*alpha(measured, draft, kind)):>20}" for kind in (RUNNING, COPYING))
        lines.append(f"{draft:<24}{percent(row['read']):>8}{cells}")
    shares = [rows(measured, "overlap", draft=LOOKUP, kind=kind)[0]["proposed"] for kind in (RUNNING, COPYING)]
    lines.append(f"{LOOKUP} proposes a token at {percent(shares[0])} and {percent(shares[1])} of the places")
    lines.append("read: bytes that a pass of the draft reads, of those of a pass of the model")
    return "\n".join([*lines, report([claims.MORE_STAY], measured)])


def passes(measured: Measured) -> str:
    """Loads of the model for 100 tokens, beside what α foretells, and bytes with the draft's own counted.

    α is that of a given text. Behind a text that is to be copied the model writes another one, drawn at temperature 1,
    so that what α foretells of the copy is not expected of what is written.
    """
    lines = [f"{'':<36}{'tokens a pass':>15}{'foretold':>10}{'stayed':>8}{'loads for 100':>15}{'speed by bytes':>16}"]
    for case, row in speculated(measured).items():
        mean, error = tokens_a_pass(measured, row["draft"], row["kind"])
        foretold, speed = expected(measured, row["draft"], row["kind"]), speeds(measured, row)
        cells = f"{_cell(mean, error):>15}{foretold:>10.2f}{percent(row['stayed'] / max(1, row['tried'])):>8}"
        cells += f"{100 / mean:>15.0f}{fmean(speed):>14.2f} x"
        lines.append(f"{case:<36}{cells}")
    lines.append("foretold: from α of the text that was given; stayed: of the drafted tokens that were tried")
    return "\n".join([*lines, report(claims.PASS_CLAIMS, measured)])


def _cell(mean: float, error: float) -> str:
    return f"{mean:.2f} ± {error:.2f}" if math.isfinite(error) else f"{mean:.2f}"
