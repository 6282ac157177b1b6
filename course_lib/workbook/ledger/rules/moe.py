"""Lines of lesson 06."""

from functools import partial

from course_lib.lessons.common.tables import load_measured
from course_lib.lessons.moe import kept
from course_lib.lessons.moe.tables import classic, compared, further, measured
from course_lib.workbook.ledger.record import Rule

_rule = partial(Rule, lesson="moe", results=("moe/measured",), effect="nats a byte lower, by seed")
_both = partial(_rule, results=("moe/measured", "moe/experiments/moe_routers"))
_classic = partial(_rule, results=("moe/experiments/moe_classic",))


def _of_classic(lines):
    return lambda: lines(load_measured("moe", "experiments/moe_classic"))


ONE_OF_EIGHT = _rule(
    lines=lambda: compared.experts(load_measured("moe")),
    line="one of 8 experts reads better than as many FLOP without",
    refuted="a seed with which the dense model of as many products reads as well",
)
COLLAPSE = _rule(
    lines=lambda: measured.collapse(load_measured("moe"), "top-1", 1),
    line="most blocks collapse so",
    effect="share of the blocks above a half in which one expert has most choices, by seed",
    refuted="at least half of the blocks without such an expert",
)
BALANCED_TOP_1 = _rule(
    lines=lambda: compared.balancing(load_measured("moe")),
    line="balancing lowers the loss of top-1",
    refuted="a loss with the balance loss that is no lower",
)
JITTER = _both(
    lines=lambda: compared.jitter(kept.both()),
    line="jitter lowers the loss",
    refuted="a seed with which noise on the router's inputs lowers nothing",
)
Z_SMALLER = _both(
    lines=lambda: compared.z_loss(kept.both()),
    line="the z-loss makes the largest |h| smaller",
    effect="the largest logit, smaller by",
    refuted="logits as large with the z-loss as without",
)
VOWELS_ALONE = _classic(
    lines=_of_classic(classic.vowel_claims),
    line="experts of the mixture error can be used alone, blended ones cannot",
    effect="accuracy of the likeliest expert alone, above that of blended experts",
    refuted="experts of the blended error that are as right alone",
)
EM_CLIMBS = _classic(
    lines=_of_classic(classic.arms),
    line="no step of EM lowers the likelihood",
    effect="share of the runs beyond all but half a run",
    refuted="one step after which the likelihood is lower",
)
RECURRENT = _classic(
    lines=_of_classic(classic.recurrent),
    line="4 of 16 experts between two LSTMs read better",
    effect="nats a byte below as many dense neurons, by seed",
    refuted="a seed with which the dense layer between the LSTMs reads as well",
)
DECOUPLED = _rule(
    lines=lambda: further.decoupled(load_measured("moe")),
    line="experts have over 3 times the weights",
    effect="of the dense model's weights beyond 3 times, and of its products below 1.05 times",
    refuted="experts with as few weights, or with more products, than that",
)
SPARSE_MIXER = _rule(
    results=("moe/experiments/moe_gradients",),
    lines=lambda: further.mixer_bias(load_measured("moe", "experiments/moe_gradients")),
    line="SparseMixer is less biased than the product",
    effect="of the gradient's size, less bias, by kind of loss",
    refuted="a kind of loss with which the product's mean is as near",
)
