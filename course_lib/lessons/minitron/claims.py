"""Claims of lesson 05: what Minitron and other papers report about structured pruning and distillation."""

import math
from functools import partial
from typing import Any

from course_lib.lessons.common.claim import PERCENT, POINTS, TIMES, Claim
from course_lib.lessons.common.effects import Row, of_repetitions
from course_lib.lessons.common.results import load_published, rows
from course_lib.lessons.common.verdicts import Effect
from course_lib.lessons.minitron import results
from course_lib.lessons.minitron.results import Cut, Measured
from course_lib.pruning.structured.shape import Shape, count

AGREE = 0.01  # of the parameters, for numbers rounded to two digits
BY_INFLUENCE = "blocks by influence"
PAPERS_SCORES = (BY_INFLUENCE, "blocks by perplexity drop")  # for blocks; the other two ways are baselines

MINITRON = "Muralidharan and others (2024), Minitron, arXiv:2407.14679"
IN_PRACTICE = "Sreenivas and others (2024), arXiv:2408.11796"
MODEL_OPTIMIZER = "NVIDIA (2025), Model-Optimizer, examples/pruning"
HINTON = "Hinton, Vinyals and Dean (2015), arXiv:1503.02531"

_claim = partial(Claim, results=("minitron/experiments/minitron",), source=MINITRON)
_equal_compute = partial(_claim, results=("minitron/experiments/minitron", "minitron/experiments/equal_compute"))


def _named(effects: dict[Cut, Effect]) -> dict[str, Effect]:
    return {_case(cut): effect for cut, effect in effects.items()}


def _case(cut: Cut) -> str:
    """Name what is pruned without a comma, since names are listed."""
    return results.name_of(cut).replace(", equally many of every group", " from all groups alike")


# How to choose what is pruned.

LOTS = _claim(
    id="minitron-random",
    text="neurons, heads and channels chosen by activation norms have a lower loss than those chosen at random",
    measure=lambda measured: _named(results.gain_over_random(measured)),
    quantity="loss with a random choice minus that with activation norms",
    refuted="a cut whose choice by activation norms has a loss no lower than a random one",
)
GRADIENTS = _claim(
    id="minitron-gradients",
    text="neurons, heads and channels chosen by activation norms have a lower loss than those chosen by gradients",
    measure=lambda measured: _named(results.gain_over_score(measured, "LLM-Pruner", "param_first")),
    quantity="loss with a choice by gradients (LLM-Pruner) minus that with activation norms",
    refuted="a cut for which gradients choose with a loss as low",
)


def _other_aggregations(measured: Measured) -> dict[str, Effect]:
    by_cut = results.gain_of_papers_aggregation(measured)
    return {f"{_case(cut)} by {setting}": effect for (cut, setting), effect in by_cut.items()}


AGGREGATION = _claim(
    id="minitron-aggregation",
    text="the mean over tokens, then L2 over windows, is the best way to aggregate activations into a score",
    measure=_other_aggregations,
    quantity="loss with another way to aggregate minus that with the paper's, by shape and way",
    refuted="another way to aggregate with a lower loss",
)

# Width, depth and distillation.


def _published_width() -> str:
    gaps = [row["width"] - row["depth"] for row in rows(load_published("minitron"), "width_and_depth")]
    ahead = sum(gap > 0 for gap in gaps)
    return (
        f"width ahead in {ahead} of {len(gaps)} benchmarks, by {min(gaps):.1f} to {max(gaps):.1f} points "
        "(Llama-3.1 8B to 4.5B)"
    )


def _width_over_depth(measured: Measured) -> dict[str, Effect]:
    by_choice = results.width_over_depth(measured, after=True)
    return {name: effect for name, effect in by_choice.items() if name in PAPERS_SCORES}


WIDTH = _claim(
    id="minitron-width",
    text="40 steps after pruning, a narrower model has a lower loss than one with fewer blocks, chosen by either of "
    "the paper's scores",
    source=IN_PRACTICE,
    measure=_width_over_depth,
    quantity="loss with fewer blocks minus that with fewer neurons, by the score of the blocks, 40 steps after pruning",
    refuted="a score of the paper for blocks that gives a loss as low after the same steps",
    published=_published_width,
    larger_models=True,
)
REPAIRED = _claim(
    id="minitron-repaired",
    text="300 steps of distillation remove more than half of the loss increase after pruning",
    measure=results.repaired,
    above=0.5,
    because="to repair is to remove more than half of the loss increase",
    other_thresholds=(0.25, 0.75, 0.9),
    unit=PERCENT,
    quantity="of the loss increase removed",
    refuted="half or more of the loss increase left after 300 steps",
    published="400 iterations (Minitron)",
)
REFIT = _claim(
    id="minitron-refit",
    text="a least-squares refit lowers the loss, right after pruning and 40 steps later",
    source="",
    measure=results.refit_gains,
    quantity="loss without the refit minus that with it",
    refuted="a loss without the refit that is as low",
)


def _published_order() -> str:
    first, second = rows(load_published("minitron"), "order")
    return (
        f"not so: MMLU {first['before']:.1f} and {second['before']:.1f} % after pruning, {first['after']:.1f} and "
        f"{second['after']:.1f} % after 100 iterations (Qwen3-8B)"
    )


def _still_best(measured: Measured) -> dict[str, Effect]:
    names = {"smollm2-135m": "SmolLM2"}
    return {names.get(model, model): effect for model, effect in results.still_best(measured).items()}


