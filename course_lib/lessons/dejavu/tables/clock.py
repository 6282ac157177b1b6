"""What `course bench contextual contextual_relu` measured on a processor, from its committed results."""

from typing import Any

from course_lib.lessons.common.tables import load_bench, origin

Measured = dict[str, Any]

ONE_TOKEN, RELU = "cpu_contextual", "cpu_contextual_relu"


def results(name: str) -> Measured:
    """A committed bench."""
    return load_bench(name)


def provenance(measured: Measured) -> str:
    """Where and when it ran: times are those of one machine."""
    return origin(measured, "ratios are medians of alternating runs, in brackets their 10th to 90th percentile", "")


def one_token(measured: Measured) -> str:
    """The MLPs of SmolLM2 by share of the neurons: how many times as fast as all of them each way is."""
    rows = [row for row in measured["tables"]["sides"] if row["contest"].endswith("kept")]
    shares = list(dict.fromkeys(row["contest"] for row in rows))
    heads = [share.removesuffix(" kept").replace("%", " %") for share in shares]
    lines = [f"{'times as fast as dense':<32}" + "".join(f"{head:>8}" for head in heads)]
    for side in dict.fromkeys(row["side"] for row in rows if row["side"] != row["anchor"]):
        by_share = {row["contest"]: row for row in rows if row["side"] == side and row["repetitions"]}
        cells = (f"{by_share[share]['times_anchor']:.2f}" if share in by_share else "" for share in shares)
        lines.append(f"{side.replace('%', ' %'):<32}" + "".join(f"{cell:>8}" for cell in cells))
    return "\n".join(lines)


def batches(measured: Measured) -> str:
    """Several tokens that need different neurons, a tenth each: the union is read."""
    lines = []
    for row in measured["tables"]["sides"]:
        if row["contest"].startswith("batch") and row["side"] != row["anchor"]:
            lines.append(f"{row['contest'].replace('%', ' %')}: {_times(row)} as fast as dense")
    return "\n".join(lines)


def end_to_end(measured: Measured) -> str:
    """The ReLU model: what is lost, and how many times as fast it decodes by oracle and with predictors."""
    lines, contest = [], None
    for row in measured["tables"]["sides"]:
        if row["side"] == row["anchor"]:
            continue
        if row["contest"] != contest:
            contest = row["contest"]
            lines.append(contest.replace("%", " %").replace("  %", " %"))
        lines.append(f"    {row['side']}: {_times(row)} as fast as dense")
    return "\n".join(lines)


def _times(row: dict[str, Any]) -> str:
    return f"{row['times_anchor']:.2f} times ({row['times_anchor_low']:.2f} to {row['times_anchor_high']:.2f})"
