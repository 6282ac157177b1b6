"""Tables and verdicts of heads, of batches and of rounding, as `course reproduce dejavu` measured them."""

from statistics import fmean

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.effects import log_gap
from course_lib.lessons.common.results import rows
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.common.verdicts import said
from course_lib.lessons.dejavu import claims, results
from course_lib.lessons.dejavu.results import GATED, RELU, Measured

PREDICTED_HEADS = {GATED: claims.PREDICTED_HEADS, RELU: claims.PREDICTED_HEADS_RELU}


def heads_table(measured: Measured) -> Table:
    """Perplexity by the number of heads kept; where it is known, the fraction of key-value groups with any of them."""
    frame = []
    for row in rows(measured, "heads"):
        above = results.above_dense(measured, row)
        frame.append(
            {"model": row["model"], "heads kept": f"{row['kept']} of {row['of']}", "chosen by": row["chosen_by"]}
            | {"perplexity": row["perplexity"], "nats above dense": above.value, "error": above.error}
            | ({"groups read": row["groups"]} if "groups" in row else {})
        )
    return Table(
        frame,
        caption="Some heads of each block",
        formats={"perplexity": number(2), ("nats above dense", "error"): plus_minus(3, sign=True)}
        | ({"groups read": percent} if "groups read" in frame[0] else {}),
        note="± one standard error.",
    )


def heads(measured: Measured) -> str:
    """Whether each token's own heads are better than the same for all."""
    return str(claims.HEADS_DIFFER.judge(measured))


def predicted_heads(measured: Measured) -> str:
    """From the measurement of predictors: whether they choose heads better than one set for all tokens."""
    return report([PREDICTED_HEADS[model] for model in results.models(measured, "heads")], measured)


def batch(measured: Measured) -> str:
    """How many neurons some of B sequences need, compared with independent choices."""
    lines = []
    for model in results.models(measured, "batch"):
        those = rows(measured, "batch", model=model)
        alone = fmean(those[0]["shares"])
        for row in those:
            shares, chance = row["shares"], 1 - (1 - alone) ** row["batch"]
            line = f"{model}, {row['batch']} at once: {percent(fmean(shares))} of the neurons; "
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
