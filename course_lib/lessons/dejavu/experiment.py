"""Which neurons and heads a token needs, as an oracle knows it: does such a choice exist, and does it need the context?

Claims of Deja Vu (https://arxiv.org/abs/2310.17157) and of those who came after it, CATS
(https://arxiv.org/abs/2404.08763) and TEAL (https://arxiv.org/abs/2408.14690), on the default model, whose neurons have
a gate, and on the small ReLU model of bytes. What is measured is in claims/. What can be known before the MLP is
computed is an experiment of its own, experiments/experiment_dejavu_predictors.py.

Tables, each row of a model with the loss of every evaluation window, so that models are compared window by window:

    dense          perplexity of the models as they are
    active         of each block: neurons that are not zero, those that carry 95 % of the energy, those never used
    neurons        a share of them kept: by oracle on the fly or recorded, by the embedding, the same for all tokens
    batch          the share of neurons that at least one of B sequences needs
    rounded        half of the neurons and weights on fewer bits, each alone and both together
"""

from functools import partial

from course_lib.lessons.dejavu.claims import active, batch, neurons, rounded
from course_lib.lessons.dejavu.claims.ground import GATED, RELU
from course_lib.lessons.dejavu.claims.sizes import QUICK, Sizes
from course_lib.measure.experiment import Experiment, Step


def steps(sizes: Sizes) -> list[Step]:
    """What the lesson needs most comes first."""
    plan = []
    for name in (GATED, RELU):
        plan.append(Step(f"{name}: dense", partial(active.dense, sizes, name)))
        for chosen_by, share in neurons.wanted(sizes):
            step = partial(neurons.kept, sizes, name, chosen_by, share)
            plan.append(Step(f"{name}: neurons by {chosen_by}, {share}", step))
        plan.append(Step(f"{name}: active", partial(active.active, sizes, name)))
        plan.append(Step(f"{name}: batch", partial(batch.union, sizes, name, sizes.batch_density)))
    for grid in rounded.GRIDS:
        for share in (1.0, sizes.few[0]):
            plan.append(Step(f"{grid}, {share} of the neurons", partial(rounded.rounded, sizes, GATED, grid, share)))
    return plan


EXPERIMENT = Experiment("Contextual sparsity by oracle", Sizes(), QUICK, steps)
