"""Training of the students in pieces of a few minutes, with an evaluation between the pieces.

Compute is counted in FLOP: with N weights of the student and M of the teacher, a token costs 6 N for training (2
forward, 4 backward) and, with the KL loss, 2 M for the teacher. Attention over 128 tokens, 3 % of both, is left out.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from transformers import PreTrainedModel

from course_lib.attention.small_models.byte_model import untrained
from course_lib.attention.small_models.training import Schedule
from course_lib.lessons.common.subject import loaded
from course_lib.lessons.minitron.experiments.ground import Row, Sizes, n_weights, perplexity_row, text
from course_lib.lessons.minitron.experiments.students import DEPTH, SHAPES, WIDTH, kept_of, refit_student, student
from course_lib.measure.experiment import QUICK_RESULTS, Tables
from course_lib.pruning.structured.distillation import distil
from course_lib.pruning.structured.recipe import Recipe

KL, NEXT, SCRATCH, REFIT = "KL", "next token", "from scratch", "refit"
CURVES = (KL, NEXT, SCRATCH)
MOST_STEPS = {KL: 50, NEXT: 70, SCRATCH: 70}  # of training in one piece: four minutes
KEPT = (
    WIDTH,
    next(iter(DEPTH)),
    KL,
)  # runs whose students answer questions later; other states are deleted


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A student after some steps, the losses of the steps since the last checkpoint, and their processor time."""

    step: int
    model: PreTrainedModel
    from_step: int
    losses: list[float]
    processor_seconds: float


def folder(sizes: Sizes) -> Path:
    """Return the folder of unfinished runs; a quick run has its own."""
    return QUICK_RESULTS / ("minitron" if sizes == Sizes() else "minitron-quick")


def begin(sizes: Sizes) -> None:
    """Delete what an earlier measurement left."""
    shutil.rmtree(folder(sizes), ignore_errors=True)


def end(sizes: Sizes, seed: int) -> Tables:
    """Delete the students: each takes three numbers per weight on the disk."""
    shutil.rmtree(folder(sizes), ignore_errors=True)
    return {}


def recipe(sizes: Sizes, name: str, seed: int) -> Recipe:
    """Return the settings of a run; its learning rate falls to a tenth by its last step."""
    n_steps = {KL: sizes.kl, NEXT: sizes.next_token, SCRATCH: sizes.scratch}.get(name, (sizes.short,))[-1]
    rate = sizes.scratch_rate if name == SCRATCH else sizes.rate
    schedule = Schedule(n_steps, sizes.batch, sizes.text_length, rate, sizes.warm_up, decay=0.01)
    return Recipe(schedule=schedule, loss="next token" if name in (NEXT, SCRATCH) else "kl", seed=seed, every=25)


def fresh(sizes: Sizes, name: str, seed: int) -> PreTrainedModel:
    """Return a student before its first step; every call returns the same one."""
    if name == REFIT:
        return refit_student(sizes, seed)[0]
    if name in SHAPES:
        return student(sizes, seed, name)
    pruned = student(sizes, seed, WIDTH)
    return untrained(pruned.config, seed).eval() if name == SCRATCH else pruned


def trained(sizes: Sizes, name: str, seed: int, until: int | None = None) -> tuple[PreTrainedModel, list[float]]:
    """Return a student after so many steps, or its whole run, and all losses; steps on the disk are not repeated."""
    learner, settings = fresh(sizes, name, seed), recipe(sizes, name, seed)
    teacher = loaded(sizes.model)[0] if settings.loss == "kl" else None
    options = {"folder": folder(sizes) / name.replace(" ", "_"), "until": until, "progress": False}
    return learner, distil(learner, teacher, text(sizes, seed), settings, **options)


