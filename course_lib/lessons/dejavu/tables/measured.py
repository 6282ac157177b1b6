"""Tables and verdicts from what `course reproduce dejavu` measured: what there is to be found, by oracle.

Each claim is one of an effect and its error over the windows.
"""

from statistics import fmean

from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.tables import origin, percent, rows
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


def neurons(measured: Measured) -> str:
    """Perplexity by model, way to choose and share of the neurons."""
    lines = []
    for model in found.models(measured, "neurons"):
        mine = rows(measured, "neurons", model=model)
        shares = found.densities(mine)
        whole = found.dense(measured, model)["perplexity"]
        lines.append(f"{f'{model}, dense {whole:.2f}':<28}" + "".join(f"{percent(share):>10}" for share in shares))
        for by in CHOICES:
            cells = [found.one(measured, "neurons", model=model, chosen_by=by, density=share) for share in shares]
            lines.append(
                f"  {by:<26}" + "".join(f"{row['perplexity']:>10.2f}" if row else f"{'':>10}" for row in cells)
            )
    return "\n".join(lines)


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


def active(measured: Measured) -> str:
    """How few neurons matter: the share that is not zero, and the share that carries nearly all of the output."""
    lines = [f"{'share of the neurons, by block':<44}{'mean':>16}{'least':>10}{'most':>10}"]
    effects = []
    for model in found.models(measured, "active"):
        blocks = rows(measured, "active", model=model)
        for key, name in (("nonzero", "not zero"), ("carrying", "carry nearly all")):
            shares = [fmean(row[key]) for row in blocks]
            cells = f"{percent(fmean(shares)):>16}{percent(min(shares)):>10}{percent(max(shares)):>10}"
            lines.append(f"{f'{model}, {name}':<44}{cells}")
        if model == found.RELU:
            windows = zip(*(row["nonzero"] for row in blocks), strict=True)
            effects.append(of_samples([0.15 - fmean(shares) for shares in windows]))
    lines.append(f"Claim: behind ReLU, more than 85 % of the values are zero by themselves: {verdict(effects)}")
    return "\n".join(lines)
