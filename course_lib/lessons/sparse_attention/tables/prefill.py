"""FlexPrefill: how much is read over γ, what that costs, and what else could have been read.

Every rule of one length read the same windows, and is compared with dense attention window by window.
"""

import math
from statistics import fmean

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.tables import Measured
from course_lib.lessons.sparse_attention import claims
from course_lib.lessons.sparse_attention.estimates import rows as found
from course_lib.lessons.sparse_attention.estimates.prefill import (
    above,
    bare,
    chosen,
    density,
    flat,
    flex,
    of_same_density,
    thirds,
    with_floor,
)
from course_lib.lessons.sparse_attention.experiments.experiment_sparse_attention import RELEASED, Sizes, further


def results() -> Measured:
    """The committed `course reproduce sparse_attention`, with `sparse_attention_further` where that is."""
    return found.load_joined("experiments/sparse_attention", "experiments/sparse_attention_further")


def provenance(measured: Measured) -> str:
    """What was run, where, when, with how much."""
    sizes = measured["sizes"]
    amounts = f"{sizes['windows']} windows a length; blocks of {sizes['block_size']}, a floor of "
    amounts += f"{sizes['min_budget']} tokens; coverage of all queries on {sizes['covered']} windows"
    return found.provenance(measured, amounts, further(Sizes()))


def over_gamma(measured: Measured) -> str:
    """By length and γ: what is read and what that costs; is no loss true, and is less read of longer texts?"""
    return "\n".join([*_table(measured, flex(measured)), report(claims.GAMMA_CLAIMS, measured)])


def floor(measured: Measured) -> str:
    """γ alone beside γ with a floor under what each head reads."""
    lines = _table(measured, [each for row in bare(measured) for each in (with_floor(measured)[row["gamma"]], row)])
    return "\n".join([*lines, report(claims.FLOOR_CLAIMS, measured)])


def rivals(measured: Measured) -> str:
    """Rules that give each head the mean of what FlexPrefill gave."""
    lines = _table(measured, [chosen(measured), *of_same_density(measured)])
    return "\n".join([*lines, report(claims.RIVAL_CLAIMS, measured)])


def released(measured: Measured) -> str:
    """The public code's two lines beside γ that is reached."""
    lines = _table(measured, [chosen(measured), *found.some(measured, "read", rule=RELEASED)])
    return "\n".join([*lines, report(claims.RELEASED_CLAIMS, measured)])


def heads(measured: Measured) -> str:
    """Are heads as different as the rule supposes? Layer by layer in thirds, then all heads."""
    lines = [f"{'layers':<12}{'density':>10}{'sparsest':>10}{'densest':>10}{'query-aware':>14}"]
    for third in thirds(measured["tables"]["heads"]):
        shares, aware = flat(third, "density"), flat(third, "query_aware")
        name = f"{third[0]['layer']} to {third[-1]['layer']}"
        ends = f"{fmean(shares):>10.2f}{min(shares):>10.2f}{max(shares):>10.2f}"
        lines.append(f"{name:<12}{ends}{f'{100 * fmean(aware):.0f} %':>14}")
    return "\n".join([*lines, report(claims.HEAD_CLAIMS, measured)])


def _table(measured: Measured, shown: list[Row]) -> list[str]:
    """What is read, how much of the attention that is, and the ratio of perplexities to dense attention."""
    lines = [
        f"{'tokens':>6}  {'rule':<22}{'γ':>5}{'density':>9}{'coverage':>10}{'perplexity':>12}{'ratio to dense':>18}"
    ]
    for row in shown:
        effect, gamma = above(measured, row), "" if row["gamma"] is None else f"{row['gamma']:g}"
        ratio = math.exp(effect.value)
        cells = f"{density(row):>9.2f}{row['coverage']:>10.3f}{row['perplexity']:>12.2f}"
        cells += f"{f'{ratio:.3f} ± {ratio * effect.error:.3f}':>18}"
        lines.append(f"{row['tokens']:>6}  {row['rule']:<22}{gamma:>5}{cells}")
    return lines
