"""Tables and verdicts from what `course reproduce dejavu_predictors` measured: what is known before the MLP."""

import math
from statistics import fmean, median

from course_lib.lessons.common.tables import percent, rows
from course_lib.lessons.common.verdicts import Effect, of_samples, said, verdict
from course_lib.lessons.dejavu.claims.predicted import COPY, PREDICTOR, STATIC
from course_lib.lessons.dejavu.claims.search import MLP
from course_lib.lessons.dejavu.tables import found
from course_lib.lessons.dejavu.tables.found import CLOSE, GATED, RELU, Measured

LOST = 0.01  # of the recall, by reading an earlier block


def selectors(measured: Measured) -> str:
    """Perplexity by model, selector and share of the neurons; bytes beside those of the MLPs."""
    lines = []
    for model in found.models(measured, "predicted"):
        mine = rows(measured, "predicted", model=model, lookahead=0)
        shares, whole = found.densities(mine), found.dense(measured, model)["perplexity"]
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
    lines = []
    pairs = {
        f"{PREDICTOR} chooses better than one set for all tokens": (PREDICTOR, STATIC),
        f"{COPY} chooses better than {PREDICTOR}": (COPY, PREDICTOR),
    }
    for claim, (first, second) in pairs.items():
        sides = ({"chosen_by": name, "lookahead": 0} for name in (first, second))
        effects = found.better(measured, "predicted", *sides)
        for (model, share), effect in effects.items():
            lines.append(f"{model}, {percent(share)} of the neurons: {second} above {first} by {said(effect)} nats")
        for model in (GATED, RELU):
            of_model = [effect for (name, _), effect in effects.items() if name == model]
            if of_model:
                lines.append(f"Claim: {claim}, {model}: {verdict(of_model)}")
    for model in (GATED, RELU):
        mine = rows(measured, "predicted", model=model, chosen_by=PREDICTOR, lookahead=0)
        effects = [found.cheap(measured, row, CLOSE) for row in mine]
        lines.append(f"Claim: {PREDICTOR} costs less than {CLOSE} nats, {model}: {verdict(effects)}")
    return "\n".join(lines)


def recalls(measured: Measured) -> str:
    """By model and by what chooses: the share of the oracle's neurons that is found, and of the energy that is kept."""
    lines = [f"{'mean over the blocks':<44}{'recall':>10}{'energy':>10}{'least recall':>16}"]
    for model in found.models(measured, "recall"):
        mine = rows(measured, "recall", model=model, lookahead=0)
        for name in dict.fromkeys(row["chosen_by"] for row in mine):
            blocks = [row for row in mine if row["chosen_by"] == name]
            recall, energy = ([row[key] for row in blocks] for key in ("recall", "energy"))
            lines.append(f"{f'{model}, {name}':<44}{fmean(recall):>10.3f}{fmean(energy):>10.3f}{min(recall):>16.3f}")
    return "\n".join(lines)


def lookahead(measured: Measured) -> str:
    """What it costs to read x some blocks earlier: recall, block by block, and perplexity."""
    lines, effects = [], {}
    for model in found.models(measured, "recall"):
        trained = rows(measured, "recall", model=model, chosen_by=PREDICTOR)
        own = {row["block"]: row["recall"] for row in trained if row["lookahead"] == 0}
        for ahead in sorted({row["lookahead"] for row in trained} - {0}):
            earlier = [row for row in trained if row["lookahead"] == ahead]
            losses = [own[row["block"]] - row["recall"] for row in earlier if row["block"] >= ahead]
            if losses:
                lost = of_samples(losses)
                effects.setdefault(ahead, []).append(Effect(value=LOST - lost.value, error=lost.error, n=lost.n))
                lines.append(f"{model}, lookahead of {ahead}: recall {said(lost)} lower ({lost.n} blocks)")
            else:
                lines.append(f"{model}, lookahead of {ahead}: of {len(earlier)} blocks none has one so far before it")
            lines += _losses_ahead(measured, model, ahead)
    for ahead, cases in effects.items():
        lines.append(f"Claim: a lookahead of {ahead} costs less than {LOST} of the recall: {verdict(cases)}")
    return "\n".join(lines)


def _losses_ahead(measured: Measured, model: str, ahead: int) -> list[str]:
    """By how much the model reads worse with predictors of earlier blocks."""
    sides = ({"chosen_by": PREDICTOR, "lookahead": each} for each in (0, ahead))
    effects = found.better(measured, "predicted", *sides)
    return [
        f"    {percent(share)} of the neurons: {said(effect)} nats a token more"
        for (name, share), effect in effects.items()
        if name == model
    ]


def search(measured: Measured) -> str:
    """Seconds of a search beside those of the MLP, round by round."""
    lines, effects = [], []
    layer = found.one(measured, "search", way=MLP)
    for row in rows(measured, "search"):
        if row["way"] == MLP:
            continue
        ratios = [math.log(own / whole) for own, whole in zip(row["seconds"], layer["seconds"], strict=True)]
        effects.append(of_samples(ratios))
        times = math.exp(median(ratios))
        lines.append(
            f"{row['way']}: {times:.2f} times the seconds of the MLP, {percent(row['recall'])} of the oracle's"
        )
    lines.append(f"Claim: a search for the nearest rows takes longer than the MLP: {verdict(effects)}")
    return "\n".join(lines)
