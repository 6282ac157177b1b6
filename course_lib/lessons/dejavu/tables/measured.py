"""Tables and verdicts from what `course reproduce dejavu` measured: what there is to be found, by oracle."""

from statistics import fmean

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.results import origin, rows
from course_lib.lessons.common.table import Table, number, percent
from course_lib.lessons.dejavu import claims, results
from course_lib.lessons.dejavu.experiments.steps.neurons import CHOICES
from course_lib.lessons.dejavu.results import Measured

CONTEXT_CLAIMS = (claims.CONTEXT_HELPS, claims.TOKEN_HELPS, claims.EMBEDDING_HELPS, claims.ON_THE_FLY)
ORACLE_CLAIMS = (claims.FEW_HEADS, claims.FEW_NEURONS, claims.FEW_OF_BOTH)


def provenance(measured: Measured) -> str:
    """What was run, where, when, with how much."""
    sizes = measured["sizes"]
    text, of_bytes = sizes["tokens"], sizes["bytes"]
    return origin(
        measured,
        f"{text['evaluation']} windows of {text['length']} tokens to evaluate, {text['calibration']} to learn from; "
        f"the ReLU model {of_bytes['evaluation']} of {of_bytes['length']} bytes",
    )


def neurons(measured: Measured) -> Table:
    """Perplexity by model, way to choose and fraction of the neurons."""
    frame, dense = [], []
    for model in results.models(measured, "neurons"):
        mine = rows(measured, "neurons", model=model)
        dense.append(f"{model} {results.dense(measured, model)['perplexity']:.2f}")
        for by in CHOICES:
            cells = {row["density"]: row["perplexity"] for row in mine if row["chosen_by"] == by}
            values = {percent(density): cells.get(density) for density in results.densities(mine)}
            frame.append({"model": model, "chosen by": by} | values)
    return Table(
        frame,
        caption="Perplexity by the fraction of the neurons that is kept",
        formats={name: number(2) for row in frame for name in row if name.endswith("%")},
        note=f"Dense: {', '.join(dense)}. A dash: not measured.",
    )


def contextual(measured: Measured) -> str:
    """Does context help? Each way to choose compared with one that knows less, at equal density."""
    return report(CONTEXT_CLAIMS, measured)


def exists(measured: Measured) -> str:
    """The paper's shares by oracle: how far above the dense model heads, neurons and both together are."""
    return report(ORACLE_CLAIMS, measured)


def active_table(measured: Measured) -> Table:
    """The fraction of neurons that is not zero, and the fraction that carries nearly all of the output."""
    frame = []
    for model in results.models(measured, "active"):
        blocks = rows(measured, "active", model=model)
        for key, name in (("nonzero", "not zero"), ("carrying", "carry nearly all")):
            fractions = [fmean(row[key]) for row in blocks]
            values = {"mean": fmean(fractions), "lowest block": min(fractions), "highest block": max(fractions)}
            frame.append({"model": model, "neurons that": name} | values)
    return Table(
        frame,
        caption="The fraction of neurons that matters, by block",
        formats=dict.fromkeys(("mean", "lowest block", "highest block"), percent),
    )


def active(measured: Measured) -> str:
    """Whether most values after ReLU are zero."""
    return str(claims.RELU_ZEROS.judge(measured))
