"""Tables and verdicts from what `course reproduce dejavu_predictors` measured: what is known before the MLP."""

import math
from statistics import fmean, median

from course_lib.lessons.common.table import Table, number, percent
from course_lib.lessons.common.tables import rows
from course_lib.lessons.common.verdicts import Effect, of_samples, said, verdict
from course_lib.lessons.dejavu.claims.predicted import COPY, PREDICTOR, STATIC
from course_lib.lessons.dejavu.claims.search import MLP
from course_lib.lessons.dejavu.tables import found
from course_lib.lessons.dejavu.tables.found import CLOSE, GATED, RELU, Measured

LOST = 0.01  # of the recall, by reading an earlier block


def selectors(measured: Measured) -> Table:
    """Perplexity by model, selector and fraction of the neurons; bytes compared with those of the MLPs."""
    frame, dense = [], []
    for model in found.models(measured, "predicted"):
        mine = rows(measured, "predicted", model=model, lookahead=0)
        dense.append(f"{model} {found.dense(measured, model)['perplexity']:.2f}")
        for name in dict.fromkeys(row["chosen_by"] for row in mine):
            of_name = [row for row in mine if row["chosen_by"] == name]
            by_density = {row["density"]: row["perplexity"] for row in of_name}
            values = {percent(density): by_density.get(density) for density in found.densities(mine)}
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


def recalls(measured: Measured) -> Table:
    """The fraction of the oracle's neurons that is found, and of the energy that is kept, by what chooses."""
    frame = []
    for model in found.models(measured, "recall"):
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
