"""Which neurons and heads does a token need, according to an oracle? Do small sets exist, and do they need the context?

Claims of Deja Vu (https://arxiv.org/abs/2310.17157), CATS (https://arxiv.org/abs/2404.08763) and TEAL
(https://arxiv.org/abs/2408.14690), on the default model, whose MLPs are gated, and on the small ReLU model of bytes.
What can be predicted is a separate experiment, dejavu_predictors.py.

Tables; each row has the loss of every evaluation window, so that models are compared window by window:

    dense          perplexity of the dense models
    active         by block: neurons that are not zero, that hold 95 % of the energy, that are never used
    neurons        some of them kept: by oracle on the fly or recorded, by the token alone, static
    heads          some of them kept: by the length of their contribution, or static
    together       heads and neurons by oracle, and the fraction of the blocks' weights that is read
    activations    thresholds on the gate (CATS) and on all inputs (TEAL: one density, or greedy levels; all tokens, or
                   the second half), ReLU in place of SiLU
    slow_change    by block: the cosine of the residual stream before and after it, the length of what is added
    depth          attention and MLP in parallel, blocks in pairs, blocks skipped
    batch          the fraction of the neurons that at least one of B sequences needs
    rounded        half of the neurons and rounded weights, each alone and both together

Planned minutes on two idle cores: neurons 9, heads 5, depth and slow change 3, thresholds 9, rounding 2, the ReLU model
4: half an hour. A step takes half a minute, or two where it processes the calibration text first.
"""

from functools import partial

from course_lib.lessons.dejavu.experiments import heads, oracle, teal
from course_lib.lessons.dejavu.experiments.ground import GATED, QUICK, RELU, Sizes
from course_lib.measure.experiment import Experiment, Step


def steps(sizes: Sizes) -> list[Step]:
    """List all steps, the most important ones first."""
    plan = []
    for name, few, both in (
        (GATED, sizes.heads, sizes.together),
        (RELU, sizes.heads_bytes, sizes.together_bytes),
    ):
        plan.append(Step(f"{name}: dense", partial(oracle.dense, sizes, name)))
        plan += [
            Step(f"{name}: neurons by {by}, {share}", partial(oracle.keep_neurons, sizes, name, by, share))
            for by, share in oracle.wanted(sizes)
        ]
        plan.append(Step(f"{name}: active", partial(oracle.active, sizes, name)))
        plan += [Step(f"{name}: {n} heads", partial(heads.kept, sizes, name, n, heads.OUTPUT)) for n in few]
        plan += [
            Step(f"{name}: {n} heads, {share} of the neurons", partial(heads.together, sizes, name, n, share))
            for n, share in both
        ]
        plan.append(Step(f"{name}: slow change", partial(oracle.change, sizes, name)))
        plan += [Step(f"{name}: {way}", partial(oracle.changed, sizes, name, way)) for way in oracle.WAYS]
        plan.append(Step(f"{name}: batch", partial(oracle.batch_union, sizes, name, sizes.batch_density)))
    return plan + of_gates(sizes)


def of_gates(sizes: Sizes) -> list[Step]:
    """List the steps that run on the default model only."""
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
        Step(f"{grid}, {share} of the neurons", partial(oracle.rounded, sizes, GATED, grid, share))
        for grid in oracle.GRIDS
        for share in (1.0, sizes.few[0])
    ]
    return plan


EXPERIMENT = Experiment("Contextual sparsity by oracle", Sizes(), QUICK, steps)
