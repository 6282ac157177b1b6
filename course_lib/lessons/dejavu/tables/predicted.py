"""Tables and verdicts from what `course reproduce dejavu_predictors` measured: what is known before the MLP."""

from statistics import fmean, median

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.tables import percent, rows
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


def selectors(measured: Measured) -> str:
    """Perplexity by model, selector and share of the neurons; bytes beside those of the MLPs."""
    lines = []
    for model in results.models(measured, "predicted"):
        mine = rows(measured, "predicted", model=model, lookahead=0)
        shares, whole = results.densities(mine), results.dense(measured, model)["perplexity"]
        head = "".join(f"{percent(share):>10}" for share in shares)
        lines.append(f"{f'{model}, dense {whole:.2f}':<34}{head}{'bytes':>12}")
        for name in dict.fromkeys(row["chosen_by"] for row in mine):
            by_share = {row["density"]: row for row in mine if row["chosen_by"] == name}
            cells = [by_share.get(share) for share in shares]
            values = "".join(f"{row['perplexity']:>10.2f}" if row else f"{'':>10}" for row in cells)
            part = max(row["bytes"] / row["mlp_bytes"] for row in cells if row)
            lines.append(f"  {name:<32}{values}{percent(part, 1):>12}")
    return "\n".join(lines) + "\nBytes: beside the model's own weights, of those of its MLPs."


def predictable(measured: Measured) -> str:
    """Is the trained predictor better than one set for all, and is it close to the dense model?"""
    return report(PREDICTOR_CLAIMS, measured)


def recalls(measured: Measured) -> str:
    """By model and by what chooses: the share of the oracle's neurons that is found, and of the energy that is kept."""
    lines = [f"{'mean over the blocks':<44}{'recall':>10}{'energy':>10}{'least recall':>16}"]
    for model in results.models(measured, "recall"):
        mine = rows(measured, "recall", model=model, lookahead=0)
        for name in dict.fromkeys(row["chosen_by"] for row in mine):
            blocks = [row for row in mine if row["chosen_by"] == name]
            recall, energy = ([row[key] for row in blocks] for key in ("recall", "energy"))
            lines.append(f"{f'{model}, {name}':<44}{fmean(recall):>10.3f}{fmean(energy):>10.3f}{min(recall):>16.3f}")
    return "\n".join(lines)


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
