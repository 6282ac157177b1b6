"""What the papers report, marked as published, beside what was measured here."""

import pandas as pd

from course_lib.lessons.common.table import Table
from course_lib.lessons.common.tables import Measured, load_published, rows
from course_lib.lessons.common.verdicts import NOT_MEASURED, said
from course_lib.lessons.compress import claims as records
from course_lib.lessons.compress import found
from course_lib.lessons.compress.claims import BOTH
from course_lib.lessons.compress.measuring.rivals import SMALL, WANDA
from course_lib.prompts.compressed.store import DENSE


def beside(measured: Measured) -> Table:
    """A row per claim; what is published is quoted from abstracts and code."""
    published = load_published("compress")
    claims = {row["claim"]: row["published"] for row in rows(published, "claims")}
    settings, lora = rows(published, "settings")[0], rows(published, "beside_lora")[0]
    sizes = measured["sizes"]
    learned = f"{sizes['n_vectors']}, {sizes['n_steps']}, {sizes['batch']} × {sizes['text_length']} tokens"
    read = f"{settings['vectors']}, {settings['steps']:,}, {settings['batch']} × {settings['tokens']:,} tokens"
    lines = [
        ("vectors, steps, a batch", read, learned),
        ("50 % and 4 bits: times smaller", str(claims["times smaller"]), times_smaller(measured)),
        ("loss with a prompt, above dense", claims["quality"], above_dense(measured)),
        ("goes over to", claims["goes over"], goes_over(measured)),
        ("won against LoRA (Hoang and others)", lora["published"], beside_lora(measured)),
    ]
    return Table(
        pd.DataFrame(lines, columns=["", "published: LLaMA-7B", "here: SmolLM2-135M"]),
        caption="What the paper reports and what was measured here",
    )


def times_smaller(measured: Measured) -> str:
    """In the blocks, and of all, the prompt included."""
    dense, pair = found.one(measured, "models", model=DENSE), found.pair(measured, BOTH)
    if not dense or not pair:
        return NOT_MEASURED
    both, own = pair
    of_all = dense["bytes"] / (both["bytes"] + own["prompt_bytes"])
    return f"{dense['weight_bytes'] / both['weight_bytes']:.2f} in the blocks, {of_all:.2f}"


def above_dense(measured: Measured) -> str:
    dense, own = found.one(measured, "models", model=DENSE), found.one(measured, "own", model=BOTH)
    return f"{said(found.wins(dense, own), 2)} nats" if dense and own else NOT_MEASURED


def goes_over(measured: Measured) -> str:
    helped, fractions, _ = records.transferred(measured)
    if not helped:
        return NOT_MEASURED
    halves = sum(fraction.above(0.5).holds for fraction in fractions.values())
    return f"{sum(e.holds for e in helped.values())} of {len(helped)}; of the repair {halves}"


def beside_lora(measured: Measured) -> str:
    prompt, *others = records.ways(measured, WANDA) or [None]
    lora = next((row for row in others if row["way"] == SMALL), None)
    return f"{said(found.wins(prompt, lora), 2)} nats" if lora else NOT_MEASURED
