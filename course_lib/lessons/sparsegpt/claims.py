"""Claims of the decks that set SparseGPT beside magnitude and Wanda: perplexity, accuracy, time."""

import math

from course_lib.lessons.common.benchmarks import has_signal
from course_lib.lessons.common.effects import accuracy_gap, log_gap, mean_of
from course_lib.lessons.common.tables import rows
from course_lib.lessons.common.verdicts import Effect, of_samples, verdict
from course_lib.lessons.sparsegpt.experiment import tables as committed
from course_lib.lessons.sparsegpt.measured import Tables
from course_lib.lessons.sparsegpt.tables import beyond_forward

ALIKE = 0.03  # of the answers: two methods within 3 points are called comparable
PATTERNS = ("50%", "4:8", "2:4")


def beside_verdict(tables: Tables | None = None) -> str:
    """Three claims; of the seconds each pattern is a sample, which was timed once."""
    tables = tables or committed()
    ahead = [log_gap(_row(tables, "sparsegpt", p), _row(tables, "magnitude", p)) for p in PATTERNS]
    spent = [beyond_forward(tables, p) for p in dict.fromkeys(r["pattern"] for r in rows(tables, "seconds"))]
    longer = of_samples([math.log(each["sparsegpt"] / each["wanda"]) for each in spent])
    behind = mean_of(_behind(tables))
    close = Effect(value=ALIKE - behind.value, error=behind.error, n=behind.n)
    judged = {
        "SparseGPT's perplexity is below magnitude's with each pattern": verdict(ahead),
        "SparseGPT takes longer than Wanda beyond the forward passes": verdict(longer),
        f"Wanda's accuracy at 50 % is at most {100 * ALIKE:.0f} points below SparseGPT's": verdict(close),
    }
    return "\n".join(f"Claim: {claim}: {said}" for claim, said in judged.items())


def _behind(tables: Tables) -> list[Effect]:
    """By task that speaks: how much more SparseGPT answers than Wanda."""
    speaking = [row["task"] for row in rows(tables, "zero_shot", method="dense") if has_signal(row)]
    by_method = {
        method: {row["task"]: row for row in rows(tables, "zero_shot", method=method, pattern="50%")}
        for method in ("sparsegpt", "wanda")
    }
    return [accuracy_gap(by_method["sparsegpt"][task], by_method["wanda"][task]) for task in speaking]


def _row(tables: Tables, method: str, pattern: str) -> dict:
    return rows(tables, "perplexity", method=method, pattern=pattern, corpus="wikipedia")[0]
