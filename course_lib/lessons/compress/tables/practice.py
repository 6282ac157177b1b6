"""Tables and verdicts on what to do: prompts beside adapters, refit and distillation; tasks; bytes and loss."""

from course_lib.lessons.common.benchmarks import has_signal
from course_lib.lessons.common.claim import report
from course_lib.lessons.common.effects import Row, accuracy_gap
from course_lib.lessons.common.table import Table, number, plus_minus
from course_lib.lessons.common.tables import Measured
from course_lib.lessons.compress import claims, found
from course_lib.lessons.compress.claims import ways
from course_lib.lessons.compress.found import called, shown
from course_lib.lessons.compress.measuring.rivals import WAYS
from course_lib.lessons.compress.measuring.sizes import CUT
from course_lib.prompts.compressed.store import DENSE


def rivals_table(measured: Measured) -> Table:
    """By model and way: perplexity, nats against the prompt, processor seconds, bytes."""
    frame = []
    for name, alone, rows in _compared(measured):
        worse = found.wins(rows[0], alone)
        row = {"model": called(name), "repaired by": "nothing", "perplexity": alone["perplexity"]}
        frame.append(row | {WORSE: worse.value, f"{WORSE}: error": worse.error})
        for way in rows:
            worse = None if way is rows[0] else found.wins(rows[0], way)
            frame.append(
                {"model": called(name), "repaired by": way["way"], "perplexity": way["perplexity"]}
                | {WORSE: worse and worse.value, f"{WORSE}: error": worse and worse.error}
                | {"processor time (s)": way["processor_seconds"], "bytes": way["bytes"]}
            )
    formats = {"perplexity": shown, (WORSE, f"{WORSE}: error"): plus_minus(3, sign=True)}
    return Table(
        frame,
        caption="A prompt and its rivals",
        formats=formats | {"processor time (s)": number(), "bytes": number()},
        note=" ".join(["± one standard error over the windows.", *_same_work(measured)]),
    )


WORSE = "nats worse than the prompt"


def _compared(measured: Measured) -> list[tuple[str, Row, list[Row]]]:
    """By model: its name, its row alone, and those of the prompt and of its rivals, of which there is one at least."""
    cases = [(name, found.one(measured, "models", model=name), ways(measured, name)) for name in WAYS]
    return [(name, alone, rows) for name, alone, rows in cases if len(rows) > 1 and alone]


def rivals(measured: Measured) -> str:
    """Whether a prompt is better than each of its rivals."""
    judged = [claim.judge(measured) for claim in claims.RIVALS.values()]
    return "\n".join(map(str, [each for each in judged if each.effects] or judged[:1]))


def _same_work(measured: Measured) -> list[str]:
    """How far the seconds of equal work lie apart: so much say the seconds of unequal work."""
    own = [row for row in found.some(measured, "own") if row["model"] != CUT]
    if len(own) < 2:
        return []
    least, most = min(row["processor_seconds"] for row in own), max(row["processor_seconds"] for row in own)
    text = f"Seconds of one thread, next to other work: the {own[0]['n_steps']} steps of a prompt took {least:.0f} to "
    return [f"{text}{most:.0f} on {len(own)} models of equal size."]


def tasks_table(measured: Measured) -> Table:
    """Fraction of right answers without a prompt and with the own one, where the dense model has a signal."""
    asked = dict.fromkeys(row["task"] for row in found.some(measured, "tasks"))
    useless = [task for task in asked if not _has_signal(measured, task)]
    frame = []
    for task, name, alone, own in _asked(measured):
        gap = accuracy_gap(own, alone)
        frame.append(
            {"task": task, "model": called(name), "alone": alone["accuracy"], "with a prompt": own["accuracy"]}
            | {"difference": gap.value, "error": gap.error, "questions": alone["n"]}
        )
    formats = {"alone": number(3), "with a prompt": number(3), ("difference", "error"): plus_minus(3, sign=True)}
    return Table(
        frame,
        caption="Fraction of right answers",
        formats=formats,
        note=" ".join(f"{task}: the dense model is not clear of chance; nothing can be told." for task in useless),
    )


def _has_signal(measured: Measured, task: str) -> bool:
    dense = found.one(measured, "tasks", model=DENSE, task=task, prompted=False)
    return dense is not None and has_signal(dense)


def _asked(measured: Measured) -> list[tuple[str, str, Row, Row]]:
    """Task, model, and the rows alone and with a prompt, where both were measured and the task has a signal."""
    tasks = dict.fromkeys(row["task"] for row in found.some(measured, "tasks"))
    cases = []
    for task in (task for task in tasks if _has_signal(measured, task)):
        for name in found.models(measured):
            both = [found.one(measured, "tasks", model=name, task=task, prompted=so) for so in (False, True)]
            if None not in both:
                cases.append((task, name, *both))
    return cases


def tasks(measured: Measured) -> str:
    """Whether a prompt raises the accuracy of compressed models."""
    return str(claims.TASKS.judge(measured))


def smaller_table(measured: Measured) -> Table:
    """Bytes in the blocks and of all, and how far a compressed model with its prompt is above the dense one."""
    frame = []
    for name, dense, alone, own in _with_prompts(measured):
        stored, apart = alone["bytes"] + own["prompt_bytes"], found.wins(dense, own)
        frame.append(
            {"model": called(name), "memory (MB)": stored / 1e6, "times smaller": dense["bytes"] / stored}
            | {"times smaller in the blocks": dense["weight_bytes"] / alone["weight_bytes"]}
            | {"nats above dense": apart.value, "error": apart.error}
        )
    formats = {"memory (MB)": number(1), "times smaller": number(2), "times smaller in the blocks": number(2)}
    return Table(
        frame,
        caption="Compressed models with their prompts",
        formats=formats | {("nats above dense", "error"): plus_minus(3, sign=True)},
        note="Compared with 16 bits per number; the bytes of the prompt are included. Dense: without a prompt.",
    )


def _with_prompts(measured: Measured) -> list[tuple[str, Row, Row, Row]]:
    """By compressed model: its name, the dense model's row, its own row alone and with its prompt."""
    dense = found.one(measured, "models", model=DENSE)
    names = [name for name in found.models(measured) if name != DENSE] if dense else []
    cases = [
        (name, found.one(measured, "models", model=name), found.one(measured, "own", model=name)) for name in names
    ]
    return [(name, dense, alone, own) for name, alone, own in cases if own]


def smaller(measured: Measured) -> str:
    """Whether a compressed model with a prompt is close to the dense one, and how much smaller it is."""
    is_there = found.one(measured, "models", model=DENSE) and found.pair(measured, claims.BOTH)
    return report((claims.CLOSE_TO_DENSE, *((claims.EIGHT_TIMES, claims.WITHOUT_LOSS) if is_there else ())), measured)
