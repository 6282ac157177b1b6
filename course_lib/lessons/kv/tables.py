"""The tables and verdicts of lesson 07, from the long measurement."""

import math
from collections import Counter

import torch

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.effects import log_gap
from course_lib.lessons.common.results import load_published, origin, rows
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.kv import claims
from course_lib.lessons.kv.estimates import FULL, Measured
from course_lib.lessons.kv.measured import results

SMALL = 0.05  # of the perplexity, whose own error on such a text is larger


def provenance(measured: Measured | None = None) -> str:
    """What was run, where, when, with how much."""
    measured = measured or results()
    sizes = measured["sizes"]
    return origin(
        measured,
        f"{sizes['prompts']} prompts of {sizes['prompt']} tokens and {sizes['after']} after each; {sizes['needles']} "
        f"needles in {sizes['haystack']} tokens; attention of {sizes['attention_windows']} × "
        f"{sizes['attention_length']} tokens; streams of {sizes['policy_tokens']} tokens in {sizes['budget']} slots",
    )


def attention_verdicts(measured: Measured | None = None) -> str:
    """Over 95 % of the weights negligible; few tokens carry most, like a power of the rank; importance persists.

    Each claim names the fraction of the layers that it speaks of, and all layers are counted.
    """
    return report((claims.SPARSE, claims.POWER_LAW, claims.PERSISTENCE), measured or results())


def heavy_tokens(measured: Measured | None = None, start: str = "text") -> str:
    """Which tokens of one text receive most: words that come often, and stand beside many others?"""
    first, *others = sorted(rows(measured or results(), "heavy_tokens", start=start), key=lambda row: row["position"])
    shares = Counter(row["token"] for row in others)
    listing = ", ".join(f"{n} times {token!r}" for token, n in shares.most_common())
    return (
        f"The {1 + len(others)} tokens of one text that receive most: {first['token']!r} at position "
        f"{first['position']} with {100 * first['mass']:.0f} %, and {listing} with "
        f"{100 * sum(row['mass'] for row in others):.0f} % together"
    )


def streams_table(measured: Measured | None = None) -> Table:
    """Every policy on one text: perplexity, how far it is above the full cache, memory and time."""
    measured = measured or results()
    (full,) = rows(measured, "policies", policy=FULL)
    frame, apart = [], {}
    for row in measured["tables"]["policies"]:
        error = row["standard_error"]  # none for a stream too short for two blocks
        gap = None if error is None or row is full else log_gap(full, row)
        frame.append(
            {"policy": row["policy"], "positions": row["positions"]}
            | {"perplexity": row["perplexity"], "error": error}
            | {ABOVE_FULL: 100 * math.expm1(gap.value) if gap else None}
            | {"error of that": 100 * math.exp(gap.value) * gap.error if gap else None}
            | {"peak memory (MB)": row["peak_bytes"] / 1e6, "ms per token": row["milliseconds_per_token"]}
        )
        if gap and gap.holds:
            apart[row["policy"]] = math.expm1(gap.value)
    return Table(
        frame,
        caption="A stream of text with each policy",
        formats={
            ("perplexity", "error"): plus_minus(1),
            (ABOVE_FULL, "error of that"): plus_minus(1, sign=True),
            "peak memory (MB)": number(1),
            "ms per token": number(1),
        },
        note=f"± one standard error. {_apart(apart)}.",
    )


ABOVE_FULL = "above the full cache (%)"


def _apart(above: dict[str, float]) -> str:
    """Who is clearly above the full cache on this text, and how many of them by next to nothing."""
    small = sum(share < SMALL for share in above.values())
    end = f"; {small} of {len(above)} by less than {100 * SMALL:.0f} %" if above else ""
    return f"Clearly above the full cache on this text: {', '.join(above) or 'none'}{end}"


def heavy_table(measured: Measured | None = None) -> Table:
    """H2O at every budget: perplexity, also as a multiple of the full cache's."""
    measured = measured or results()
    (full,) = rows(measured, "compressed", policy=FULL)
    frame = []
    for row in sorted(rows(measured, "compressed", policy="H2O"), key=lambda row: row["budget"]):
        above = (torch.tensor(row["losses"]) - torch.tensor(full["losses"])).mean().exp().item()
        frame.append({"kept": row["budget"], "perplexity": row["perplexity"], "times the full cache": above})
        frame[-1]["prompts"] = len(row["losses"])
    return Table(
        frame,
        caption="H2O after a prompt, by budget",
        formats={"kept": percent, "perplexity": number(1), "times the full cache": number(2)},
    )


def heavy_verdict(measured: Measured | None = None) -> str:
    """H2O against the plain window, and against the window with sinks, at every budget, prompt by prompt."""
    return report((claims.THAN_WINDOW, claims.THAN_SINKS), measured or results())


def bits_table(measured: Measured | None = None) -> Table:
    """Fewer bits on top of fewer tokens: bytes and log-perplexity, prompt by prompt against the same in full."""
    measured = measured or results()
    frame = []
    for row in sorted(measured["tables"]["quantized"], key=lambda row: (row["policy"], -row["bits"])):
        (same,) = rows(measured, "compressed", policy=row["policy"], budget=row["budget"])
        change = torch.tensor(row["losses"]) - torch.tensor(same["losses"])
        frame.append(
            {"policy": row["policy"], "kept": row["budget"], "bits": row["bits"], "bytes": row["bytes"] / same["bytes"]}
            | {"loss increase": change.mean().item(), "error": (change.std() / len(change) ** 0.5).item()}
        )
    return Table(
        frame,
        caption="Keys and values with fewer bits, compared with the same policy in float32",
        formats={"kept": percent, "bytes": number(2), ("loss increase", "error"): plus_minus(3, sign=True)},
        note="bytes: as a fraction of those in float32. Loss increase in nats per token ± one standard error.",
    )


def published_speed() -> Table:
    """How fast the authors report larger models to be, marked as published."""
    published = load_published("kv")
    return Table(
        [
            {"device": row["device"], "setting": row["setting"], "method": row["method"]}
            | {"tokens per second": row["tokens_per_second"], "seconds": row.get("seconds")}
            for row in published["tables"]["speed"]
        ],
        caption="Published, not measured here: speed with large models",
        formats={"tokens per second": "{:,.4g}".format},
        note=published["sources"]["speed"]["what"],
    )


def published_claims() -> Table:
    """What else the authors report, marked as published."""
    published = load_published("kv")
    return Table(
        [
            {"source": row["source"], "claim": row["claim"], "value": row["value"]}
            for row in published["tables"]["claims"]
        ],
        caption="Published, not measured here: what the authors report",
        note=published["sources"]["claims"]["what"],
    )
