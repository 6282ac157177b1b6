"""Lines of lesson 09."""

from functools import partial

from course_lib.lessons.dejavu.tables import changes, found, further, measured, parts, predicted
from course_lib.workbook.ledger.record import Rule

_rule = partial(Rule, lesson="dejavu", results=("dejavu/measured",))
_predicted = partial(_rule, results=("dejavu/experiments/dejavu_predictors",))
_exists = partial(
    _rule, lines=lambda: measured.exists(found.results()), effect="nats a token below a loss of 0.05, by model"
)
_contextual = partial(_rule, lines=lambda: measured.contextual(found.results()))
_predictors = partial(_predicted, lines=lambda: predicted.predictable(found.predictions()))
_slow = partial(_rule, lines=lambda: changes.slow(found.results()))

FEW_HEADS = _exists(
    line="few heads, by oracle",
    refuted="a fifth of the heads, chosen by an oracle, that cost over 0.05 nats",
)
FEW_NEURONS = _exists(
    line="few neurons, by oracle",
    refuted="a twentieth of the neurons, chosen by an oracle, that cost over 0.05 nats",
)
FEW_OF_BOTH = _exists(
    line="few of both, by oracle",
    refuted="both together, a seventh of the weights or less, that cost over 0.05 nats",
)
CONTEXT_HELPS = _contextual(
    line="a token's own neurons are better than those of the token alone",
    effect="nats a token below a choice by the token alone, by model and share",
    refuted="a choice by the token without its context that reads as well",
)
RELU_ZEROS = _rule(
    lines=lambda: measured.active(found.results()),
    line="behind ReLU, more than 85 % of the values are zero",
    effect="share of the values beyond 0.85",
    refuted="15 % or more of the values behind ReLU that are not zero",
)
HEADS_DIFFER = _rule(
    lines=lambda: parts.heads(found.results()),
    line="each token's own heads are better than the same for all",
    effect="nats a token below one set of heads, by number kept",
    refuted="one set of heads for all tokens that reads as well",
)
SLOW = _slow(
    line="behind the first, most blocks leave a cosine above 0.95",
    effect="share of the blocks beyond three quarters, by model",
    refuted="a model with a quarter of its blocks or more below a cosine of 0.95",
)
RESIDUAL_DOMINATES = _slow(
    line="behind the first, most MLPs add less than half the length",
    effect="share of the blocks beyond three quarters, by model",
    refuted="a model with a quarter of its MLPs or more that add over half of the residual's length",
)
NEAREST = _predicted(
    lines=lambda: predicted.search(found.predictions()),
    line="a search for the nearest rows takes longer than the MLP",
    effect="log of the seconds over the MLP's, by way to search",
    refuted="a search that is faster than the MLP it is to save",
)
PREDICTOR_GATED = _predictors(
    line="a trained predictor chooses better than one set for all tokens, SmolLM2",
    effect="nats a token below one set for all, by share",
    refuted="one set of neurons for all tokens that reads as well, gated model",
)
PREDICTOR_RELU = _predictors(
    line="a trained predictor chooses better than one set for all tokens, ReLU model",
    effect="nats a token below one set for all, by share",
    refuted="one set of neurons for all tokens that reads as well, ReLU model",
)
PREDICTOR_CHEAP = _predictors(
    line="a trained predictor costs less than 0.02 nats, ReLU model",
    effect="nats a token below a loss of 0.02, by share",
    refuted="predictors that cost over 0.02 nats on the ReLU model",
)
PREDICTED_HEADS = _predicted(
    lines=lambda: parts.predicted_heads(found.predictions()),
    line="a trained predictor chooses heads better than one set for all tokens, SmolLM2",
    effect="nats a token below one set of heads",
    refuted="one set of heads for all tokens that reads as well",
)
AHEAD = _predicted(
    lines=lambda: predicted.lookahead(found.predictions()),
    line="a lookahead of 1 costs less than 0.01 of the recall",
    effect="of the recall below a loss of 0.01, by model",
    refuted="predictors that read one block earlier and find over 0.01 less",
)
BATCH = _rule(
    lines=lambda: parts.batch(found.results()),
    line="4 sequences together need less than half of the neurons",
    effect="share of the neurons below a half, by model",
    refuted="four sequences that together need half of the neurons or more",
)
ROUNDED = _rule(
    lines=lambda: parts.rounded(found.results()),
    line="rounding makes the choice dearer by less than 0.02 nats",
    effect="nats a token below 0.02 more than without rounding, by grid",
    refuted="a grid on which the choice of neurons costs over 0.02 nats more",
)
TWICE = _rule(
    results=("bench/cpu_contextual_relu",),
    lines=further.twice,
    line="with predictors the ReLU model decodes over 2 times as fast",
    effect="log of the dense time over that with predictors, beyond 2 times, by share",
    refuted="a share of the neurons at which decoding is less than twice as fast",
)
ONE_KERNEL = _rule(
    results=("bench/gpu_h200",),
    lines=further.one_kernel,
    line="on a GPU, one kernel takes less time than rows gathered first",
    effect="log of the time to gather first over that of one kernel, by density and tokens; rows lie together in both",
    refuted="a density and a number of tokens at which gathering first takes no longer",
)
BATCH_NEEDS_MORE = _rule(
    lines=lambda: further.batch_needs_more(found.results()),
    line="4 sequences together need over twice the neurons of one",
    effect="share of the neurons beyond twice those of one sequence, by model",
    refuted="a batch that needs no more than twice the neurons of one sequence",
)
