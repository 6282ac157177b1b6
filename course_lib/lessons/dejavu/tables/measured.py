"""Tables and verdicts from what `course reproduce dejavu` measured: what there is to be found, by oracle.

Each claim is one of an effect and its error over the windows.
"""

from statistics import fmean

from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.table import Table, number, percent
from course_lib.lessons.common.tables import origin, rows
from course_lib.lessons.common.verdicts import of_samples, said, verdict
from course_lib.lessons.dejavu.claims.neurons import ALONE, CHOICES, EMBEDDING, ORACLE, RECORDED, STATIC
from course_lib.lessons.dejavu.tables import found
from course_lib.lessons.dejavu.tables.found import CHEAP, Measured


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
    for model in found.models(measured, "neurons"):
        mine = rows(measured, "neurons", model=model)
        dense.append(f"{model} {found.dense(measured, model)['perplexity']:.2f}")
        for by in CHOICES:
            cells = {row["density"]: row["perplexity"] for row in mine if row["chosen_by"] == by}
            values = {percent(density): cells.get(density) for density in found.densities(mine)}
            frame.append({"model": model, "chosen by": by} | values)
    return Table(
        frame,
        caption="Perplexity by the fraction of the neurons that is kept",
        formats={name: number(2) for row in frame for name in row if name.endswith("%")},
        note=f"Dense: {', '.join(dense)}. A dash: not measured.",
    )


def contextual(measured: Measured) -> str:
    """Does context help? Each level beside the next, at equal density."""
    levels = {
        "a token's own neurons are better than those of the token alone": (ORACLE, ALONE),
        "those of the token alone are better than one set for all": (ALONE, STATIC),
        "a map of the embedding, fitted, is better than one set for all": (EMBEDDING, STATIC),
        "chosen on the fly they are better than as recorded in a dense pass": (ORACLE, RECORDED),
    }
    lines = []
    for claim, (first, second) in levels.items():
        effects = found.better(measured, "neurons", {"chosen_by": first}, {"chosen_by": second})
        for (model, share), effect in effects.items():
            lines.append(f"{model}, {percent(share)} of the neurons: {second} above {first} by {said(effect)} nats")
        lines.append(f"Claim: {claim}: {verdict(effects.values())}")
    return "\n".join(lines)


def exists(measured: Measured) -> str:
    """The paper's shares by oracle: how far above the dense model heads, neurons and both together are."""
    lines, effects = [], {}
    for model in found.models(measured, "dense"):
        for name, row in _least(measured, model).items():
            effects.setdefault(name, []).append(found.cheap(measured, row))
            amount = f"{row['kept']} of {row['of']} heads" if "kept" in row else ""
            amount += f"{', ' if amount and 'density' in row else ''}"
            amount += f"{percent(row['density'])} of the neurons" if "density" in row else ""
            left = f", {percent(row['left'])} of the blocks' weights" if "left" in row else ""
            above = said(found.above_dense(measured, row))
            lines.append(f"{model}, {amount}{left}: {above} nats a token above dense")
    for name, cases in effects.items():
        lines.append(f"Claim: {name}, by oracle, cost less than {CHEAP} nats: {verdict(cases, larger_models=True)}")
    return "\n".join(lines)


def _least(measured: Measured, model: str) -> dict[str, Row]:
    """The least of heads, of neurons and of both together that was measured."""
    places = {
        "few heads": (rows(measured, "heads", model=model, chosen_by="output"), "kept"),
        "few neurons": (rows(measured, "neurons", model=model, chosen_by=ORACLE), "density"),
        "few of both": (rows(measured, "together", model=model), "left"),
    }
    return {name: min(those, key=lambda row: row[key]) for name, (those, key) in places.items() if those}


def active_table(measured: Measured) -> Table:
    """The fraction of neurons that is not zero, and the fraction that carries nearly all of the output."""
    frame = []
    for model in found.models(measured, "active"):
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
    """Whether most values behind ReLU are zero."""
    blocks = rows(measured, "active", model=found.RELU)
    windows = zip(*(row["nonzero"] for row in blocks), strict=True)
    effects = [of_samples([0.15 - fmean(fractions) for fractions in windows])] if blocks else []
    return f"Claim: behind ReLU, more than 85 % of the values are zero by themselves: {verdict(effects)}"
