"""What is asked of students: tasks, whether a refit still shows after learning, and what a step of learning costs."""

import gc
import time
from dataclasses import replace
from pathlib import Path

from course_lib.lessons.common.benchmarks import accuracy_of
from course_lib.lessons.common.subject import loaded
from course_lib.lessons.minitron.experiments.ground import BEST, Row, forget, perplexity_row, text
from course_lib.lessons.minitron.experiments.shapes import DEPTH, WIDTH, student
from course_lib.lessons.minitron.experiments.sizes import Sizes
from course_lib.lessons.minitron.experiments.training import KL, NEXT, REFIT, looks, recipe, trained, training_row
from course_lib.measure.experiment import Tables
from course_lib.pruning.structured.distillation import distil

BY_INFLUENCE = next(iter(DEPTH))


def refit_learnt(sizes: Sizes, seed: int) -> Tables:
    """The refit student after the short distillation that the other one had too."""
    rows, log = [], []
    label = {"method": "activations", "setting": BEST, "damping": sizes.dampings[-1]}
    for look in looks(sizes, REFIT, (sizes.short,), seed):
        row = {"steps": look.step, "processor_seconds": None} | perplexity_row(sizes, look.model, seed)
        rows.append(label | row)
        log.append(training_row(REFIT, look))
    return {"refit": rows, "training": log}


def asked(sizes: Sizes) -> list[tuple[str, int]]:
    """Models that answer questions, and after how many steps."""
    return [
        ("dense", 0),
        (WIDTH, 0),
        (BY_INFLUENCE, 0),
        (WIDTH, sizes.short),
        (BY_INFLUENCE, sizes.short),
        (WIDTH, sizes.kl[-1]),
    ]


def zero_shot(sizes: Sizes, name: str, steps: int, seed: int) -> Tables:
    """One model, every task; the same questions for all."""
    model, tokenizer = loaded(sizes.model)
    if name != "dense":
        run = KL if steps > sizes.short else name
        model = trained(sizes, run, seed, steps)[0] if steps else student(sizes, seed, name)
    label = {"model": name, "steps": steps}
    return {"zero_shot": [label | accuracy_of(model, tokenizer, task, n, seed) for task, n in sizes.questions]}


def step_cost(sizes: Sizes, loss: str, seed: int) -> Tables:
    """One step: the time of several, less that of a run of one, which holds the set-up; and the memory at its peak."""
    forget()
    gc.collect()
    peaks = Path("/proc/self/clear_refs")  # Linux counts the peak from here on
    if peaks.exists():
        peaks.write_text("5", encoding="ascii")
    one, several = (run_of(sizes, loss, n, seed) for n in (1, 1 + sizes.timed))
    row = {name: round((several[name] - one[name]) / sizes.timed, 3) for name in one}
    tokens = sizes.batch * sizes.text_length
    return {"step_cost": [{"loss": loss, "tokens": tokens, "steps": sizes.timed} | row | {"peak_bytes": peak()}]}


def run_of(sizes: Sizes, loss: str, n_steps: int, seed: int) -> Row:
    """Seconds of a short run, by the clock and of all threads together."""
    settings = recipe(sizes, KL if loss == "kl" else NEXT, seed)
    settings = replace(settings, schedule=replace(settings.schedule, n_steps=n_steps))
    teacher = loaded(sizes.model)[0] if loss == "kl" else None
    learner, ids = student(sizes, seed, WIDTH), text(sizes, seed)
    clock, processor = time.perf_counter(), time.process_time()
    distil(learner, teacher, ids, settings, progress=False)
    return {"seconds": time.perf_counter() - clock, "processor_seconds": time.process_time() - processor}


def peak() -> int | None:
    """The most memory that this process has had since it was asked to count; None where the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)
