"""After training: tasks, the student with a refit, the cost of a training step, the order of shapes in a search."""

import gc
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from course_lib.attention.small_models.byte_model import byte_windows, load_byte_model
from course_lib.attention.small_models.training import Schedule
from course_lib.lessons.common.benchmarks import accuracy_of
from course_lib.lessons.common.subject import loaded
from course_lib.lessons.minitron.experiments.ground import (
    BEST,
    Row,
    Sizes,
    evaluation,
    evidence,
    forget,
    perplexity_row,
    scores,
    text,
)
from course_lib.lessons.minitron.experiments.students import DEPTH, WIDTH, student
from course_lib.lessons.minitron.experiments.training import KL, NEXT, REFIT, checkpoints, recipe, trained, training_row
from course_lib.measure.experiment import Tables
from course_lib.pruning.structured.distillation import distil
from course_lib.pruning.structured.recipe import Recipe
from course_lib.pruning.structured.scorer import Evidence
from course_lib.pruning.structured.scorers.block_influence import BlockInfluence
from course_lib.pruning.structured.scorers.minitron import Minitron
from course_lib.pruning.structured.search import Ranking, candidates, search
from course_lib.pruning.structured.shape import n_parameters, shape_of

BY_INFLUENCE = next(iter(DEPTH))
BYTE_MODEL, BYTE_BUDGET = "byte model", 0.76  # of its parameters


def refit_trained(sizes: Sizes, seed: int) -> Tables:
    """Evaluate the student with a refit after the same short distillation as the one without."""
    rows, log = [], []
    label = {"method": "activations", "setting": BEST, "damping": sizes.dampings[-1]}
    for look in checkpoints(sizes, REFIT, (sizes.short,), seed):
        row = {"steps": look.step, "processor_seconds": None} | perplexity_row(sizes, look.model, seed)
        rows.append(label | row)
        log.append(training_row(REFIT, look))
    return {"refit": rows, "training": log}


def evaluated_models(sizes: Sizes) -> list[tuple[str, int]]:
    """List the models that answer questions, and after how many steps."""
    return [
        ("dense", 0),
        (WIDTH, 0),
        (BY_INFLUENCE, 0),
        (WIDTH, sizes.short),
        (BY_INFLUENCE, sizes.short),
        (WIDTH, sizes.kl[-1]),
    ]


def zero_shot(sizes: Sizes, name: str, steps: int, seed: int) -> Tables:
    """Evaluate one model on every task, with the same questions for all models."""
    model, tokenizer = loaded(sizes.model)
    if name != "dense":
        run = KL if steps > sizes.short else name
        model = trained(sizes, run, seed, steps)[0] if steps else student(sizes, seed, name)
    label = {"model": name, "steps": steps}
    return {"zero_shot": [label | accuracy_of(model, tokenizer, task, n, seed) for task, n in sizes.questions]}


def step_cost(sizes: Sizes, loss: str, seed: int) -> Tables:
    """Measure a training step: the time of several steps minus that of a run of one (the set-up); and peak memory."""
    forget()
    gc.collect()
    peaks = Path("/proc/self/clear_refs")  # resets the peak on Linux
    if peaks.exists():
        peaks.write_text("5", encoding="ascii")
    one, several = (run_of(sizes, loss, n, seed) for n in (1, 1 + sizes.timed))
    row = {name: round((several[name] - one[name]) / sizes.timed, 3) for name in one}
    tokens = sizes.batch * sizes.text_length
    return {"step_cost": [{"loss": loss, "tokens": tokens, "steps": sizes.timed} | row | {"peak_bytes": peak()}]}


def run_of(sizes: Sizes, loss: str, n_steps: int, seed: int) -> Row:
    """Time a short run: wall-clock seconds, and processor seconds of all threads."""
    settings = recipe(sizes, KL if loss == "kl" else NEXT, seed)
    settings = replace(settings, schedule=replace(settings.schedule, n_steps=n_steps))
    teacher = loaded(sizes.model)[0] if loss == "kl" else None
    learner, ids = student(sizes, seed, WIDTH), text(sizes, seed)
    clock, processor = time.perf_counter(), time.process_time()
    distil(learner, teacher, ids, settings, progress=False)
    return {"seconds": time.perf_counter() - clock, "processor_seconds": time.process_time() - processor}


def peak() -> int | None:
    """Return the peak memory of this process since the last reset; None where the system does not report it."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)


def search_bytes(sizes: Sizes, seed: int) -> Tables:
    """Rank the candidates closest to three quarters of the byte model's parameters."""
    model, held_out, training = load_byte_model(sizes.byte_evaluation)
    byte_evidence = Evidence(model, byte_windows(64, "calibration", seed=1), progress=False)
    budget = int(BYTE_BUDGET * n_parameters(model, shape_of(model)))
    shapes = candidates(model, budget)[: sizes.byte_candidates]
    scored = Minitron("l2", "l2").score(byte_evidence) | BlockInfluence().score(byte_evidence)
    schedule = Schedule(sizes.search_steps, 16, training.shape[1], 1e-3, 2, decay=0.01)
    recipe = Recipe(schedule=schedule, seed=seed)
    return search_rows(BYTE_MODEL, sizes, search(model, shapes, scored, held_out, training, recipe, progress=False))


def search_model(sizes: Sizes, seed: int) -> Tables:
    """Rank four shapes of one size, one for each axis that can be pruned."""
    model, _ = loaded(sizes.model)
    now = shape_of(model)
    shapes = [replace(now, **dict(changes)) for changes in sizes.searched]
    scored = scores(sizes, seed, "activations", BEST) | BlockInfluence().score(evidence(sizes, seed))
    held_out = evaluation(sizes, seed)[: sizes.search_evaluation]
    schedule = Schedule(sizes.search_steps, sizes.batch, sizes.text_length, sizes.rate, sizes.warm_up, decay=0.01)
    recipe = Recipe(schedule=schedule, seed=seed)
    return search_rows(sizes.model, sizes, search(model, shapes, scored, held_out, text(sizes, seed), recipe, False))


def search_rows(name: str, sizes: Sizes, ranking: Ranking) -> Tables:
    """Return a row per candidate, and one that compares both orders."""
    rows = []
    for index, shape in enumerate(ranking.shapes):
        row = {"model": name} | asdict(shape) | {"parameters": ranking.parameters[index]}
        for when, losses, order in (
            ("before", ranking.before[index], ranking.order_before),
            ("after", ranking.after[index], ranking.order_after),
        ):
            row |= {when: losses.mean().item(), f"rank_{when}": order.index(index)}
            row |= {f"losses_{when}": rounded(losses.tolist())}
        rows.append(row)
    order = {"model": name, "n": len(rows), "steps": sizes.search_steps, "tau": ranking.tau}
    order |= {"agrees": ranking.agrees, "best_before": ranking.order_before[0], "best_after": ranking.order_after[0]}
    return {"search": rows, "search_order": [order]}


def rounded(losses: Sequence[float]) -> list[float]:
    return [round(loss, 5) for loss in losses]
