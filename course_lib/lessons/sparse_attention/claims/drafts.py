"""Speculative decoding: how often the model's weights are loaded for 100 tokens, by draft."""

import math
from statistics import fmean

from course_lib.attention.speculative.accept import expected_tokens
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.tables import Measured, load_measured, percent, rows
from course_lib.lessons.common.verdicts import Effect, claim, of_independent, of_samples
from course_lib.lessons.sparse_attention.claims import rows as found
from course_lib.lessons.sparse_attention.experiments.experiment_drafts import COPYING, HALF, LOOKUP, RUNNING
from course_lib.measure.paired import mean_and_error

NEAR = 0.15  # of the tokens a pass: what the formula may be off by


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


def overlaps(measured: Measured) -> str:
    """α by draft on both kinds of text, and the share of places at which anything is proposed."""
    lines = [f"{'α = mean Σ min(p, q)':<24}{'read':>8}{RUNNING:>20}{COPYING:>20}"]
    gaps = []
    for draft in drafts(measured):
        row = rows(measured, "speculated", draft=draft, kind=RUNNING)[0]
        cells = "".join(f"{_cell(*alpha(measured, draft, kind)):>20}" for kind in (RUNNING, COPYING))
        lines.append(f"{draft:<24}{percent(row['read']):>8}{cells}")
        gaps.append(of_independent(alpha(measured, draft, RUNNING), alpha(measured, draft, COPYING)))
    shares = [rows(measured, "overlap", draft=LOOKUP, kind=kind)[0]["proposed"] for kind in (RUNNING, COPYING)]
    lines.append(f"{LOOKUP} proposes a token at {percent(shares[0])} and {percent(shares[1])} of the places")
    lines.append("read: bytes that a pass of the draft reads, of those of a pass of the model")
    lines.append(claim("more drafted tokens stay where a text is copied", gaps))
    return "\n".join(lines)


def passes(measured: Measured) -> str:
    """Loads of the model for 100 tokens, beside what α foretells, and bytes with the draft's own counted.

    α is that of a given text. Behind a text that is to be copied the model writes another one, drawn at temperature 1,
    so that what α foretells of the copy is not expected of what is written.
    """
    lines = [f"{'':<36}{'tokens a pass':>15}{'foretold':>10}{'stayed':>8}{'loads for 100':>15}{'speed by bytes':>16}"]
    fewer, near, faster = [], [], []
    for kind in (RUNNING, COPYING):
        for draft in drafts(measured):
            row = rows(measured, "speculated", draft=draft, kind=kind)[0]
            mean, error = tokens_a_pass(measured, draft, kind)
            foretold, speed = expected(measured, draft, kind), _speeds(measured, row)
            cells = f"{_cell(mean, error):>15}{foretold:>10.2f}{percent(row['stayed'] / max(1, row['tried'])):>8}"
            cells += f"{100 / mean:>15.0f}{fmean(speed):>14.2f} x"
            lines.append(f"{f'{draft}, {kind}':<36}{cells}")
            fewer.append(of_samples(by_text(row), 1.0))
            if kind == RUNNING:
                near.append(Effect(value=NEAR - abs(math.log(mean / foretold)), error=error / mean, n=len(row["new"])))
            faster += [of_samples(speed, 1.0)] if draft != HALF else []
    lines.append(claim("the weights are loaded fewer than 100 times for 100 tokens", fewer))
    lines.append("foretold: from α of the text that was given; stayed: of the drafted tokens that were tried")
    lines.append(claim(f"on running text α foretells the tokens a pass within {percent(NEAR)}", near))
    lines.append(claim("with the draft's own bytes counted, fewer bytes are read (the oracle left out)", faster))
    return "\n".join(lines)


def _speeds(measured: Measured, row: Row) -> list[float]:
    """By text: bytes a token without a draft over those with it, k passes of the draft a pass of the model."""
    drafted = row["drafted"] / sum(row["passes"])
    return [tokens / (1 + row["read"] * drafted) for tokens in by_text(row)]


def _cell(mean: float, error: float) -> str:
    return f"{mean:.2f} ± {error:.2f}" if math.isfinite(error) else f"{mean:.2f}"
