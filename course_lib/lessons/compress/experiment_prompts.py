"""Compress, then prompt, on the default model: what a prompt wins back, beside the dense model with its own prompt.

Claims of Xu and others, 2023 (https://arxiv.org/abs/2305.11186) at the scale of a laptop. What is measured is in
claims/. Compressed models lie in the user's cache, prompts of finished steps in build/reproduce/prompts.

Tables, each row with the loss of every evaluation window, so that models are compared window by window:

    models       each compressed model alone: perplexity, bytes as stored, sparsity
    own          with a prompt that learned on it
    words        with the authors' sentences, and with tokens by lot
    moved        with a prompt that learned on another
    other_text   on text that no prompt has learned from
    settings     of one model: vectors, steps, beginnings, draws
    rivals       LoRA, refit, distillation: perplexity, processor seconds, bytes beside the model
    tasks        questions answered, without a prompt and with the model's own

Minutes planned on one idle core: own prompts 30, words 3, moved 5, settings 16, rivals 8, tasks 7. No step takes more
than five.
"""

from functools import partial

from course_lib.lessons.compress.claims import asked, moved, own, rivals, settings, worded
from course_lib.lessons.compress.claims.sizes import CUT, QUICK, Sizes
from course_lib.measure.experiment import Experiment, Step

VARIED = "wanda-50"  # the model whose settings vary


def steps(sizes: Sizes) -> list[Step]:
    """What the lesson needs most comes first."""

    def owns(names: tuple[str, ...]) -> list[Step]:
        return [Step(f"{name}: own prompt", partial(own.own, sizes, name)) for name in names]

    def moves(names: tuple[str, ...]) -> list[Step]:
        return [Step(f"{name}: others' prompts", partial(moved.moved, sizes, name)) for name in names]

    def competes(name: str) -> list[Step]:
        return [Step(f"{name}: {way}", partial(rivals.rival, sizes, name, way)) for way in rivals.WAYS[name]]

    plan = owns(sizes.first)
    plan += [Step(f"{name}: sentences", partial(worded.worded, sizes, name)) for name in sizes.first]
    plan += owns(tuple(name for name in sizes.moved_from if name not in sizes.first))
    plan += moves(sizes.moved_to)
    plan += competes(rivals.WANDA)
    plan += owns(tuple(name for name in sizes.others if name not in sizes.moved_from))
    plan += competes(CUT)
    plan += [
        Step(f"{VARIED}: {which}", partial(settings.varied, sizes, VARIED, run))
        for which, run in settings.wanted(sizes).items()
    ]
    plan += [Step(f"{name}: other text", partial(moved.other_text, sizes, name)) for name in sizes.first]
    plan += [
        Step(f"{name}: {task}", partial(asked.answered, sizes, name, task, n))
        for task, n in sizes.questions
        for name in sizes.first
    ]
    return plan + owns(sizes.rest)


EXPERIMENT = Experiment("Compress, then prompt", Sizes(), QUICK, steps)
