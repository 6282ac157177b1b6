"""Tables and verdicts from what `course reproduce dejavu_predictors` measured: what is known before the MLP."""

from statistics import fmean, median

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.results import rows
from course_lib.lessons.common.table import Table, number, percent
from course_lib.lessons.common.verdicts import said
from course_lib.lessons.dejavu import claims, results
from course_lib.lessons.dejavu.effects import recall_lost
from course_lib.lessons.dejavu.experiments.steps.predicted import PREDICTOR
from course_lib.lessons.dejavu.experiments.steps.search import MLP
from course_lib.lessons.dejavu.results import Measured

PREDICTOR_CLAIMS = (
    claims.PREDICTOR_GATED,
    claims.PREDICTOR_RELU,
    claims.COPY_GATED,
    claims.COPY_RELU,
    claims.PREDICTOR_CHEAP_GATED,
    claims.PREDICTOR_CHEAP,
)
AHEAD_CLAIMS = {1: claims.AHEAD, 2: claims.AHEAD_BY_TWO, 4: claims.AHEAD_BY_FOUR}  # by number of blocks


def selectors(measured: Measured) -> Table:
    """Perplexity by model, selector and fraction of the neurons; bytes compared with those of the MLPs."""
    frame, dense = [], []
    for model in results.models(measured, "predicted"):
        mine = rows(measured, "predicted", model=model, lookahead=0)
        dense.append(f"{model} {results.dense(measured, model)['perplexity']:.2f}")
        for name in dict.fromkeys(row["chosen_by"] for row in mine):
            of_name = [row for row in mine if row["chosen_by"] == name]
            by_density = {row["density"]: row["perplexity"] for row in of_name}
            values = {percent(density): by_density.get(density) for density in results.densities(mine)}
            fraction = max(row["bytes"] / row["mlp_bytes"] for row in of_name)
            frame.append({"model": model, "chosen by": name, "bytes": fraction} | values)
    return Table(
        frame,
        caption="Perplexity by the fraction of the neurons that is kept",
        formats={"bytes": number(1, "%", 100)}
        | {name: number(2) for row in frame for name in row if name.endswith("%")},
        note=f"Dense: {', '.join(dense)}. Bytes: in addition to the model's own weights, compared with its MLPs. "
        "A dash: not measured.",
    )


def predictable(measured: Measured) -> str:
    """Is the trained predictor better than one set for all, and is it close to the dense model?"""
    return report(PREDICTOR_CLAIMS, measured)


def recalls(measured: Measured) -> Table:
    """The fraction of the oracle's neurons that is found, and of the energy that is kept, by what chooses."""
    frame = []
    for model in results.models(measured, "recall"):
        mine = rows(measured, "recall", model=model, lookahead=0)
        for name in dict.fromkeys(row["chosen_by"] for row in mine):
            blocks = [row for row in mine if row["chosen_by"] == name]
            recall, energy = ([row[key] for row in blocks] for key in ("recall", "energy"))
            values = {"recall": fmean(recall), "energy": fmean(energy), "lowest recall": min(recall)}
            frame.append({"model": model, "chosen by": name} | values)
    return Table(
        frame,
        caption="Recall of the oracle's neurons, mean over the blocks",
        formats=dict.fromkeys(("recall", "energy", "lowest recall"), number(3)),
    )


def lookahead(measured: Measured) -> str:
    """What it costs to read x some blocks earlier: recall, block by block, and perplexity."""
    lines, judged = [], []
    for ahead in sorted({row["lookahead"] for row in rows(measured, "recall", chosen_by=PREDICTOR)} - {0}):
        lost = recall_lost(measured, ahead)
        for model in results.models(measured, "recall"):
            words = (
                f"recall {said(lost[model])} lower ({lost[model].n} blocks)"
                if model in lost
                else "no block so far back"
            )
            lines += [f"{model}, lookahead of {ahead}: {words}", *_losses_ahead(measured, model, ahead)]
        judged += [AHEAD_CLAIMS[ahead]] if lost else []
    return "\n".join([*lines, report(judged, measured)])


def _losses_ahead(measured: Measured, model: str, ahead: int) -> list[str]:
    """By how much the model reads worse with predictors of earlier blocks."""
    sides = ({"chosen_by": PREDICTOR, "lookahead": each} for each in (0, ahead))
    effects = results.better(measured, "predicted", *sides)
    return [
        f"    {percent(share)} of the neurons: {said(effect)} nats a token more"
        for (name, share), effect in effects.items()
        if name == model
    ]


def search(measured: Measured) -> str:
    """Seconds of a search compared with those of the MLP, round by round, and what it finds."""
    lines = []
    layer = results.one(measured, "search", way=MLP)["seconds"]
    for row in rows(measured, "search"):
        if row["way"] != MLP:
            times = median(own / whole for own, whole in zip(row["seconds"], layer, strict=True))
            lines.append(
                f"{row['way']}: {times:.2f} times the seconds of the MLP, {percent(row['recall'])} of the oracle's"
            )
    return "\n".join([*lines, str(claims.NEAREST.judge(measured))])
