"""Tables and verdicts of heads, of batches and of rounding, as `course reproduce dejavu` measured them."""

from statistics import fmean

from course_lib.lessons.common.effects import log_gap
from course_lib.lessons.common.table import Table, number, percent, plus_minus
from course_lib.lessons.common.tables import rows
from course_lib.lessons.common.verdicts import of_samples, said, verdict
from course_lib.lessons.dejavu.claims.attention.heads import OUTPUT, STATIC
from course_lib.lessons.dejavu.claims.neurons import ORACLE
from course_lib.lessons.dejavu.claims.predicted import PREDICTOR
from course_lib.lessons.dejavu.tables import found
from course_lib.lessons.dejavu.tables.found import Measured

DEARER = 0.02  # nats a token
BATCH = 4


def heads_table(measured: Measured) -> Table:
    """Perplexity by the number of heads kept; where it is known, the fraction of key-value groups with any of them."""
    frame = []
    for row in rows(measured, "heads"):
        above = found.above_dense(measured, row)
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
    lines = []
    effects = []
    for row in rows(measured, "heads", chosen_by=STATIC):
        (own,) = rows(measured, "heads", model=row["model"], kept=row["kept"], chosen_by=OUTPUT)
        effects.append(log_gap(own, row))
    lines.append(f"Claim: each token's own heads are better than the same for all: {verdict(effects)}")
    return "\n".join(lines)


def predicted_heads(measured: Measured) -> str:
    """From the measurement of predictors: whether they choose heads better than one set for all tokens."""
    lines, effects = [], {}
    for row in rows(measured, "heads", chosen_by=PREDICTOR):
        other = found.one(measured, "heads", model=row["model"], kept=row["kept"], chosen_by=STATIC)
        effects.setdefault(row["model"], []).append(log_gap(row, other))
    lines += [
        f"Claim: {PREDICTOR} chooses heads better than one set for all tokens, {model}: {verdict(cases)}"
        for model, cases in effects.items()
    ]
    return "\n".join(lines)


def batch(measured: Measured) -> str:
    """How many neurons some of B sequences need, beside choices that know nothing of each other."""
    lines, effects = [], []
    for model in found.models(measured, "batch"):
        those = rows(measured, "batch", model=model)
        alone = fmean(those[0]["shares"])
        for row in those:
            shares, chance = row["shares"], 1 - (1 - alone) ** row["batch"]
            line = f"{model}, {row['batch']} at once: {percent(fmean(shares))} of the neurons; "
            lines.append(f"{line}{percent(chance)} if choices were independent")
            if row["batch"] == BATCH:
                effects.append(of_samples([0.5 - share for share in shares]))
    lines.append(f"Claim: {BATCH} sequences together need less than half of the neurons: {verdict(effects)}")
    return "\n".join(lines)


def rounded(measured: Measured) -> str:
    """What half of the neurons costs a rounded model, beside what it costs the model as it is."""
    lines, effects = [], []
    for sparse in [row for row in rows(measured, "rounded") if row["density"] < 1]:
        model = sparse["model"]
        whole = found.one(measured, "rounded", model=model, grid=sparse["grid"], density=1.0)
        own = found.one(measured, "neurons", model=model, chosen_by=ORACLE, density=sparse["density"])
        columns = [row["losses"] for row in (found.dense(measured, model), own, whole, sparse)]
        more = [(both - few) - (half - dense) for dense, half, few, both in zip(*columns, strict=True)]
        effects.append(of_samples([DEARER - each for each in more]))
        lines.append(
            f"{model}, {sparse['grid']}: {said(found.above_dense(measured, whole))} nats; with "
            f"{percent(sparse['density'])} of the neurons {said(log_gap(whole, sparse))} more, "
            f"{said(of_samples(more))} beyond what that costs without rounding"
        )
    lines.append(f"Claim: rounding makes the choice dearer by less than {DEARER} nats: {verdict(effects)}")
    return "\n".join(lines)
