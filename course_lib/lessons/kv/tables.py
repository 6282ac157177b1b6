"""The tables of lesson 07, from the stored results, the published numbers and the open task."""

from collections.abc import Mapping
from typing import Any

from course_lib.lessons.common.effects import log_gap
from course_lib.lessons.common.results import load_measured, load_published, origin, rows
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.kv.estimates import FIFTH, FULL
from course_lib.lessons.kv.experiments import own_text
from course_lib.lessons.kv.steps import SINKS, Contest

Results = Mapping[str, Any]
RECYCLED = "recycled, by similarity"
# What decides which tokens are kept, in the order of the table.
SCORES = {
    FULL: "everything is kept",
    "Window": "position",
    "StreamingLLM": "position, and 4 sinks",
    "H2O": "attention of all queries",
    "TOVA": "attention of the newest query",
    "SnapKV": "attention of the prompt's last queries",
    "Scissorhands": "how often attention was low",
    "D2O": "as H2O; merges what it evicts",
    "EMS": "attention of all and of the last queries; merges",
    RECYCLED: "everything is kept, a fifth is read",
}
CAPTION_LOWER = "log-perplexity of H2O lower by"


def provenance(results: Results | None = None) -> str:
    """Return what was run, where, when, and with how much text."""
    results = results or load_measured("kv")
    sizes = results["sizes"]
    return origin(
        results,
        f"{sizes['prompts']} prompts of {sizes['prompt']} tokens and {sizes['after']} after each; {sizes['needles']} "
        f"needles in {sizes['haystack']} tokens; attention of {sizes['attention_windows']} × "
        f"{sizes['attention_length']} tokens; streams of {sizes['policy_tokens']} tokens in {sizes['budget']} slots",
    )


def policies(results: Results | None = None) -> Table:
    """Compare quality and cost of all policies with a fifth of a prompt in the cache."""
    results = results or load_measured("kv")
    (full,) = rows(results, "compressed", policy=FULL)
    streams = {row["policy"]: row["milliseconds_per_token"] for row in rows(results, "policies")}
    second = {row["policy"]: row for row in rows(results, "second_needle", question=2)}
    table = []
    for name, score in SCORES.items():
        budget = 1.0 if name == FULL else FIFTH
        after = next(iter(rows(results, "compressed", policy=name, budget=budget)), None)
        needles = next(iter(rows(results, "retrieval", task="word", policy=name, budget=budget)), None)
        gap = log_gap(full, after) if after and after is not full else None
        held = after["bytes"] / full["bytes"] if after else second[name]["bytes"] / second[FULL]["bytes"]
        table.append(
            {"policy": name, "what decides": score}
            | {"loss increase": gap.value if gap else None, "error": gap.error if gap else None}
            | {"needles": needles and needles["exact"]}
            | {"second question": second[name]["exact"] if name in second else None}
            | {"memory": held, "ms per token": streams.get(name)}
        )
    fractions = dict.fromkeys(("needles", "second question", "memory"), percent)
    formats = {("loss increase", "error"): plus_minus(3, sign=True), "ms per token": number(1)} | fractions
    note = (
        f"Loss increase: nats per token after a prompt, compared with the full cache, ± one standard error, "
        f"n = {len(full['losses'])} prompts. Needles: right answers of {results['sizes']['needles']}. Memory: keys and "
        f"values held, as a fraction of the full cache. Time: a stream through {results['sizes']['budget']} slots."
    )
    return Table(table, caption="A fifth of the prompt kept: quality and cost", formats=formats, note=note)


def published_speed() -> Table:
    """Show the speed that the authors report for larger models."""
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


def own_texts(contest: Contest | None = None, texts: Mapping[str, Contest] | None = None) -> Table:
    """Compare both caches on the texts that were measured for the open task; your text comes last."""
    texts = texts or own_text.stored(rows(load_measured("kv", "own_text"), "texts"))
    window, table = f"window with {SINKS} sinks", []
    for name, each in {**texts, **({"yours": contest} if contest else {})}.items():
        lower, error = each.lower
        perplexities = {window: each.window.mean().exp().item(), "H2O": each.h2o.mean().exp().item()}
        table.append({"text": name, "tokens": each.n_tokens} | perplexities | {CAPTION_LOWER: lower, "error": error})
    return Table(
        table,
        caption="Perplexity with both caches, by text",
        formats={window: number(1), "H2O": number(1), (CAPTION_LOWER, "error"): plus_minus(3, sign=True)},
        note="± one standard error over blocks of 32 predictions.",
    )
