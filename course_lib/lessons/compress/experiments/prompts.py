"""Compress, then prompt, on the default model: what a prompt gains, compared with a prompt for the dense model.

Claims of Xu and others, 2023 (https://arxiv.org/abs/2305.11186) at the scale of a laptop. Compressed models are kept
in the user's cache, prompts of finished steps in build/reproduce/prompts.

Tables, each row with the loss of every evaluation window, so that models are compared window by window:

    models       each compressed model without a prompt: perplexity, bytes as stored, sparsity
    own          with a prompt that was trained on it
    words        with the authors' sentences, and with random tokens
    moved        with a prompt that was trained on another model
    other_text   on text that no prompt was trained on
    settings     of one model: vectors, steps, initialisations, seeds
    rivals       LoRA, refit, distillation: perplexity, processor seconds, bytes in addition to the model
    tasks        questions answered, without a prompt and with the model's own

Three experiments share the plan. This one measures the first three claims and the rivals of a prompt for a model
pruned by Wanda; `course reproduce prompts_further` settings, other_text, the first questions and distillation of a
structurally pruned model; `course reproduce prompts_rest` the other rivals, questions and models. Each uses the
prompts that the others have trained. Minutes planned on one idle core: 40, 20 and 25.
"""

from functools import partial

from course_lib.lessons.compress.experiments import rivals, runs
from course_lib.lessons.compress.experiments.runs import CUT, QUICK, Sizes
from course_lib.measure.experiment import Experiment, Step

VARIED = "wanda-50"  # the model whose settings vary
ASKED = 2  # models that answer questions in the second experiment: the dense one and one pruned by Wanda


def steps(sizes: Sizes) -> list[Step]:
    """List all steps; those that the lesson needs most come first."""
    return first(sizes) + further(sizes) + rest(sizes)


def first(sizes: Sizes) -> list[Step]:
    """List own prompts, sentences, prompts of other models, and the rivals on the model pruned by Wanda."""
    plan = _owns(sizes, sizes.first)
    plan += [Step(f"{name}: sentences", partial(runs.worded, sizes, name)) for name in sizes.first]
    plan += _owns(sizes, tuple(name for name in sizes.moved_from if name not in sizes.first))
    plan += [Step(f"{name}: others' prompts", partial(runs.moved, sizes, name)) for name in sizes.moved_to]
    plan += _competes(sizes, rivals.WANDA)
    return plan + _owns(sizes, tuple(name for name in sizes.others if name not in sizes.moved_from))


def further(sizes: Sizes) -> list[Step]:
    """List settings, another text, one task for two models, and distillation of the structurally pruned model."""
    plan = [
        Step(f"{VARIED}: {which}", partial(runs.varied, sizes, VARIED, run))
        for which, run in runs.varied_runs(sizes).items()
    ]
    plan += [Step(f"{name}: other text", partial(runs.other_text, sizes, name)) for name in sizes.first]
    return plan + _asks(sizes)[:ASKED] + _competes(sizes, CUT)[-1:]


def rest(sizes: Sizes) -> list[Step]:
    """List the other rivals on the structurally pruned model, the other questions, and the other models."""
    return _competes(sizes, CUT)[:-1] + _asks(sizes)[ASKED:] + _owns(sizes, sizes.rest)


def _asks(sizes: Sizes) -> list[Step]:
    return [
        Step(f"{name}: {task}", partial(runs.answered, sizes, name, task, n))
        for task, n in sizes.questions
        for name in sizes.first
    ]


def _owns(sizes: Sizes, names: tuple[str, ...]) -> list[Step]:
    return [Step(f"{name}: own prompt", partial(runs.own, sizes, name)) for name in names]


def _competes(sizes: Sizes, name: str) -> list[Step]:
    return [Step(f"{name}: {way}", partial(rivals.rival, sizes, name, way)) for way in rivals.WAYS[name]]


EXPERIMENT = Experiment("Compress, then prompt", Sizes(), QUICK, first)