FIRST_LEADS = _claim(
    id="minitron-first-leads",
    text="the shape with the lowest loss right after pruning still has the lowest ten steps later",
    source=MODEL_OPTIMIZER,
    measure=_still_best,
    quantity="loss of the best other shape minus that of the first, after ten steps",
    refuted="another shape with a loss as low after ten steps",
    published=_published_order,
)
_answers = partial(
    _claim, unit=POINTS, quantity="accuracy gained, mean of the tasks on which the dense model beats chance"
)
LEARNT_ANSWERS = _answers(
    id="minitron-learnt-answers",
    text="after 300 steps of distillation, the narrower model answers more questions than right after pruning",
    measure=lambda measured: results.accuracy_gained(
        measured, ("neurons", results.curve(measured)[-1]["step"]), ("neurons", 0)
    ),
    refuted="as many right answers before distillation",
)


def _width_answers(measured: Measured) -> Effect:
    steps = max(results.equal_models(measured)["neurons"])
    return results.accuracy_gained(measured, ("neurons", steps), (BY_INFLUENCE, steps))


WIDTH_ANSWERS = _answers(
    id="minitron-width-answers",
    text="after 40 steps of distillation, the narrower model answers more questions than the one with fewer blocks",
    source=IN_PRACTICE,
    measure=_width_answers,
    refuted="as many right answers with fewer blocks",
    published=_published_width,
)

# Equal compute: as many FLOP with a teacher and without.

NEXT, SCRATCH = "next token", "from scratch"


def _last_look(run: str, measured: Measured, alone: Measured) -> Effect:
    return results.gain_of_teacher(results.equal_pairs(measured, alone, run))[-1]


def _every_look(run: str, measured: Measured, alone: Measured) -> dict[str, Effect]:
    pairs = results.equal_pairs(measured, alone, run)
    return {_look(*pair): effect for pair, effect in zip(pairs, results.gain_of_teacher(pairs), strict=True)}


def _look(teacher: Row, other: Row) -> str:
    return f"{teacher['step']} steps with and {other['step']} without a teacher"


_teacher = partial(
    _equal_compute,
    source=HINTON,
    quantity="loss of the pruned model trained on the text alone minus that of the pruned model with a teacher",
)
TEACHER = _teacher(
    id="minitron-teacher",
    text="at equal compute, a pruned model ends with a lower loss with a teacher than from the text alone",
    measure=partial(_last_look, NEXT),
    refuted="a loss as low from the text alone",
)
TEACHER_ALWAYS = _teacher(
    id="minitron-teacher-always",
    text="at equal compute, a pruned model always has a lower loss with a teacher than from the text alone",
    measure=partial(_every_look, NEXT),
    refuted="an amount of compute after which the text alone gives a loss as low",
)
_scratch = partial(
    _equal_compute, quantity="loss of the same shape trained from scratch minus that of the pruned model with a teacher"
)
EQUAL_COMPUTE = _scratch(
    id="minitron-equal-compute",
    text="at equal compute, a pruned model ends with a lower loss than the same shape trained from scratch",
    measure=partial(_last_look, SCRATCH),
    refuted="a model of the same shape from scratch that ends with a loss as low",
)
SCRATCH_ALWAYS = _scratch(
    id="minitron-scratch-always",
    text="at equal compute, a pruned model always has a lower loss than the same shape trained from scratch",
    measure=partial(_every_look, SCRATCH),
    refuted="an amount of compute after which the shape from scratch has a loss as low",
)

# Counted and timed.


def _billions(row: Row) -> float:
    shape = Shape(**{key: row[key] for key in ("width", "blocks", "neurons", "heads", "groups")})
    return sum(count(shape, vocabulary=256_000, head_size=128, mlp_matrices=2, tied=False).values()) / 1e9


def shape_distances(published: dict[str, Any] | None = None) -> dict[str, Effect]:
    """Return the relative distance between our count of parameters and the published one, by model."""
    return {
        row["model"]: Effect(value=abs(math.log(_billions(row) / row["billions"])), error=0.0)
        for row in rows(published or load_published("minitron"), "shapes")
    }


def _counted_shapes() -> str:
    return ", ".join(f"{_billions(row):.2f}" for row in rows(load_published("minitron"), "shapes")) + " billion"


def _published_shapes() -> str:
    return ", ".join(f"{row['billions']:g}" for row in rows(load_published("minitron"), "shapes")) + " billion"


SHAPES_COUNTED = _claim(
    id="minitron-shapes-counted",
    text=f"the published shapes have the published numbers of parameters within {100 * AGREE:.0f} %",
    results=(),
    measure=shape_distances,
    below=AGREE,
    because="1 % covers the rounding of the published numbers",
    unit=PERCENT,
    shown=_counted_shapes,
    quantity="distance from the published number, by model",
    refuted="a shape whose count is over 1 % away from what is published",
    published=_published_shapes,
)


def _speed(bench: Measured) -> dict[str, Effect]:
    sides = [row for row in bench["tables"]["sides"] if row["side"] != row["anchor"]]
    return {f"{row['side']}, {row['contest']}": of_repetitions(row) for row in sides}


CUT_FASTER = _claim(
    id="minitron-cut-faster",
    text="a structurally pruned model is faster without special kernels",
    source="",
    results=("bench/cpu_structured",),
    measure=_speed,
    unit=TIMES,
    quantity="the dense model's time over that of the pruned one, by shape and length",
    refuted="a pruned model that is no faster",
)
