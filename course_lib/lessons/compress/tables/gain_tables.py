"""Tables and verdicts on prompts of one's own: what they win, on which models, and what that depends on."""

from course_lib.lessons.common.claim import report
from course_lib.lessons.common.effects import Row
from course_lib.lessons.common.tables import Measured, origin, wrapped
from course_lib.lessons.common.verdicts import NOT_MEASURED, said
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


def gains(measured: Measured) -> str:
    """By model: perplexity alone and with its own prompt, the paired ratio, and nats beyond the dense model's gain."""
    lines = [f"{'':<28}{'alone':>10}{'prompted':>10}{'ratio':>16}{'nats':>18}{'beyond dense':>18}"]
    for name in found.models(measured):
        pair = found.pair(measured, name)
        if pair is None:
            lines.append(f"{called(name):<28}{NOT_MEASURED}")
            continue
        alone, own = pair
        ratio, gain, beyond = found.ratio(own, alone), found.gain(measured, name), found.beyond(measured, name)
        cells = f"{shown(alone['perplexity']):>10}{shown(own['perplexity']):>10}"
        cells += f"{f'{ratio.value:.3f} ± {ratio.standard_error:.3f}':>16}{said(gain):>18}"
        if name != DENSE:
            cells += f"{said(beyond) if beyond else '':>18}"
        lines.append(f"{called(name):<28}{cells}")
    return "\n".join([*lines, report((claims.OWN, claims.BEYOND_DENSE), measured)])


def settings(measured: Measured) -> str:
    """One setting changed at a time, beside the main run and beside no prompt."""
    rows = found.some(measured, "settings")
    names = list(dict.fromkeys(row["model"] for row in rows))
    lines = [f"{'vectors, steps, beginning, draw':<52}{'perplexity':>12}{'ratio':>16}{'against main run':>20}"]
    for name in names:
        pair = found.pair(measured, name)
        if pair is None:
            continue
        alone, main = pair
        lines.append(f"{called(name)}, without a prompt {shown(alone['perplexity'])}")
        for row in (main, *(row for row in rows if row["model"] == name)):
            ratio = found.ratio(row, alone)
            beside = "" if row is main else said(found.wins(row, main))
            cells = f"{shown(row['perplexity']):>12}{f'{ratio.value:.3f} ± {ratio.standard_error:.3f}':>16}"
            lines.append(f"  {_setting(row):<50}{cells}{beside:>20}")
    return "\n".join([*lines, report((claims.MORE_VECTORS, claims.MORE_STEPS, claims.TOKENS_AS_START), measured)])


def _setting(row: Row) -> str:
    return f"{row['n_vectors']}, {row['n_steps']}, {row['begin']}, {row['draw']}"
