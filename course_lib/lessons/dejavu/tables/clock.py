"""What `course bench contextual contextual_relu` measured on a processor, from its committed results."""

from typing import Any

from course_lib.lessons.common.results import load_bench, origin
from course_lib.lessons.common.table import Table, number, with_range

Measured = dict[str, Any]

ONE_TOKEN, RELU = "cpu_contextual", "cpu_contextual_relu"


def results(name: str) -> Measured:
    """A committed bench."""
    return load_bench(name)


def provenance(measured: Measured) -> str:
    """Where and when it ran: times are those of one machine."""
    return origin(measured, "ratios are medians of alternating runs, in brackets their 10th to 90th percentile", "")


def one_token(measured: Measured) -> Table:
    """The MLPs of SmolLM2 by fraction of the neurons: how many times as fast as the dense ones each way is."""
    rows = [row for row in measured["tables"]["sides"] if row["contest"].endswith("kept")]
    contests = {row["contest"]: row["contest"].removesuffix(" kept").replace("%", " %") for row in rows}
    frame = []
    for side in dict.fromkeys(row["side"] for row in rows if row["side"] != row["anchor"]):
        timed = {row["contest"]: row["times_anchor"] for row in rows if row["side"] == side and row["repetitions"]}
        values = {heading: timed.get(contest) for contest, heading in contests.items()}
        frame.append({"way": side.replace("%", " %")} | values)
    return Table(
        frame,
        caption="Speedup over the dense MLPs by the fraction of the neurons, one token",
        formats=dict.fromkeys(contests.values(), number(2)),
        note="A dash: not timed.",
    )


def batches(measured: Measured) -> Table:
    """Several tokens that need different neurons, a tenth each: the union is read."""
    rows = [row for row in measured["tables"]["sides"] if row["contest"].startswith("batch")]
    return _speedups(rows, "Speedup over the dense MLPs, several tokens")


def end_to_end(measured: Measured) -> Table:
    """The ReLU model: what is lost, and how many times as fast it decodes by oracle and with predictors."""
    return _speedups(measured["tables"]["sides"], "Speedup of decoding with the ReLU model")


def _speedups(rows: list[dict[str, Any]], caption: str) -> Table:
    """One row per side, the anchor left out."""
    key = ("speedup", "slowest", "fastest")
    return Table(
        [
            {"setting": row["contest"].replace("%", " %").replace("  %", " %"), "way": row["side"]}
            | dict(zip(key, (row[f"times_anchor{end}"] for end in ("", "_low", "_high")), strict=True))
            for row in rows
            if row["side"] != row["anchor"]
        ],
        caption=caption,
        formats={key: with_range(2)},
        note="In brackets: 10 % to 90 % of the repetitions.",
    )
