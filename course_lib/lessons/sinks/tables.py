"""The tables of lesson 08, from the stored results and the published numbers."""

import math
from collections.abc import Mapping
from typing import Any

from course_lib.lessons.common.ideas import COMPARED, compared_columns
from course_lib.lessons.common.results import load_measured, load_published, origin, rows
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.sinks.estimates import VARIANTS, losses, repeated
from course_lib.lessons.sinks.experiments.dialogue import CACHES
from course_lib.lessons.sinks.experiments.first_tokens import Attempt, stored
from course_lib.lessons.sinks.experiments.four_ways import STREAMING, WAYS
from course_lib.measure.paired import mean_and_error

Results = Mapping[str, Any]
WORK = {"T²": "O(T²)", "T L": "O(TL)", "T L²": "O(TL²)"}
CHAT_LETTERS = 150  # of an answer


def stream_provenance(results: Results | None = None) -> str:
    """Return what was run for the long stream, where and when."""
    results = results or load_measured("kv")
    sizes = results["sizes"]
    amounts = f"one text of {sizes['stream']:,} tokens, {sizes['budget']} slots, {sizes['chunk']} tokens per pass"
    return origin(results, amounts)


def chat(results: Results | None = None, index: int = 2) -> Table:
    """Show the beginning of the second answer in one chat by cache, and how much of the whole answer repeats."""
    results = results or load_measured("sinks", "four_ways")
    table = []
    for cache in CACHES:
        text = rows(results, "chats", cache=cache, round=2)[index]["text"]
        beginning = " ".join(text.split())[:CHAT_LETTERS]
        table.append({"cache": cache, "second answer": f"{beginning} …", "repetition": repeated(text)})
    question = rows(results, "chats", cache=CACHES[0], round=2)[index]["question"]
    note = (
        f"The question: {question} One sample each, with the same seed. Repetition: the fraction of runs of three "
        "words that occurred earlier in the same answer."
    )
    return Table(
        table, caption="What the model writes in a cache of 64 slots", formats={"repetition": percent}, note=note
    )


def four_ways(results: Results | None = None) -> Table:
    """Compare four ways to read a long text: work, published perplexity, and ours."""
    results = results or load_measured("sinks", "four_ways")
    published = {row["way"]: row for row in rows(load_published("sinks"), "ways")}
    table = []
    for way in WAYS:
        more = losses(results, way) - losses(results, STREAMING)
        mean, error = mean_and_error(more) if way != STREAMING else (None, None)
        row = {"": way, "work": WORK[published[way]["work"]]}
        row |= {"Llama-2-13B": published[way]["perplexity"], "135M": losses(results, way).mean().exp().item()}
        ratio = math.exp(mean) if mean is not None else None
        table.append(row | {"times StreamingLLM, 135M": ratio, "error": ratio and ratio * error})
    n = len(losses(results, STREAMING))
    return Table(
        table,
        caption="Perplexity beyond the trained length, for a text of T tokens and a window of L",
        formats={"Llama-2-13B": number(2), "135M": number(1), ("times StreamingLLM, 135M", "error"): plus_minus(2)},
        note=f"135M: our model, the same {n} predictions in all rows; ± one standard error of the paired difference. "
        "Llama-2-13B: published, figure 1 of Xiao and others (2023), as quoted in lecture slides.",
    )


def pretraining(results: Results | None = None) -> Table:
    """Compare models trained with and without a sink by the number of first slots kept: published, and ours."""
    results = results or load_measured("sinks", "sink_pretraining")
    table = []
    for source, measured in (("published", load_published("sinks")), ("here", results)):
        key = "pretraining" if source == "published" else "streaming"
        for variant in VARIANTS:
            by_slots = {row["sinks"]: row["perplexity"] for row in rows(measured, key, variant=variant)}
            table.append({"": source, "model": variant} | {f"{n} kept": by_slots[n] for n in (0, 1, 2, 4)})
    return Table(
        table,
        caption="Perplexity by the number of first slots that are kept",
        formats={f"{n} kept": number(2) for n in (0, 1, 2, 4)},
        note="Published: section 3.3 of Xiao and others (2023), 160 million parameters, perplexity per token, as "
        "quoted in lecture slides. Here: models with three layers, perplexity per byte. Compare within a row only.",
    )


def first_tokens(attempt: Attempt | None = None, ideas: Mapping[str, Attempt] | None = None) -> Table:
    """Compare every idea for the open task with the text's own first tokens; your attempt comes last."""
    ideas = ideas or stored(rows(load_measured("sinks", "first_tokens"), "ideas"))
    own = next(iter(ideas.values()))
    return Table(
        [
            {"first tokens": name, "slots": each.n_kept} | compared_columns(each.losses, own.losses)
            for name, each in {**ideas, **({"yours": attempt} if attempt else {})}.items()
        ],
        caption="Perplexity of a window with different first tokens that are never evicted",
        formats=COMPARED,
        note="± one standard error.",
    )
