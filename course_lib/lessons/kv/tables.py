"""The printed tables and verdicts of lesson 07, from the long measurement."""

import math
import textwrap
from collections import Counter
from statistics import fmean

import torch

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.effects import log_gap
from course_lib.lessons.common.tables import load_published, origin, per_cent, rows
from course_lib.lessons.kv import claims
from course_lib.lessons.kv.estimates import FULL, Measured, by_budget, layers
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
    measured = measured or results()
    pivotal, persistent = (
        per_cent(fmean(row[key] for row in layers(measured))) for key in ("pivotal_mean", "persistence_mean")
    )
    return "\n".join(
        [
            report((claims.SPARSE, claims.POWER_LAW, claims.PERSISTENCE), measured),
            "If not a single query but the mean of all has to give a token more than its even share, "
            f"{pivotal} of the tokens matter, and {persistent} of those that matter later did before",
        ]
    )


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


def streams_table(measured: Measured | None = None) -> str:
    """Every policy on one text: perplexity, how far it is above the full cache, memory and time."""
    measured = measured or results()
    lines = [f"{'':<14}{'positions':>10}{'perplexity':>16}{'above full (%)':>17}{'MB at most':>12}{'ms a token':>12}"]
    (full,) = rows(measured, "policies", policy=FULL)
    apart = {}
    for row in measured["tables"]["policies"]:
        error = row["standard_error"]  # none for a stream too short for two blocks
        value = f"{row['perplexity']:.1f}" + (f" ± {error:.1f}" if error is not None else "")
        megabytes, milliseconds = row["peak_bytes"] / 1e6, row["milliseconds_per_token"]
        gap = None if error is None or row is full else log_gap(full, row)
        above = f"{100 * math.expm1(gap.value):+.1f} ± {100 * math.exp(gap.value) * gap.error:.1f}" if gap else ""
        times = f"{megabytes:>12.1f}{milliseconds:>12.1f}"
        lines.append(f"{row['policy']:<14}{row['positions']:>10}{value:>16}{above:>17}{times}")
        if gap and gap.holds:
            apart[row["policy"]] = math.expm1(gap.value)
    return "\n".join([*lines, *textwrap.wrap(_apart(apart), 96, subsequent_indent="  ")])


def _apart(above: dict[str, float]) -> str:
    """Who is clearly above the full cache on this text, and how many of them by next to nothing."""
    small = sum(share < SMALL for share in above.values())
    end = f"; {small} of {len(above)} by less than {100 * SMALL:.0f} %" if above else ""
    return f"Clearly above the full cache on this text: {', '.join(above) or 'none'}{end}"


def heavy_verdict(measured: Measured | None = None) -> str:
    """H2O against the plain window, and against the window with sinks, at every budget, prompt by prompt."""
    measured = measured or results()
    (full,) = rows(measured, "compressed", policy=FULL)
    lines = []
    for row in by_budget(measured, "compressed", policy="H2O"):
        above = math.exp(log_gap(full, row).value)
        kept = f"{100 * row['budget']:>3.0f} % kept"
        lines.append(f"{kept}: H2O {row['perplexity']:.1f}, {above:.2f} times the full cache, n = {len(row['losses'])}")
    return "\n".join([*lines, report((claims.THAN_WINDOW, claims.THAN_SINKS), measured)])


def bits_table(measured: Measured | None = None) -> str:
    """Fewer bits on top of fewer tokens: bytes and log-perplexity, prompt by prompt against the same in full."""
    measured = measured or results()
    lines = [f"{'':<14}{'kept':>6}{'bits':>6}{'bytes, share':>14}{'change of log-perplexity':>27}"]
    for row in sorted(measured["tables"]["quantized"], key=lambda row: (row["policy"], -row["bits"])):
        (same,) = rows(measured, "compressed", policy=row["policy"], budget=row["budget"])
        change = torch.tensor(row["losses"]) - torch.tensor(same["losses"])
        cell = f"{change.mean():+.3f} ± {change.std() / len(change) ** 0.5:.3f}"
        share = f"{100 * row['budget']:.0f} %"
        bytes_held = f"{row['bytes'] / same['bytes']:.2f}"
        lines.append(f"{row['policy']:<14}{share:>6}{row['bits']:>6}{bytes_held:>14}{cell:>27}")
    return "\n".join(lines)


def published_table() -> str:
    """What the authors report of larger models, marked as published."""
    published = load_published("kv")
    lines = [f"published, not measured here: {published['sources']['speed']['what']}"]
    for row in published["tables"]["speed"]:
        seconds = f", {row['seconds']} s" if "seconds" in row else ""
        label = f"{row['device']:<6}{row['setting']:<28}{row['method']:<26}"
        lines.append(f"{label}{row['tokens_per_second']:>8,.4g} tokens a second{seconds}")
    lines.append(f"\npublished, not measured here: {published['sources']['claims']['what']}")
    lines += [f"{row['source']:<20}{row['claim']}: {row['value']:g}" for row in published["tables"]["claims"]]
    return "\n".join(lines)