def checkpoints(sizes: Sizes, name: str, steps: tuple[int, ...], seed: int, before: int = 0) -> Iterator[Checkpoint]:
    """Yield the student after each of these steps; `before` is the last step of the piece before."""
    run_folder = folder(sizes) / name.replace(" ", "_")
    if before == 0:  # a run killed in its first piece starts again
        shutil.rmtree(run_folder, ignore_errors=True)
    for step in steps:
        start = time.process_time()
        learner, losses = trained(sizes, name, seed, step)
        seconds = time.process_time() - start
        yield Checkpoint(step=step, model=learner, from_step=before, losses=losses[before:], processor_seconds=seconds)
        before = step
    if name not in KEPT and before == recipe(sizes, name, seed).schedule.n_steps:
        shutil.rmtree(run_folder)
        with suppress(OSError):  # the last run removes the parent folder
            run_folder.parent.rmdir()


def flops(sizes: Sizes, name: str, model: PreTrainedModel, steps: int) -> int:
    """Count the FLOP of all steps so far."""
    tokens = steps * sizes.batch * sizes.text_length
    teacher = 0 if name in (NEXT, SCRATCH) else n_weights(loaded(sizes.model)[0])
    return tokens * (6 * n_weights(model) + 2 * teacher)


def training_row(name: str, look: Checkpoint) -> Row:
    return {"run": name, "from_step": look.from_step, "losses": [round(loss, 5) for loss in look.losses]}


def at_equal_parameters(sizes: Sizes, name: str, seed: int) -> Tables:
    """Evaluate one of the shapes of equal size, before and after a short distillation."""
    kept = kept_of(sizes, seed, name)
    dropped = sorted(set(range(len(kept.neurons))) - set(kept.blocks.tolist()))
    before = student(sizes, seed, name)
    label = {"name": name, "kind": "depth" if name in DEPTH else "width", "dropped": dropped}
    label |= {"parameters": n_weights(before)}
    rows, log = [label | {"steps": 0} | perplexity_row(sizes, before, seed)], []
    for look in checkpoints(sizes, name, (sizes.short,), seed):
        rows.append(label | {"steps": look.step} | perplexity_row(sizes, look.model, seed))
        log.append(training_row(name, look))
    return {"equal_parameters": rows, "training": log}


def curve(sizes: Sizes, name: str, steps: tuple[int, ...], before: int, seed: int) -> Tables:
    """Measure a piece of a curve: perplexity after each of these steps, and at step 0 if the run starts here."""
    rows, log = [], []
    if before == 0:
        rows.append(curve_row(sizes, name, fresh(sizes, name, seed), 0, 0.0, seed))
    for look in checkpoints(sizes, name, steps, seed, before):
        rows.append(curve_row(sizes, name, look.model, look.step, look.processor_seconds, seed))
        log.append(training_row(name, look))
    return {"curves": rows, "training": log}


def curve_row(sizes: Sizes, name: str, model: PreTrainedModel, step: int, seconds: float, seed: int) -> Row:
    row = {"run": name, "step": step, "tokens": step * sizes.batch * sizes.text_length}
    row |= {"flops": flops(sizes, name, model, step), "processor_seconds": round(seconds, 1)}
    return row | perplexity_row(sizes, model, seed)


def in_pieces(sizes: Sizes, name: str, steps: tuple[int, ...]) -> list[tuple[str, Callable[[int], Tables]]]:
    """Split a long run into steps of an experiment: the name of each, and the function that measures it."""
    return [
        (f"{name}: to step {inside[-1]}", partial(curve, sizes, name, inside, before))
        for inside, before in pieces(steps, MOST_STEPS[name])
    ]


def pieces(steps: tuple[int, ...], most: int) -> list[tuple[tuple[int, ...], int]]:
    """Group checkpoints into pieces of at most `most` steps, each with the last checkpoint before it."""
    groups: list[tuple[tuple[int, ...], int]] = [((), 0)]
    for step in steps:
        inside, before = groups[-1]
        if inside and step - before > most:
            groups.append(((step,), inside[-1]))
        else:
            groups[-1] = ((*inside, step), before)
    return groups
