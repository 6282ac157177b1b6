"""The students that learn, each in pieces of a few minutes, and what is looked at between the pieces.

Compute is counted in FLOP: with N weights of the student and M of the teacher, a token costs 6 N of learning (2
forward, 4 backward) and, by KL, 2 M of asking the teacher. Attention over 128 tokens, 3 % more on both, is left out.
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
from course_lib.lessons.minitron.experiments.ground import Row, n_weights, perplexity_row, text
from course_lib.lessons.minitron.experiments.refits import refitted
from course_lib.lessons.minitron.experiments.shapes import DEPTH, SHAPES, WIDTH, kept_of, student
from course_lib.lessons.minitron.experiments.sizes import Sizes
from course_lib.measure.experiment import QUICK_RESULTS, Tables
from course_lib.pruning.structured.distillation import distil
from course_lib.pruning.structured.recipe import Recipe

KL, NEXT, SCRATCH, REFIT = "KL", "next token", "from scratch", "refit"
CURVES = (KL, NEXT, SCRATCH)
MOST_STEPS = {KL: 50, NEXT: 70, SCRATCH: 70}  # of learning in one piece: four minutes
KEPT = (WIDTH, next(iter(DEPTH)), KL)  # runs whose students answer questions later; states of others go when they end


@dataclass(frozen=True, kw_only=True)
class Look:
    """A student after some steps, the losses of the steps since the look before, and what those cost."""

    step: int
    model: PreTrainedModel
    from_step: int
    losses: list[float]
    processor_seconds: float


def folder(sizes: Sizes) -> Path:
    """Where runs that are not finished are kept; a quick run has a place of its own."""
    return QUICK_RESULTS / ("minitron" if sizes == Sizes() else "minitron-quick")


def begin(sizes: Sizes) -> None:
    """Nothing of an earlier measurement is gone on with."""
    shutil.rmtree(folder(sizes), ignore_errors=True)


def end(sizes: Sizes, seed: int) -> Tables:
    """Students are not kept: each is three numbers a weight on the disk."""
    shutil.rmtree(folder(sizes), ignore_errors=True)
    return {}


def recipe(sizes: Sizes, name: str, seed: int) -> Recipe:
    """The settings of a run; its rate falls to a tenth by its own last step."""
    n_steps = {KL: sizes.kl, NEXT: sizes.next_token, SCRATCH: sizes.scratch}.get(name, (sizes.short,))[-1]
    rate = sizes.scratch_rate if name == SCRATCH else sizes.rate
    schedule = Schedule(n_steps, sizes.batch, sizes.text_length, rate, sizes.warm_up, decay=0.01)
    return Recipe(schedule=schedule, loss="next token" if name in (NEXT, SCRATCH) else "kl", seed=seed, every=25)


def fresh(sizes: Sizes, name: str, seed: int) -> PreTrainedModel:
    """A student before its first step, the same at every call."""
    if name == REFIT:
        return refitted(sizes, seed)[0]
    if name in SHAPES:
        return student(sizes, seed, name)
    cut = student(sizes, seed, WIDTH)
    return untrained(cut.config, seed).eval() if name == SCRATCH else cut


def trained(sizes: Sizes, name: str, seed: int, until: int | None = None) -> tuple[PreTrainedModel, list[float]]:
    """A student after so many steps, or all of its run, and all losses; what is on the disk is not done again."""
    learner, settings = fresh(sizes, name, seed), recipe(sizes, name, seed)
    teacher = loaded(sizes.model)[0] if settings.loss == "kl" else None
    options = {"folder": folder(sizes) / name.replace(" ", "_"), "until": until, "progress": False}
    return learner, distil(learner, teacher, text(sizes, seed), settings, **options)


def looks(sizes: Sizes, name: str, steps: tuple[int, ...], seed: int, before: int = 0) -> Iterator[Look]:
    """The student after each of these steps; `before` is the last look of the piece before."""
    here = folder(sizes) / name.replace(" ", "_")
    if before == 0:  # killed in the middle of its first piece, a run begins anew
        shutil.rmtree(here, ignore_errors=True)
    for step in steps:
        start = time.process_time()
        learner, losses = trained(sizes, name, seed, step)
        seconds = time.process_time() - start
        yield Look(step=step, model=learner, from_step=before, losses=losses[before:], processor_seconds=seconds)
        before = step
    if name not in KEPT and before == recipe(sizes, name, seed).schedule.n_steps:
        shutil.rmtree(here)
        with suppress(OSError):  # the last one takes the folder with it
            here.parent.rmdir()


def flops(sizes: Sizes, name: str, model: PreTrainedModel, steps: int) -> int:
    """Of all steps up to there."""
    tokens = steps * sizes.batch * sizes.text_length
    teacher = 0 if name in (NEXT, SCRATCH) else n_weights(loaded(sizes.model)[0])
    return tokens * (6 * n_weights(model) + 2 * teacher)


def training_row(name: str, look: Look) -> Row:
    return {"run": name, "from_step": look.from_step, "losses": [round(loss, 5) for loss in look.losses]}


def at_equal_parameters(sizes: Sizes, name: str, seed: int) -> Tables:
    """One way to the same size: before, and after a short distillation."""
    kept = kept_of(sizes, seed, name)
    dropped = sorted(set(range(len(kept.neurons))) - set(kept.blocks.tolist()))
    before = student(sizes, seed, name)
    label = {"name": name, "kind": "depth" if name in DEPTH else "width", "dropped": dropped}
    label |= {"parameters": n_weights(before)}
    rows, log = [label | {"steps": 0} | perplexity_row(sizes, before, seed)], []
    for look in looks(sizes, name, (sizes.short,), seed):
        rows.append(label | {"steps": look.step} | perplexity_row(sizes, look.model, seed))
        log.append(training_row(name, look))
    return {"equal_parameters": rows, "training": log}


def curve(sizes: Sizes, name: str, steps: tuple[int, ...], before: int, seed: int) -> Tables:
    """A piece of a curve: perplexity after each of these steps, and before the first where the run begins."""
    rows, log = [], []
    if before == 0:
        rows.append(curve_row(sizes, name, fresh(sizes, name, seed), 0, 0.0, seed))
    for look in looks(sizes, name, steps, seed, before):
        rows.append(curve_row(sizes, name, look.model, look.step, look.processor_seconds, seed))
        log.append(training_row(name, look))
    return {"curves": rows, "training": log}


def curve_row(sizes: Sizes, name: str, model: PreTrainedModel, step: int, seconds: float, seed: int) -> Row:
    row = {"run": name, "step": step, "tokens": step * sizes.batch * sizes.text_length}
    row |= {"flops": flops(sizes, name, model, step), "processor_seconds": round(seconds, 1)}
    return row | perplexity_row(sizes, model, seed)


def in_pieces(sizes: Sizes, name: str, steps: tuple[int, ...]) -> list[tuple[str, Callable[[int], Tables]]]:
    """A long run as steps of an experiment: their names, and what measures each."""
    return [
        (f"{name}: to step {inside[-1]}", partial(curve, sizes, name, inside, before))
        for inside, before in pieces(steps, MOST_STEPS[name])
    ]


def pieces(steps: tuple[int, ...], most: int) -> list[tuple[tuple[int, ...], int]]:
    """Looks in pieces of at most `most` steps, each with the last look before it."""
    found: list[tuple[tuple[int, ...], int]] = [((), 0)]
    for step in steps:
        inside, before = found[-1]
        if inside and step - before > most:
            found.append(((step,), inside[-1]))
        else:
            found[-1] = ((*inside, step), before)
    return found
