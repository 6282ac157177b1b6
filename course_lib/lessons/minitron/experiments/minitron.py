"""Structured pruning of the default model: scores for what is pruned, loss after pruning, and distillation.

Claims of Minitron (https://arxiv.org/abs/2407.14679), LLM-Pruner (https://arxiv.org/abs/2305.11627) and ShortGPT
(https://arxiv.org/abs/2403.03853) at the scale of a laptop. The steps are in cuts.py, students.py,
training.py and after.py. Unfinished students are stored in build/reproduce/minitron, up to 6 GB; the last step clears
it. Training without a teacher at equal compute is a separate experiment, equal_compute.py.

Tables, each row with the loss of every evaluation window, so that models are compared window by window:

    dense, cuts, norm_factor      perplexity after one kind of part is pruned: by score, at random
    blocks                        influence of each block, log perplexity without it
    heads, heads_by_block         sets of heads ablated, in all blocks or in one
    equal_parameters              width and four ways of depth at one size, before and after 40 steps
    curves                        300 steps with the KL loss, with the FLOP so far
    refit, zero_shot, step_cost   least squares after pruning; tasks; time and memory of a step
    search, search_order          shapes of one size before and after ten steps, and Kendall's tau of both orders
    training                      the losses of the steps of each run

Minutes on two idle cores: cuts 16, width against depth 21, KL 30, heads 8, zero-shot 9, refit 6, search 6, cost of a
step 1: an hour and a half. A step takes minutes, and finished ones are kept.
"""

from functools import partial

from course_lib.lessons.minitron.experiments import after, cuts, students, training
from course_lib.lessons.minitron.experiments.ground import QUICK, Sizes
from course_lib.lessons.minitron.experiments.students import SHAPES
from course_lib.lessons.minitron.experiments.training import KL
from course_lib.measure.experiment import Experiment, Step, Tables
from course_lib.models import Part


def steps(sizes: Sizes) -> list[Step]:
    """List the steps; those that the lesson needs most come first."""
    plan = [Step("dense", partial(first_step, sizes)), Step("blocks", partial(cuts.block_rows, sizes))]
    plan += [Step(f"cut: {kind} {size}", partial(cuts.by_scores, sizes, kind, size)) for kind, size in sizes.cuts]
    plan += [Step(f"random: {kind} {size}", partial(cuts.at_random, sizes, kind, size)) for kind, size in sizes.cuts]
    plan += [Step(f"at equal parameters: {n}", partial(training.at_equal_parameters, sizes, n)) for n in SHAPES]
    plan += [Step(name, run) for name, run in training.in_pieces(sizes, KL, sizes.kl)]
    plan += [Step(f"heads: {which}", partial(cuts.head_sets, sizes, which)) for which in cuts.SETS]
    plan += [Step(f"heads by block: {w}", partial(cuts.heads_by_block, sizes, w)) for w in (cuts.EACH, cuts.WHOLE)]
    for name, n in after.evaluated_models(sizes):
        plan.append(Step(f"questions: {name}, {n} steps", partial(after.zero_shot, sizes, name, n)))
    plan.append(Step("refit", partial(students.refit_rows, sizes)))
    plan.append(Step("refit, learnt", partial(after.refit_trained, sizes)))
    plan.append(Step("search: bytes", partial(after.search_bytes, sizes)))
    plan.append(Step("search", partial(after.search_model, sizes)))
    plan += [Step(f"a step: {loss}", partial(after.step_cost, sizes, loss)) for loss in ("kl", "next token")]
    return [*plan, Step("clear", partial(training.end, sizes))]


def first_step(sizes: Sizes, seed: int) -> Tables:
    """Delete what an earlier measurement left, and evaluate the dense model."""
    training.begin(sizes)
    return cuts.dense(sizes, seed)


EXPERIMENT = Experiment(
    "Smaller dense models out of a larger one", Sizes(), QUICK, steps, quick_part=Part(n_blocks=2, width=None)
)
