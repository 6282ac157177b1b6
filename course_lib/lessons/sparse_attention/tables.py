"""The tables of lesson 11, from the stored results, the published numbers, and what the notebook measures."""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.results import Measured, load_measured, rows
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.common.verdicts import of_samples
from course_lib.lessons.sparse_attention.estimates import drafts, prefill
from course_lib.lessons.sparse_attention.estimates.rows import results, some
from course_lib.lessons.sparse_attention.experiments.block_scores import DENSE, DENSITY
from course_lib.lessons.sparse_attention.experiments.drafts import COPYING, HALF, LOOKUP, RUNNING
from course_lib.lessons.sparse_attention.experiments.sparse_attention import RELEASED
from course_lib.lessons.sparse_attention.experiments.visual_tokens import TOLD

ABOVE = "loss increase (nats per token)"
RULE_NAMES = {
    "vertical-slash": "vertical-slash, one budget for all heads",
    "StreamingLLM": "StreamingLLM (first tokens and a window)",
    "random": "random blocks",
    RELEASED: "FlexPrefill as released",
}
DRAFT_NAMES = {
    LOOKUP: "prompt lookup",
    "24 of 30 blocks": "early exit (24 of 30)",
    "Minitron's cut": "structural pruning",
    HALF: "oracle, half of neurons",
}
VISUAL_NAMES = {TOLD: "oracle, knows where the digits are"}


def draft_name(draft: str) -> str:
    """Return the name of a draft in tables and figures."""
    return DRAFT_NAMES.get(draft, draft)


# FlexPrefill


def losses_by_rule(
    found: Mapping[str, tuple[Float[Tensor, "N"], float]], fraction: str = "fraction of blocks read"
) -> Table:
    """Compare losses on the windows of the notebook with those of dense attention, which come first."""
    (dense, _), *_ = found.values()
    table = []
    for name, (losses, share) in found.items():
        above = None if losses is dense else of_samples(losses - dense)
        row = {"attention": name, fraction: float(share), "perplexity": float(losses.mean().exp())}
        table.append(row | {ABOVE: above and above.value, "error": above and above.error})
    return Table(
        table,
        caption=f"Perplexity on {len(dense)} windows",
        formats={fraction: percent, "perplexity": number(2), (ABOVE, "error"): plus_minus(3, sign=True)},
        note="± one standard error, itself rough for so few windows.",
    )


def prefill_rules(measured: Measured | None = None) -> Table:
    """Compare FlexPrefill with other rules at one length: rules of the same density, and variants of its own."""
    measured = measured or results("sparse_attention")
    chosen = prefill.chosen(measured)
    table = [{"rule": "FlexPrefill", "γ": chosen["gamma"]} | _read(measured, chosen)]
    others = [*prefill.of_same_density(measured), *some(measured, "read", rule=RELEASED)]
    table += [{"rule": RULE_NAMES[row["rule"]], "γ": row["gamma"]} | _read(measured, row) for row in others]
    for row in prefill.bare(measured):
        pair = {"FlexPrefill": prefill.with_floor(measured)[row["gamma"]], "FlexPrefill, no minimum": row}
        table += [{"rule": name, "γ": each["gamma"]} | _read(measured, each) for name, each in pair.items()]
    return _reads(
        table,
        f"Which blocks to read: rules compared on texts of {measured['sizes']['middle']} tokens",
        "The three rules without γ give every head the mean number of blocks that FlexPrefill reads.",
    )


def _read(measured: Measured, row: Row) -> dict[str, Any]:
    effect = prefill.above(measured, row)
    ratio = math.exp(effect.value)
    return {
        "blocks read": prefill.density(row),
        "attention read": row["coverage"],
        "perplexity": row["perplexity"],
        "ratio to dense": ratio,
        "error": ratio * effect.error,
    }


def _reads(table: list[dict[str, Any]], caption: str, note: str) -> Table:
    formats = {"blocks read": percent, "attention read": number(1, "%", 100), "perplexity": number(2)}
    return Table(table, caption=caption, formats=formats | {("ratio to dense", "error"): plus_minus(3)}, note=note)


def block_scores(attempt: Float[Tensor, "N"] | None = None) -> Table:
    """Compare scores for the open task on the same windows; your attempt comes last."""
    measured = load_measured("sparse_attention", "block_scores")["tables"]["scores"]
    n = len(measured[0]["losses"]) if attempt is None else len(attempt)
    losses = {row["idea"]: row["losses"][:n] for row in measured}
    dense = losses.pop(DENSE)
    losses |= {} if attempt is None else {"yours": attempt.tolist()}
    table = []
    for name, each in losses.items():
        above = of_samples([a - b for a, b in zip(each, dense, strict=True)])
        table.append({"score": name, ABOVE: above.value, "error": above.error})
    return Table(
        table,
        caption=f"Scores for blocks: the loss when every head reads {percent(DENSITY)} of the blocks",
        formats={(ABOVE, "error"): plus_minus(3, sign=True)},
        note=f"{n} windows of 1,024 tokens; ± one standard error. `course reproduce block_scores`.",
    )


# Speculative decoding


def drafts_by_text(measured: Measured | None = None) -> Table:
    """Show for each draft how many tokens are accepted, and what that saves in weight loads and in bytes."""
    measured = measured or results("drafts")
    sizes, table = measured["sizes"], []
    for row in drafts.speculated(measured).values():
        draft, kind = row["draft"], row["kind"]
        mean, error = drafts.tokens_a_pass(measured, draft, kind)
        accepted, accepted_error = drafts.alpha(measured, draft, kind)
        table.append(
            {
                "text": kind,
                "draft": draft_name(draft),
                "draft's bytes": row["read"],
                "α": accepted,
                "α error": accepted_error,
                "tokens per pass": mean,
                "error": error,
                "predicted": drafts.expected(measured, draft, kind),
                "weight loads": 100 / mean,
                "dense bytes / bytes": fmean(drafts.speeds(measured, row)),
            }
        )
    shares = {kind: rows(measured, "overlap", draft=LOOKUP, kind=kind) for kind in (RUNNING, COPYING)}
    proposed = [percent(found[0]["proposed"]) for found in shares.values() if found]
    return Table(
        table,
        caption="Speculative decoding with different drafts",
        formats={
            "draft's bytes": percent,
            ("α", "α error"): plus_minus(2),
            ("tokens per pass", "error"): plus_minus(2),
            "predicted": number(2),
            "weight loads": number(0),
            "dense bytes / bytes": number(2),
        },
        note=f"k = {sizes['k']} drafted tokens, temperature 1, {sizes['written']} texts. draft's bytes: of one pass of "
        "the draft, compared with a pass of the target model. weight loads: of the target model per 100 tokens. dense "
        "bytes / bytes: bytes per token without a draft over those with it; below 1, more bytes are read. The oracle "
        "computes all neurons in order to choose half of them, so it saves nothing in practice. Prompt lookup finds a "
        f"match at {' and '.join(proposed)} of the positions. `course reproduce drafts`.",
    )
