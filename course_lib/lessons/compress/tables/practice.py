"""Tables and verdicts on what to do: prompts beside adapters, refit and distillation; tasks; bytes and loss."""

from course_lib.lessons.common.benchmarks import has_signal
from course_lib.lessons.common.claim import report
from course_lib.lessons.common.tables import Measured, wrapped
from course_lib.lessons.common.verdicts import said
from course_lib.lessons.compress import claims, found
from course_lib.lessons.compress.claims import ways
from course_lib.lessons.compress.found import called, shown
from course_lib.lessons.compress.measuring.rivals import WAYS
from course_lib.lessons.compress.measuring.sizes import CUT
from course_lib.prompts.compressed.store import DENSE


def rivals(measured: Measured) -> str:
    """By model and way: perplexity, nats against the prompt, processor seconds, bytes."""
    lines = [f"{'':<30}{'perplexity':>12}{'worse than prompt':>20}{'processor seconds':>19}{'bytes':>12}"]
    for name in WAYS:
        rows = ways(measured, name)
        alone = found.one(measured, "models", model=name)
        if len(rows) < 2 or alone is None:
            continue
        lines.append(f"{called(name):<30}{shown(alone['perplexity']):>12}{said(found.wins(rows[0], alone)):>20}")
        for row in rows:
            beside = "" if row is rows[0] else said(found.wins(rows[0], row))
            cost = f"{row['processor_seconds']:>19.0f}{row['bytes']:>12,}"
            lines.append(f"  {row['way']:<28}{shown(row['perplexity']):>12}{beside:>20}{cost}")
    lines += _same_work(measured)
    judged = [claim.judge(measured) for claim in claims.RIVALS.values()]
    shown_claims = [each for each in judged if each.effects] or judged[:1]
    return "\n".join([*lines, *map(str, shown_claims)])


def _same_work(measured: Measured) -> list[str]:
    """How far the seconds of equal work lie apart: so much say the seconds of unequal work."""
    own = [row for row in found.some(measured, "own") if row["model"] != CUT]
    if len(own) < 2:
        return []
    least, most = min(row["processor_seconds"] for row in own), max(row["processor_seconds"] for row in own)
    text = (
        f"Seconds of one thread, taken beside other work: the {own[0]['n_steps']} steps of a prompt took {least:.0f} "
    )
    return wrapped(text + f"to {most:.0f} on {len(own)} models of equal size.").splitlines()


def tasks(measured: Measured) -> str:
    """Questions answered right without a prompt and with the own one, on tasks on which the dense model has signal."""
    lines = [f"{'':<40}{'alone':>10}{'prompted':>10}{'difference':>18}{'questions':>12}"]
    gains = claims.accuracy_gains(measured)
    asked = dict.fromkeys(row["task"] for row in found.some(measured, "tasks"))
    for task in asked:
        dense = found.one(measured, "tasks", model=DENSE, task=task, prompted=False)
        if dense is None or not has_signal(dense):
            lines.append(f"{task}: the dense model is not clear of chance; nothing can be told")
            continue
        for name in found.models(measured):
            both = [found.one(measured, "tasks", model=name, task=task, prompted=so) for so in (False, True)]
            if None in both:
                continue
            alone, own = both
            gap = gains[f"{task}, {called(name)}"]
            cells = f"{alone['accuracy']:>10.3f}{own['accuracy']:>10.3f}{said(gap):>18}{alone['n']:>12}"
            lines.append(f"{f'{task}, {called(name)}':<40}{cells}")
    return "\n".join([*lines, str(claims.TASKS.judge(measured))])


def smaller(measured: Measured) -> str:
    """Bytes in the blocks and of all, and how far a compressed model with its prompt is above the dense one."""
    dense = found.one(measured, "models", model=DENSE)
    lines = [f"{'':<28}{'MB':>8}{'times smaller':>15}{'in the blocks':>15}{'above dense, nats':>20}"]
    for name in found.models(measured) if dense else []:
        alone, own = found.one(measured, "models", model=name), found.one(measured, "own", model=name)
        if name == DENSE or own is None:
            continue
        stored, apart = alone["bytes"] + own["prompt_bytes"], found.wins(dense, own)
        times = f"{dense['bytes'] / stored:>15.2f}{dense['weight_bytes'] / alone['weight_bytes']:>15.2f}"
        lines.append(f"{called(name):<28}{stored / 1e6:>8.1f}{times}{said(apart):>20}")
    lines.append("Against 16 bits a number; the prompt's bytes are among the model's. Dense: without a prompt.")
    judged = [claims.CLOSE_TO_DENSE]
    if dense and found.pair(measured, claims.BOTH):
        judged += [claims.EIGHT_TIMES, claims.WITHOUT_LOSS]
    return "\n".join([*lines, report(judged, measured)])
