"""Tables and verdicts from what `course reproduce dejavu` measured: what there is to be found, by oracle."""

from statistics import fmean

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.tables import origin, percent, rows
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


def neurons(measured: Measured) -> str:
    """Perplexity by model, way to choose and share of the neurons."""
    lines = []
    for model in results.models(measured, "neurons"):
        mine = rows(measured, "neurons", model=model)
        shares = results.densities(mine)
        whole = results.dense(measured, model)["perplexity"]
        lines.append(f"{f'{model}, dense {whole:.2f}':<28}" + "".join(f"{percent(share):>10}" for share in shares))
        for by in CHOICES:
            cells = [results.one(measured, "neurons", model=model, chosen_by=by, density=share) for share in shares]
            lines.append(
                f"  {by:<26}" + "".join(f"{row['perplexity']:>10.2f}" if row else f"{'':>10}" for row in cells)
            )
    return "\n".join(lines)


def contextual(measured: Measured) -> str:
    """Does context help? Each way to choose compared with one that knows less, at equal density."""
    return report(CONTEXT_CLAIMS, measured)


def exists(measured: Measured) -> str:
    """The paper's shares by oracle: how far above the dense model heads, neurons and both together are."""
    return report(ORACLE_CLAIMS, measured)


def active(measured: Measured) -> str:
    """How few neurons matter: the share that is not zero, and the share that carries nearly all of the output."""
    lines = [f"{'share of the neurons, by block':<44}{'mean':>16}{'least':>10}{'most':>10}"]
    for model in results.models(measured, "active"):
        blocks = rows(measured, "active", model=model)
        for key, name in (("nonzero", "not zero"), ("carrying", "carry nearly all")):
            shares = [fmean(row[key]) for row in blocks]
            cells = f"{percent(fmean(shares)):>16}{percent(min(shares)):>10}{percent(max(shares)):>10}"
            lines.append(f"{f'{model}, {name}':<44}{cells}")
    return "\n".join([*lines, str(claims.RELU_ZEROS.judge(measured))])
