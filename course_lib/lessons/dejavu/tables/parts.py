"""Tables and verdicts of heads, of batches and of rounding, as `course reproduce dejavu` measured them."""

from statistics import fmean

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.effects import log_gap
from course_lib.lessons.common.tables import percent, rows
from course_lib.lessons.common.verdicts import said
from course_lib.lessons.dejavu import claims, results
from course_lib.lessons.dejavu.results import GATED, RELU, Measured

PREDICTED_HEADS = {GATED: claims.PREDICTED_HEADS, RELU: claims.PREDICTED_HEADS_RELU}


def heads(measured: Measured) -> str:
    """Perplexity by heads kept, and the share of key-value groups of which any head is."""
    lines = [f"{'':<34}{'perplexity':>12}{'nats above dense':>22}{'groups read':>14}"]
    for row in rows(measured, "heads"):
        name = f"{row['model']}, {row['kept']} of {row['of']}, {row['chosen_by']}"
        above = said(results.above_dense(measured, row))
        lines.append(f"{name:<34}{row['perplexity']:>12.2f}{above:>22}{percent(row['groups']):>14}")
    return "\n".join([*lines, str(claims.HEADS_DIFFER.judge(measured))])


def predicted_heads(measured: Measured) -> str:
    """From the measurement of predictors: perplexity with heads by them, by oracle and the same for all tokens."""
    lines = []
    for row in rows(measured, "heads"):
        name = f"{row['model']}, {row['kept']} of {row['of']} heads, {row['chosen_by']}"
        above = said(results.above_dense(measured, row))
        lines.append(f"{name:<52}{row['perplexity']:>10.2f}{above:>20} nats above dense")
    judged = [PREDICTED_HEADS[model] for model in results.models(measured, "heads")]
    return "\n".join([*lines, report(judged, measured)])


def batch(measured: Measured) -> str:
    """How many neurons some of B sequences need, compared with independent choices."""
    lines = []
    for model in results.models(measured, "batch"):
        those = rows(measured, "batch", model=model)
        alone = fmean(those[0]["shares"])
        for row in those:
            shares, chance = row["shares"], 1 - (1 - alone) ** row["batch"]
            line = f"{model}, {row['batch']:>2} at once: {percent(fmean(shares))} of the neurons; "
            lines.append(f"{line}{percent(chance)} if choices were independent")
    return "\n".join([*lines, str(claims.BATCHED.judge(measured))])


def rounded(measured: Measured) -> str:
    """What half of the neurons costs a rounded model, compared with what it costs the model as it is."""
    lines = []
    for sparse in [row for row in rows(measured, "rounded") if row["density"] < 1]:
        whole = results.one(measured, "rounded", model=sparse["model"], grid=sparse["grid"], density=1.0)
        lines.append(
            f"{sparse['model']}, {sparse['grid']}: {said(results.above_dense(measured, whole))} nats; with "
            f"{percent(sparse['density'])} of the neurons {said(log_gap(whole, sparse))} more"
        )
    return "\n".join([*lines, str(claims.ROUNDED.judge(measured))])
