"""Predicting the neurons that a token needs: trained predictors, copies with few bits, a nearest-neighbor search.

The claims of Deja Vu (https://arxiv.org/abs/2310.17157) about prediction, on the default model, whose MLPs are gated,
and on the small ReLU model of bytes.

Tables:

    dense        perplexity of the dense models
    training     by predictor: the fraction of positive labels, the first and the last loss, seconds
    recall       by block: the fraction of the labels that is found, and of the energy that is kept
    predicted    perplexity by selector, density and lookahead in blocks; bytes of the selector and of the MLPs
    head_training, head_recall, heads
                 the same for predictors of heads: losses, recall, perplexity
    search       seconds of a search for the nearest rows in all blocks, and of the MLPs

Planned minutes on two idle cores: copies 9, 120 predictors of the default model 10, their use 5, heads 3, the search 1,
the ReLU model 8: a good half hour. No step takes more than three minutes.
"""

from functools import partial

from course_lib.lessons.dejavu.experiments import oracle, predicted_heads, search, trained
from course_lib.lessons.dejavu.experiments.ground import GATED, QUICK, RELU, Sizes
from course_lib.measure.experiment import Experiment, Step

N_GROUPS = {GATED: 3, RELU: 1}  # of blocks


def steps(sizes: Sizes) -> list[Step]:
    """List all steps, by lookahead."""
    plan = []
    for name, densities, few in (
        (GATED, sizes.predicted, sizes.predicted_heads),
        (RELU, sizes.predicted_bytes, sizes.predicted_heads_bytes),
    ):
        plan.append(Step(f"{name}: dense", partial(oracle.dense, sizes, name)))
        for by in trained.COPIES if name == GATED else trained.ON_BYTES:
            plan += [
                Step(f"{name}: {by}, {share}", partial(trained.copied, sizes, name, by, share)) for share in densities
            ]
        for ahead in sizes.lookaheads:
            plan += of_predictors(sizes, name, ahead, densities)
        plan += of_heads(sizes, name, few)
    plan.append(Step("search", partial(search.search, sizes, GATED)))
    return [*plan, Step("clear", partial(trained.end, sizes))]


def of_predictors(sizes: Sizes, name: str, ahead: int, densities: tuple[float, ...]) -> list[Step]:
    """List the training in pieces, the recall, and the loss of the model."""
    plan = [
        Step(f"{name}: train, {ahead} blocks before, part {part}", partial(trained.train, sizes, name, ahead, part))
        for part in range(N_GROUPS[name])
    ]
    plan.append(Step(f"{name}: recall, {ahead} blocks before", partial(trained.recall, sizes, name, ahead)))
    plan += [
        Step(
            f"{name}: predicted {ahead} blocks before, {share}",
            partial(trained.predicted, sizes, name, ahead, share),
        )
        for share in densities
    ]
    return plan


def of_heads(sizes: Sizes, name: str, few: tuple[int, ...]) -> list[Step]:
    """List the steps on predictors of heads, compared with the oracle and a static set."""
    plan = [
        Step(f"{name}: train for heads", partial(predicted_heads.train, sizes, name)),
        Step(f"{name}: recall of heads", partial(predicted_heads.recall, sizes, name)),
    ]
    return plan + [
        Step(f"{name}: {n} heads, {by}", partial(predicted_heads.kept, sizes, name, n, by))
        for by in predicted_heads.CHOICES
        for n in few
    ]


EXPERIMENT = Experiment("Predicting the neurons of a token", Sizes(), QUICK, steps)
