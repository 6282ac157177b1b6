"""What tells which neurons a token is about to need: trained predictors, copies on few bits, a search for neighbours.

The claims of Deja Vu (https://arxiv.org/abs/2310.17157) about prediction, on the default model, whose neurons have a
gate, and on the small ReLU model of bytes. What is measured is in lessons/dejavu/experiments/steps.

Tables:

    dense        perplexity of the models as they are
    training     each predictor: the share of its labels that are positive, the first and the last loss, seconds
    recall       of each block: the share of the labels that is found, and of the energy that is kept
    predicted    perplexity by what chooses, share of the neurons and distance in blocks; bytes beside the MLPs'
    head_training, head_recall, heads
                 the same of predictors of heads: losses, the share of the labels that is found, perplexity
    search       seconds of a search for the nearest rows in all blocks, beside the MLPs'

Minutes planned on two idle cores: copies 9, 120 predictors of the default model 10, what they choose 5, heads 3,
the search 1, the ReLU model 8: a good half hour. No step takes more than three minutes.
"""

from functools import partial

from course_lib.lessons.dejavu.experiments.steps import active, predicted, predictors, search
from course_lib.lessons.dejavu.experiments.steps.attention import predicted_heads
from course_lib.lessons.dejavu.experiments.steps.ground import GATED, RELU
from course_lib.lessons.dejavu.experiments.steps.sizes import QUICK, Sizes
from course_lib.measure.experiment import Experiment, Step

N_GROUPS = {GATED: 3, RELU: 1}  # of blocks


def steps(sizes: Sizes) -> list[Step]:
    """The predictors of a distance come before those of the next."""
    plan = []
    for name, densities, few in (
        (GATED, sizes.predicted, sizes.predicted_heads),
        (RELU, sizes.predicted_bytes, sizes.predicted_heads_bytes),
    ):
        plan.append(Step(f"{name}: dense", partial(active.dense, sizes, name)))
        for by in predicted.COPIES if name == GATED else predicted.ON_BYTES:
            plan += [
                Step(f"{name}: {by}, {share}", partial(predicted.copied, sizes, name, by, share)) for share in densities
            ]
        for ahead in sizes.lookaheads:
            plan += trained(sizes, name, ahead, densities)
        plan += of_heads(sizes, name, few)
    plan.append(Step("search", partial(search.search, sizes, GATED)))
    return [*plan, Step("clear", partial(predictors.end, sizes))]


def trained(sizes: Sizes, name: str, ahead: int, densities: tuple[float, ...]) -> list[Step]:
    """Training in pieces, and what came of it."""
    plan = [
        Step(f"{name}: train, {ahead} blocks before, part {part}", partial(predictors.train, sizes, name, ahead, part))
        for part in range(N_GROUPS[name])
    ]
    plan.append(Step(f"{name}: recall, {ahead} blocks before", partial(predictors.recall, sizes, name, ahead)))
    plan += [
        Step(
            f"{name}: predicted {ahead} blocks before, {share}",
            partial(predictors.predicted, sizes, name, ahead, share),
        )
        for share in densities
    ]
    return plan


def of_heads(sizes: Sizes, name: str, few: tuple[int, ...]) -> list[Step]:
    """Predictors of heads, and what they choose beside the oracle and one set for all tokens."""
    plan = [
        Step(f"{name}: train for heads", partial(predicted_heads.train, sizes, name)),
        Step(f"{name}: recall of heads", partial(predicted_heads.recall, sizes, name)),
    ]
    return plan + [
        Step(f"{name}: {n} heads, {by}", partial(predicted_heads.kept, sizes, name, n, by))
        for by in predicted_heads.CHOICES
        for n in few
    ]


EXPERIMENT = Experiment("Predicting which neurons a token needs", Sizes(), QUICK, steps)
