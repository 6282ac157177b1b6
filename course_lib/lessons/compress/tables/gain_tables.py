"""Tables and verdicts on prompts of one's own: what they win, on which models, and what that depends on."""

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.table import Table, plus_minus
from course_lib.lessons.common.tables import Measured, origin, wrapped
from course_lib.lessons.common.verdicts import NOT_MEASURED
from course_lib.lessons.compress import claims, found
from course_lib.lessons.compress.found import called, shown
from course_lib.prompts.compressed.store import DENSE


def provenance(measured: Measured) -> str:
    """What was run, where, when, with how much."""
    sizes = measured["sizes"]
    learned = f"prompts of {sizes['n_vectors']} vectors, {sizes['n_steps']} steps of {sizes['batch']} × "
    learned += f"{sizes['text_length']} tokens; {sizes['evaluation']} windows of {sizes['length']} to evaluate"
    missing = found.missing(measured)
    if not missing:
        return origin(measured, learned)
    text = f"Not measured: {len(missing)} steps of the plan, the first of them {'; '.join(missing[:3])}. "
    return origin(measured, learned) + "\n" + wrapped(text + "`course reproduce prompts_rest` measures them.")


def gains_table(measured: Measured) -> Table:
    """By model: perplexity alone and with its own prompt, their ratio, and nats beyond the dense model's gain."""
    frame = []
    for name in found.models(measured):
        pair = found.pair(measured, name)
        more = found.beyond(measured, name) if pair and name != DENSE else None
        frame.append({"model": called(name)} | (found.gain_columns(pair, more) if pair else {}))
    return Table(
        frame,
        caption="Perplexity alone and with a prompt of its own",
        formats=found.GAIN_FORMATS if any(len(row) > 1 for row in frame) else {},
        note=f"± one standard error over the windows. A dash: {NOT_MEASURED}.",
    )


def gains(measured: Measured) -> str:
    """Whether a prompt helps compressed models, and more than it helps the dense one."""
    return report((claims.OWN, claims.BEYOND_DENSE), measured)


def settings_table(measured: Measured) -> Table:
    """One setting changed at a time, compared with the main run and with no prompt."""
    frame = []
    for name in dict.fromkeys(row["model"] for row in found.some(measured, "settings")):
        pair = found.pair(measured, name)
        if pair is None:
            continue
        alone, main = pair
        frame.append({"model": called(name), "start": "no prompt", "perplexity": alone["perplexity"]})
        for row in (main, *found.some(measured, "settings", model=name)):
            ratio, won = found.ratio(row, alone), None if row is main else found.wins(row, main)
            frame.append(
                {"model": called(name), "start": row["begin"], "perplexity": row["perplexity"]}
                | {"vectors": row["n_vectors"], "steps": row["n_steps"], "seed": row["draw"]}
                | {"ratio": ratio.value, "ratio: error": ratio.standard_error}
                | {AGAINST: won and won.value, f"{AGAINST}: error": won and won.error}
            )
    return Table(
        frame,
        caption="One setting of the prompt changed at a time",
        formats={
            "perplexity": shown,
            ("ratio", "ratio: error"): plus_minus(3),
            (AGAINST, f"{AGAINST}: error"): plus_minus(3, sign=True),
        },
        note="± one standard error over the windows.",
    )


AGAINST = "nats better than the main run"


def settings(measured: Measured) -> str:
    """The claims on settings."""
    return report((claims.MORE_VECTORS, claims.MORE_STEPS, claims.TOKENS_AS_START), measured)
