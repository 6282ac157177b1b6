"""Tables and verdicts on what to do: prompts beside adapters, refit and distillation; tasks; bytes and loss."""

import math

from course_lib.lessons.common.benchmarks import has_signal
from course_lib.lessons.common.effects import Row, accuracy_gap
from course_lib.lessons.common.tables import Measured, wrapped
from course_lib.lessons.common.verdicts import Effect, claim, said
from course_lib.lessons.compress.claims.rivals import WAYS
from course_lib.lessons.compress.claims.sizes import CUT
from course_lib.lessons.compress.tables import found
from course_lib.lessons.compress.tables.found import CLOSE, called, shown
from course_lib.prompts.compressed.store import DENSE

PROMPT = "prompt"


def ways(measured: Measured, name: str) -> list[Row]:
    """The prompt and its rivals on one model, each with `way`, seconds and bytes beside the model."""
    own = found.one(measured, "own", model=name)
    if own is None:
        return []
    prompt = own | {"way": PROMPT, "bytes": own["prompt_bytes"]}
    return [prompt, *found.some(measured, "rivals", model=name)]


def rivals(measured: Measured) -> str:
    """By model and way: perplexity, nats against the prompt, processor seconds, bytes."""
    lines = [f"{'':<30}{'perplexity':>12}{'worse than prompt':>20}{'processor seconds':>19}{'bytes':>12}"]
    effects: dict[str, list[Effect]] = {}
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
            if row is not rows[0]:
                effects.setdefault(row["way"], []).append(found.wins(rows[0], row))
    lines += _same_work(measured)
    lines += [claim(f"a prompt reads better than: {way}", cases) for way, cases in effects.items()]
    return "\n".join(lines if effects else [*lines, claim("a prompt reads better than its rivals", [])])


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
    lines, effects = [f"{'':<40}{'alone':>10}{'prompted':>10}{'difference':>18}{'questions':>12}"], []
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
            gap = accuracy_gap(own, alone)
            effects += [gap] if name != DENSE else []
            cells = f"{alone['accuracy']:>10.3f}{own['accuracy']:>10.3f}{said(gap):>18}{alone['n']:>12}"
            lines.append(f"{f'{task}, {called(name)}':<40}{cells}")
    if asked and not effects:  # asked in vain: nothing is known of the effect
        effects = [Effect(value=0.0, error=math.inf)]
    return "\n".join([*lines, claim("a prompt raises the accuracy", effects)])


def smaller(measured: Measured) -> str:
    """Bytes in the blocks and of all, and how far a compressed model with its prompt is above the dense one."""
    dense = found.one(measured, "models", model=DENSE)
    lines = [f"{'':<28}{'MB':>8}{'times smaller':>15}{'in the blocks':>15}{'above dense, nats':>20}"]
    close: dict[str, Effect] = {}
    for name in found.models(measured) if dense else []:
        alone, own = found.one(measured, "models", model=name), found.one(measured, "own", model=name)
        if name == DENSE or own is None:
            continue
        stored, apart = alone["bytes"] + own["prompt_bytes"], found.wins(dense, own)
        times = f"{dense['bytes'] / stored:>15.2f}{dense['weight_bytes'] / alone['weight_bytes']:>15.2f}"
        lines.append(f"{called(name):<28}{stored / 1e6:>8.1f}{times}{said(apart):>20}")
        close[name] = Effect(value=CLOSE - apart.value, error=apart.error, n=apart.n)
    lines.append("Against 16 bits a number; the prompt's bytes are among the model's. Dense: without a prompt.")
    lines.append(claim(f"a compressed model with a prompt costs less than {CLOSE} nats", list(close.values())))
    for name in (name for name in close if name == "sparsegpt-50-4bit"):
        row = found.one(measured, "models", model=name)
        times = dense["weight_bytes"] / row["weight_bytes"]
        eight = Effect(value=times - 8, error=0.0)
        lines.append(claim("50 % and 4 bits are 8 times smaller in the blocks", eight))
        lines.append(claim("without loss, once there is a prompt", close[name], True))
    return "\n".join(lines)
