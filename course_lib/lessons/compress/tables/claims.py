"""Tables and verdicts on prompts of one's own: what they win, on which models, and what that depends on."""

from course_lib.lessons.common.table import Table, plus_minus
from course_lib.lessons.common.tables import Measured, origin, wrapped
from course_lib.lessons.common.verdicts import NOT_MEASURED, claim
from course_lib.lessons.compress.claims.ground import WIDE
from course_lib.lessons.compress.tables import found
from course_lib.lessons.compress.tables.found import called, shown
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
    names = [name for name in found.models(measured) if name != DENSE and found.pair(measured, name)]
    beyond = [found.beyond(measured, name) for name in names]
    won = claim(
        "a prompt of its own lowers the perplexity of a compressed model",
        [found.gain(measured, name) for name in names],
    )
    more = claim("by more nats than one lowers that of the dense model", [effect for effect in beyond if effect])
    return f"{won}\n{more}"


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
    names = list(dict.fromkeys(row["model"] for row in found.some(measured, "settings")))
    return "\n".join(claim(text, effects) for text, effects in _of_settings(measured, names).items())


def _of_settings(measured: Measured, names: list[str]) -> dict[str, list]:
    """The claims on settings, each with the effects that were measured."""
    claims: dict[str, list] = {
        "more vectors read better": [],
        "more steps read better": [],
        "words by lot begin better than N(0, 1)": [],
    }
    vectors, steps, beginning = claims.values()
    for name in names:
        main = found.one(measured, "own", model=name)
        for row in found.some(measured, "settings", model=name) if main else []:
            if row["n_vectors"] != main["n_vectors"]:
                vectors.append(found.wins(*sorted((row, main), key=lambda one: -one["n_vectors"])))
            if row["n_steps"] != main["n_steps"]:
                steps.append(found.wins(*sorted((row, main), key=lambda one: -one["n_steps"])))
            if row["begin"] == WIDE:
                beginning.append(found.wins(main, row))
    return claims
