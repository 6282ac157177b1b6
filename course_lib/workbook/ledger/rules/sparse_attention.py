"""Lines of lesson 11."""

from functools import partial

from course_lib.lessons.sparse_attention.claims import clock, delta, drafts, prefill, steering, visual
from course_lib.workbook.ledger.record import Rule

_rule = partial(Rule, lesson="sparse_attention")
_steering = partial(_rule, results=("sparse_attention/experiments/steering",))

BOTH_KINDS = _rule(
    results=("sparse_attention/experiments/sparse_attention",),
    lines=lambda: prefill.heads(prefill.results()),
    line="both kinds of heads are there",
    effect="heads of the rarer kind, as a share of all",
    refuted="heads of one kind alone",
)
BY_SHARE = _rule(
    results=("sparse_attention/experiments/sparse_attention", "sparse_attention/experiments/sparse_attention_further"),
    lines=lambda: prefill.rivals(prefill.results()),
    line="at equal density FlexPrefill reads better than vertical-slash",
    effect="nats a token that lines of one number for every head lie above it",
    refuted="lines of one number for every head that read as well at equal density",
)
READ_FASTER = _rule(
    results=("bench/cpu_sparse_prefill",),
    lines=lambda: clock.verdicts(clock.results()),
    line="with blocks chosen, attention takes less time, at every length and γ",
    effect="logarithm of how many times as fast as dense attention, of 2048 to 8192 tokens, by length and γ",
    refuted="dense attention that takes no more time",
)
READ_AT_NO_LOSS = _rule(
    results=("sparse_attention/experiments/sparse_attention", "sparse_attention/experiments/sparse_attention_further"),
    lines=lambda: prefill.over_gamma(prefill.results()),
    line="FlexPrefill costs less than",
    effect="nats a token that its loss stays below 0.02 above dense attention, of 1024 to 4096 tokens, by length and γ",
    refuted="0.02 nats a token or more above dense attention",
)
NAMES_THE_KEY = _steering(
    lines=lambda: steering.named(steering.results()),
    line="the model names the key sentence more often than at random",
    effect="share of the questions above chance, by data",
    refuted="a share that is no better than chance",
)
STEERED = _steering(
    lines=lambda: steering.answers(steering.results()),
    line="steering to it is better than telling it (right answers",
    effect="share of the answers above prompting",
    refuted="as many right answers by telling the model which sentence counts",
)
KEYS_CHANGE_LITTLE = _rule(
    results=("sparse_attention/experiments/delta",),
    lines=lambda: delta.moved(delta.results()),
    line="neighbouring keys are less than half as far apart as any two",
    effect="of the squared distance of any two keys, below a half",
    refuted="neighbouring keys that are half as far apart as any two, or farther",
)
NOTHING_LOST = _rule(
    results=("sparse_attention/experiments/delta",),
    lines=lambda: delta.over_threshold(delta.results()),
    line="that is more than",
    effect="share left out, beyond 60 %, at clearly less than 0.02 nats a token",
    refuted="fewer products left out before the loss shows",
)
FEWER_LOADS = _rule(
    results=("sparse_attention/experiments/drafts",),
    lines=lambda: drafts.passes(drafts.results()),
    line="the weights are loaded fewer than 100 times for 100 tokens",
    effect="tokens a pass beyond one, by draft and kind of text",
    refuted="a draft of which no token stays",
)

_visual = partial(
    _rule,
    results=("sparse_attention/experiments/visual_tokens",),
    lines=lambda: visual.verdicts(visual.results()),
    effect="share of the questions answered more, by share of the tokens",
)
BOTH_SIGNALS = _visual(
    line="it answers more than attention alone at every share",
    refuted="a share of the tokens at which attention alone answers as much",
)
RECYCLED = _visual(
    line="it answers more with recycling than without at every share",
    refuted="a share of the tokens at which dropping them answers as much",
)
CALIBRATED = _visual(
    line="it answers more with calibration than with settings by hand at every share",
    refuted="a share of the tokens at which settings by hand answer as much",
)
A_TENTH = _visual(
    line="% of the tokens it answers at most",
    effect="share of the questions above what all tokens answer less that much",
    refuted="more lost with the fewest tokens than that",
)
