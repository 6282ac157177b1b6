"""Which neurons and heads a token needs, as an oracle knows it: does such a choice exist, and does it need the context?

Claims of Deja Vu (https://arxiv.org/abs/2310.17157) and of those who came after it, CATS
(https://arxiv.org/abs/2404.08763) and TEAL (https://arxiv.org/abs/2408.14690), on the default model, whose neurons have
a gate, and on the small ReLU model of bytes. The steps are in experiments/steps/. What can be known before the MLP is
computed is an experiment of its own, experiments/experiment_dejavu_predictors.py.

Tables, each row of a model with the loss of every evaluation window, so that models are compared window by window:

    dense          perplexity of the models as they are
    active         of each block: neurons that are not zero, those that carry 95 % of the energy, those never used
    neurons        a share of them kept: by oracle on the fly or recorded, by the token alone, the same for all tokens
    heads          some of them kept: by the length of their part of the output, or the same for all tokens
    together       heads and neurons by oracle, and the share of the blocks' weights that is left
    activations    thresholds on the gate (CATS) and on all inputs (TEAL: one density, or levels found greedily; all
                   tokens, or the second half), ReLU for SiLU
    slow_change    of each block: the cosine of the residual before and behind it, the length of what is added
    depth          attention beside the MLP, blocks in pairs, blocks left out
    batch          the share of neurons that at least one of B sequences needs
    rounded        half of the neurons and weights on fewer bits, each alone and both together

Minutes planned on two idle cores: neurons 9, heads 5, depth and slow change 3, thresholds 9, rounding 2, the ReLU model
4: half an hour. A step takes half a minute, two where it reads the calibration text first.
"""

from functools import partial

from course_lib.lessons.dejavu.experiments.steps import active, batch, neurons, rounded, slow_change, teal
from course_lib.lessons.dejavu.experiments.steps.attention import heads
from course_lib.lessons.dejavu.experiments.steps.ground import GATED, RELU
from course_lib.lessons.dejavu.experiments.steps.sizes import QUICK, Sizes
from course_lib.measure.experiment import Experiment, Step


def steps(sizes: Sizes) -> list[Step]:
    """What the lesson needs most comes first."""
    plan = []
    for name, few, both in (
        (GATED, sizes.heads, sizes.together),
        (RELU, sizes.heads_bytes, sizes.together_bytes),
    ):
        plan.append(Step(f"{name}: dense", partial(active.dense, sizes, name)))
        plan += [
            Step(f"{name}: neurons by {by}, {share}", partial(neurons.kept, sizes, name, by, share))
            for by, share in neurons.wanted(sizes)
        ]
        plan.append(Step(f"{name}: active", partial(active.active, sizes, name)))
        plan += [Step(f"{name}: {n} heads", partial(heads.kept, sizes, name, n, heads.OUTPUT)) for n in few]
        plan += [
            Step(f"{name}: {n} heads, {share} of the neurons", partial(heads.together, sizes, name, n, share))
            for n, share in both
        ]
        plan.append(Step(f"{name}: slow change", partial(slow_change.change, sizes, name)))
        plan += [Step(f"{name}: {way}", partial(slow_change.changed, sizes, name, way)) for way in slow_change.WAYS]
        plan.append(Step(f"{name}: batch", partial(batch.union, sizes, name, sizes.batch_density)))
    return plan + of_gates(sizes)


def of_gates(sizes: Sizes) -> list[Step]:
    """What is asked on the default model alone."""
    plan = [Step(f"{n} heads, static", partial(heads.kept, sizes, GATED, n, heads.STATIC)) for n in sizes.static_heads]
    plan.append(Step("second halves: dense", partial(teal.dense, sizes)))
    plan += [Step(f"CATS, {share}", partial(teal.cats, sizes, share)) for share in sizes.activations]
    plan += [
        Step(f"TEAL, {share}, {tokens}", partial(teal.teal, sizes, share, tokens))
        for tokens in teal.TOKENS
        for share in sizes.activations
    ]
    plan += [Step(f"TEAL, {share}, greedy levels", partial(teal.greedy, sizes, share)) for share in sizes.activations]
    plan.append(Step("ReLU in place of SiLU", partial(teal.swapped, sizes)))
    plan += [
        Step(f"{grid}, {share} of the neurons", partial(rounded.rounded, sizes, GATED, grid, share))
        for grid in rounded.GRIDS
        for share in (1.0, sizes.few[0])
    ]
    return plan


EXPERIMENT = Experiment("Contextual sparsity by oracle", Sizes(), QUICK, steps)
