"""The claims of lesson 11: sparse prefill, delta-coded keys, steering, visual tokens and drafts."""

from collections.abc import Callable
from functools import partial
from typing import Any

from course_lib.lessons.common.claim import (
    COMPARABLE,
    DECENT,
    NO_LOSS,
    OTHER_LOSSES,
    PERCENT,
    POINTS,
    TIMES,
    WHY_NO_LOSS,
    WHY_OWN_NUMBER,
    Claim,
    Unit,
)
from course_lib.lessons.common.results import load_measured, load_published, rows
from course_lib.lessons.common.verdicts import HOLDS, Effect, Effects, decide_cases, of_examples
from course_lib.lessons.sparse_attention.estimates import clock, delta, drafts, prefill, steering, visual
from course_lib.lessons.sparse_attention.estimates.rows import joined
from course_lib.lessons.sparse_attention.experiments.items import READING, RESIDENTS
from course_lib.lessons.sparse_attention.experiments.steering import (
    ALL,
    ALL_SINK,
    CHOSEN,
    CONTROLS,
    LAYER,
    NAMED,
    NO_HEADS,
    NOTHING,
    PROMPTED,
    RANDOM,
    TRUE,
    WHOLE,
)

Measured = dict[str, Any]
SAVED = 0.6  # of the operations, as the abstract of DeltaLLM reports for the prefill of two larger models
LITTLE = 0.5  # of the squared distance of any two keys
SAME = 1e-3  # nats per token: decoding and reading at once add in another order
NEAR = 0.15  # log ratio of measured and predicted tokens per pass
TWICE = 2
FLEXPREFILL = "Lai and others (2025), arXiv:2502.20766"
DELTALLM = "Qi and others (2025), arXiv:2507.19608"
AUTOPASTA = "Zhang and others (2024), arXiv:2409.10790"
SPECULATIVE = "Leviathan, Kalman and Matias (2023), arXiv:2211.17192"
VFLOWOPT = "Yang and others (2025), arXiv:2508.05211"
FIRST, FURTHER, STEERING = (
    f"sparse_attention/experiments/{name}" for name in ("sparse_attention", "sparse_attention_further", "steering")
)

_claim = partial(Claim, unit=TIMES)


def _prefill(measure: Callable[[Measured], Effects], **record: Any) -> Claim:
    """A claim that needs the measurement of FlexPrefill and the one that continues it."""

    def of_both(*results: Measured) -> Effects:
        return measure(joined(*results))

    return _claim(results=(FIRST, FURTHER), measure=of_both, source=FLEXPREFILL, **record)


READ_AT_NO_LOSS = _prefill(
    prefill.costs,
    id="sparse_attention-read-at-no-loss",
    text="at every γ and length, FlexPrefill costs less than 0.05 nats per token (5 % of the perplexity)",
    below=NO_LOSS,
    because=WHY_NO_LOSS,
    other_thresholds=OTHER_LOSSES,
    quantity="perplexity over that of dense attention, by length and γ",
    refuted="0.05 nats per token or more above dense attention",
    larger_models=True,
)
LONGER_IS_SPARSER = _prefill(
    prefill.shrinking,
    id="sparse_attention-longer-is-sparser",
    text="the longer the text, the smaller the fraction of the blocks that is read",
    quantity="fraction of the blocks read at one length minus that at the next",
    refuted="a longer text of which as large a fraction is read",
    unit=POINTS,
)
NO_FLOOR = _prefill(
    prefill.costs_without_floor,
    id="sparse_attention-no-floor",
    text="with γ alone, without a minimum number of blocks per head, FlexPrefill costs less than 0.05 nats per token",
    below=NO_LOSS,
    because=WHY_NO_LOSS,
    other_thresholds=OTHER_LOSSES,
    quantity="perplexity over that of dense attention, by γ",
    refuted="0.05 nats per token or more above dense attention",
)
FLOOR_HELPS = _prefill(
    prefill.gains_of_floor,
    id="sparse_attention-floor-helps",
    text="at the same γ, perplexity is lower with a minimum number of blocks per head than without it",
    quantity="perplexity without the minimum over that with it, by γ",
    refuted="as low a perplexity without the minimum",
)


def _than_prior(measured: Measured) -> dict[str, Effect]:
    rivals = {"window with sinks": "StreamingLLM", "one budget for every head": "vertical-slash"}
    effects = {name: prefill.above_flex(measured, rule) for name, rule in rivals.items()}
    return {name: effect for name, effect in effects.items() if effect}


THAN_PRIOR = _prefill(
    _than_prior,
    id="sparse_attention-than-prior",
    text="at equal density, FlexPrefill has a lower perplexity than earlier sparse prefills",
    quantity="perplexity of a window with sinks, and of vertical and slash lines with one budget, over FlexPrefill's",
    refuted="an earlier sparse prefill with a perplexity as low at equal density",
)


def _rival(rule: str, name: str, what: str) -> Claim:
    return _prefill(
        partial(prefill.above_flex, rule=rule),
        id=f"sparse_attention-{name}",
        text=f"at equal density, FlexPrefill has a lower perplexity than {what}",
        quantity=f"perplexity of {what} over FlexPrefill's",
        refuted="a perplexity as low at equal density",
    )


THAN_WINDOW = _rival("StreamingLLM", "than-window", "a window with sinks")
BY_SHARE = _rival("vertical-slash", "by-share", "vertical and slash lines with one budget for every head")
THAN_RANDOM = _rival("random", "than-random", "random blocks")
RELEASED_READS_FEWER = _prefill(
    prefill.fewer_than_asked,
    id="sparse_attention-released-reads-fewer",
    text="the code as released reads fewer blocks than γ requires",
    quantity="fraction of the blocks that γ requires minus the fraction that the released code reads",
    refuted="released code that reads as many blocks",
    unit=POINTS,
)
RELEASED_IS_WORSE = _prefill(
    prefill.released_above_flex,
    id="sparse_attention-released-is-worse",
    text="the code as released has a higher perplexity than the rule of the paper",
    quantity="perplexity of the released code over that of the rule",
    refuted="released code with as low a perplexity",
)


def _show_kinds(measured: Measured) -> str:
    n, of = prefill.n_aware(measured)
    return f"{n} of {of} heads are query-aware on more than half of the texts"


_heads = partial(_claim, results=(FIRST,), source=FLEXPREFILL)
BOTH_KINDS = _heads(
    id="sparse_attention-both-kinds",
    text="the model has both kinds of heads that FlexPrefill distinguishes, query-aware heads and others",
    measure=prefill.rarer_kind,
    quantity="heads of the rarer kind, as a fraction of all heads",
    refuted="heads of one kind alone",
    criterion="heads of both kinds; the rule itself decides which kind a head is",
    unit=PERCENT,
    shown=_show_kinds,
)
EARLY_READ_MORE = _heads(
    id="sparse_attention-early-read-more",
    text="the first third of the layers reads a larger fraction of its blocks than the last third",
    measure=prefill.first_minus_last_third,
    quantity="fraction of the blocks read in the first third of the layers minus that in the last",
    refuted="a last third of the layers that reads as many of its blocks",
    unit=POINTS,
)
HEADS_DIFFER = _heads(
    id="sparse_attention-heads-differ",
    text="the densest tenth of the heads reads over twice as many blocks as the sparsest tenth",
    measure=prefill.densest_over_sparsest,
    above=TWICE,
    because="twice as many are what the course calls heads that differ",
    other_thresholds=(1.5, 3),
    quantity="blocks read by the densest tenth of the heads over those of the sparsest tenth",
    refuted="heads that differ by less than a factor of two",
    unit=Unit("times"),
)
GAMMA_CLAIMS = (READ_AT_NO_LOSS, LONGER_IS_SPARSER)
FLOOR_CLAIMS = (NO_FLOOR, FLOOR_HELPS)
RIVAL_CLAIMS = (THAN_WINDOW, BY_SHARE, THAN_RANDOM)
RELEASED_CLAIMS = (RELEASED_READS_FEWER, RELEASED_IS_WORSE)
HEAD_CLAIMS = (BOTH_KINDS, EARLY_READ_MORE, HEADS_DIFFER)

_clock = partial(_claim, results=("bench/cpu_sparse_prefill",), source=FLEXPREFILL)
READ_FASTER = _clock(
    id="sparse_attention-read-faster",
    text="attention that chooses its blocks is faster than dense attention at every length and γ",
    measure=partial(clock.speedups, side=clock.CHOSEN_AND_READ),
    quantity="time of dense attention over that of choosing and reading blocks, by length and γ",
    refuted="a length and γ at which dense attention takes no more time",
)
READ_FASTER_LONGEST = _clock(
    id="sparse_attention-read-faster-longest",
    text="on the longest texts it is faster at every γ",
    measure=clock.longest_speedups,
    quantity="time of dense attention over that of choosing and reading blocks, by γ",
    refuted="a γ at which dense attention takes no more time",
)
LOOP_THAN_FLEX = _clock(
    id="sparse_attention-loop-than-flex",
    text="a loop over the blocks is faster than compiled flex_attention",
    measure=clock.speedups_over_flex,
    quantity="time of flex_attention over that of the loop, by length and γ",
    refuted="a length and γ at which flex_attention takes no more time",
    source="",
)
WHOLE_FASTER = _clock(
    id="sparse_attention-whole-faster",
    text="the prefill of the whole model is faster",
    measure=partial(clock.speedups, side=clock.WHOLE),
    quantity="time of the dense prefill over that of the sparse one, by length and γ",
    refuted="a sparse prefill of the whole model that takes as long",
    larger_models=True,
)
AS_PROMISED = _clock(
    id="sparse_attention-as-promised",
    text="reading the chosen blocks alone is faster by more than 1 / density",
    measure=clock.speedups_over_promised,
    quantity="speedup of reading alone over 1 / density, by length and γ",
    refuted="a length and γ at which less time is saved than blocks are",
    source="",
)
CLOCK_CLAIMS = (READ_FASTER, READ_FASTER_LONGEST, LOOP_THAN_FLEX, WHOLE_FASTER, AS_PROMISED)

_on_a_gpu = partial(_claim, results=("bench/gpu_h200",), source=FLEXPREFILL)
READ_FASTER_ON_A_GPU = _on_a_gpu(
    id="sparse_attention-read-faster-on-a-gpu",
    text="on a GPU, attention that chooses its blocks is faster than dense attention at every length and density",
    measure=partial(clock.gpu_speedups, side=clock.ON_A_GPU),
    quantity="time of dense attention over that of choosing and reading blocks, by length, kind of heads and density "
    "(random numbers with planted blocks, attention of a layer of Llama-3-8B's shape)",
    refuted="a length and density at which dense attention takes no more time",
)
WHOLE_FASTER_ON_A_GPU = _on_a_gpu(
    id="sparse_attention-whole-faster-on-a-gpu",
    text="on a GPU, the prefill of the whole model is faster",
    measure=partial(clock.gpu_speedups, side=clock.WHOLE_ON_A_GPU),
    quantity="time of the dense prefill over that of the sparse one, by length (a model of Llama-3-8B's shape with "
    "random weights, a density of about 0.3)",
    refuted="a length at which the dense prefill takes no more time",
)
GPU_CLOCK_CLAIMS = (READ_FASTER_ON_A_GPU, WHOLE_FASTER_ON_A_GPU)


def _published_saving() -> str:
    found = rows(load_published("sparse_attention"), "deltallm")
    savings = {f"{100 * row['prefill']:.0f} %" for row in found}
    return f"{', '.join(sorted(savings))} in the prefill ({', '.join(row['model'] for row in found)})"


_delta = partial(_claim, results=("sparse_attention/experiments/delta",), source=DELTALLM)
NOTHING_LOST = _delta(
    id="sparse_attention-nothing-lost",
    text="deltas between keys leave out over 60 % of the operations of QKᵀ for less than 0.05 nats per token",
    measure=delta.left_out,
    shown=lambda measured: (
        f"{PERCENT(delta.left_out(measured))}, the largest that costs significantly less than 5 % more perplexity, of "
        f"{delta.fractions_and_costs(measured)}"
    ),
    above=SAVED,
    because=WHY_OWN_NUMBER,
    other_thresholds=(0.3, 0.5),
    quantity="the largest fraction left out at significantly less than 0.05 nats per token",
    refuted="fewer operations left out before the loss shows",
    unit=PERCENT,
    published=_published_saving,
    larger_models=True,
)
KEYS_CHANGE_LITTLE = _delta(
    id="sparse_attention-keys-change-little",
    text="the squared distance of neighbouring keys is less than half of that of any two keys",
    measure=delta.distance,
    below=LITTLE,
    because="half of the distance of any two keys is what the course calls little",
    other_thresholds=(0.25, 0.75),
    quantity="squared distance of neighbouring keys over that of any two, mean over layers",
    refuted="neighbouring keys that are half as far apart as any two, or farther",
    unit=PERCENT,
)
WINDOW_HELPS, EXACT_SINKS_HELP, AFTER_ROPE = (
    _delta(
        id=f"sparse_attention-{name}",
        text=f"at the same threshold, perplexity is lower with {better} than with {worse}",
        measure=partial(delta.cost_of_change, **change),
        quantity=f"perplexity with {worse} over that with {better}, by threshold",
        refuted=f"a threshold at which {worse} cost no more",
    )
    for name, better, worse, change in (
        ("window-helps", "a window of exact keys", "no exact keys", {"window": 1}),
        ("exact-sinks-help", "exact sinks", "coded sinks", {"sinks": 0}),
        ("after-rope", "keys coded after RoPE", "keys coded before it", {"side": "before"}),
    )
)
DECODED_ALIKE = _delta(
    id="sparse_attention-decoded-alike",
    text="decoding token by token differs from reading at once by less than 0.001 nats per token in every window",
    measure=delta.decoding_difference,
    below=SAME,
    because="0.001 nats are well above what rounding in float32 changes",
    other_thresholds=(0.0001, 0.01),
    quantity="the largest difference of any window",
    refuted="a window that decodes to another loss",
    unit=Unit("nats per token"),
)
VARIANT_CLAIMS = (WINDOW_HELPS, EXACT_SINKS_HELP, AFTER_ROPE)

_drafts = partial(_claim, results=("sparse_attention/experiments/drafts",), source=SPECULATIVE)
MORE_STAY = _drafts(
    id="sparse_attention-more-stay",
    text="more of the drafted tokens are accepted where a text is copied than on running text",
    measure=drafts.copied_minus_running,
    quantity="α where a text is copied minus α on running text, by draft",
    refuted="a draft of which no more tokens are accepted where a text is copied",
    unit=POINTS,
)
FEWER_LOADS = _drafts(
    id="sparse_attention-fewer-loads",
    text="with a draft, the model's weights are loaded fewer than 100 times for 100 tokens",
    measure=drafts.tokens_per_pass,
    above=1,
    because="one token per pass is decoding without a draft",
    quantity="tokens per pass of the model, by draft and kind of text",
    refuted="a draft of which no token is accepted",
    unit=Unit("tokens per pass"),
)


def _more_than_one(measured: Measured) -> dict[str, Effect]:
    return {case: effect.above(1) for case, effect in drafts.tokens_per_pass(measured).items()}


def _show_drafts(measured: Measured) -> str:
    found = list(decide_cases(_more_than_one(measured)).values())
    most = max(effect.value for effect in drafts.tokens_per_pass(measured).values())
    return f"{found.count(HOLDS)} of {len(found)} drafts and texts; at best {most:.2f} tokens per pass"


CAN_LOAD_FEWER = _drafts(
    id="sparse_attention-can-load-fewer",
    text="with some draft, the model's weights are loaded fewer than 100 times for 100 tokens",
    measure=lambda measured: of_examples(_more_than_one(measured)),
    shown=_show_drafts,
    criterion="one draft is enough to answer 'is it possible'; one token per pass is decoding without a draft",
    quantity="fraction of the drafts and texts with more than one token per pass",
    refuted="drafts of which no token is accepted",
    unit=PERCENT,
)
ALPHA_PREDICTS = _drafts(
    id="sparse_attention-alpha-predicts",
    text="on running text, α predicts the number of tokens per pass within 15 %",
    measure=drafts.prediction_errors,
    below=NEAR,
    because="15 % is what the course calls a useful prediction",
    other_thresholds=(0.05, 0.3),
    quantity="the larger over the smaller of the measured and the predicted number, by draft",
    refuted="a draft whose number of tokens per pass is off by 15 % or more",
)
FEWER_BYTES = _drafts(
    id="sparse_attention-fewer-bytes",
    text="with the draft's own bytes counted, fewer bytes are read per token (oracle drafts left out)",
    measure=drafts.byte_savings,
    above=1,
    because="as many bytes as without a draft",
    quantity="bytes read without a draft over those read with it, by draft and kind of text",
    refuted="a draft with which as many bytes are read",
    unit=Unit("times"),
)
PASS_CLAIMS = (FEWER_LOADS, ALPHA_PREDICTS, FEWER_BYTES)


def _steering(measure: Callable[..., Effects], further: bool = True, **record: Any) -> Claim:
    """A claim on steering, from the first measurement alone or with the one that continues it."""

    def of_both(*results: Measured) -> Effects:
        return measure(joined(*results))

    results = (STEERING, FURTHER) if further else (STEERING,)
    record = {"source": AUTOPASTA, "unit": POINTS, "larger_models": True} | record
    return Claim(results=results, measure=of_both, **record)


NAMES_THE_KEY = _steering(
    steering.named_above_chance,
    id="sparse_attention-names-the-key",
    text="the model names the key sentence more often than chance",
    quantity="fraction of the questions for which it names the key sentence minus chance, by data",
    refuted="a fraction that is no better than chance",
)
_PLAIN, _STEERED = (NO_HEADS, NOTHING), (CHOSEN, TRUE)
COMPARISONS = {  # what is claimed: with what, and compared with what
    "told": ("it answers better when the prompt names the key sentence", (PROMPTED, TRUE), _PLAIN),
    "all-heads": ("steering all heads to the key sentence improves its answers", (ALL, TRUE), _PLAIN),
    "chosen-heads": ("steering the chosen heads to the key sentence improves its answers", _STEERED, _PLAIN),
    "steered": ("steering to the key sentence is better than naming it in the prompt", _STEERED, (PROMPTED, TRUE)),
    "than-random-sentence": ("steering to the key is better than to a random sentence", _STEERED, (CHOSEN, RANDOM)),
    "than-whole": ("steering to the key is better than to the whole context", _STEERED, (CHOSEN, WHOLE)),
    "self-named": ("steering to the sentence that it named itself improves its answers", (CHOSEN, NAMED), _PLAIN),
    "chosen-than-all": ("steering the chosen heads is better than steering all heads", _STEERED, (ALL, TRUE)),
    "chosen-than-layer": ("steering the chosen heads is better than steering the best layer", _STEERED, (LAYER, TRUE)),
    "spared-sink": ("with all heads it is better to spare the first token", (ALL, TRUE), (ALL_SINK, TRUE)),
}


def _compared(data: str, name: str, suffix: str) -> tuple[Claim, Claim]:
    """A comparison on one kind of question: by right answers, and by the log-probability of the right answer."""
    text, better, worse = COMPARISONS[name]
    conditions = {"data": data, "better": better, "worse": worse}
    further = data == READING or bool({better, worse} & set(CONTROLS))
    record = {"further": further, "text": f"{data}: {text}", "refuted": "answers that are no better"}
    right = _steering(
        partial(steering.gain, **conditions),
        id=f"sparse_attention-{name}{suffix}",
        quantity="right answers under the first condition minus those under the second",
        **record,
    )
    likely = _steering(
        partial(steering.gain_of_likelihood, **conditions),
        id=f"sparse_attention-{name}{suffix}-likelihood",
        quantity="log-probability of the right answer, the first condition minus the second",
        unit=Unit("nats per answer", signed=True),
        **record,
    )
    return right, likely


ANSWER_CLAIMS = {  # pairs of claims, by data; on SciQ fewer conditions were measured
    RESIDENTS: [_compared(RESIDENTS, name, "") for name in COMPARISONS],
    READING: [_compared(READING, name, "-reading") for name in list(COMPARISONS)[:7]],
}
STEERED, _ = ANSWER_CLAIMS[RESIDENTS][list(COMPARISONS).index("steered")]


def _named_steered(measured: Measured) -> dict[str, Effect]:
    """By data: steered to the sentence that the model named, minus the prompt that names the same sentence."""
    pair = {"better": (CHOSEN, NAMED), "worse": (PROMPTED, NAMED)}
    gains = {data: steering.gain(measured, data, **pair) for data in (RESIDENTS, READING)}
    return {data: effect for data, effect in gains.items() if effect}


NAMED_STEERED = _steering(
    _named_steered,
    id="sparse_attention-named-steered",
    text="steering to the sentence that the model itself named is better than naming the same sentence in the prompt",
    quantity="right answers when steered minus those when prompted, by data",
    refuted="data on which the prompt alone does as well",
    larger_models=False,
)


def _published_kept() -> str:
    (row,) = rows(load_measured("sparse_attention", "published_visual"), "vflowopt_kept", share=0.1)
    return f"{100 * row['of_all']:.1f} % of the score of all tokens (LLaVA-OneVision, table 1)"


def _published_part(part: str) -> str:
    found = rows(load_measured("sparse_attention", "published_visual"), "vflowopt_parts")
    score = {row["what"]: row["mmstar"] for row in found}
    return f"{score['VFlowOpt'] - score[f'without {part}']:+.1f} percentage points (MMStar, 25 % of the tokens)"


def _ahead(of: str, measured: Measured) -> Effects:
    return visual.by_share(visual.ahead(measured, of))


def _part(part: str, measured: Measured) -> Effects:
    return visual.by_share(visual.parts(measured)[part])


_visual = partial(
    Claim,
    results=("sparse_attention/experiments/visual_tokens",),
    source=VFLOWOPT,
    unit=POINTS,
    larger_models=True,
)
A_TENTH = _visual(
    id="sparse_attention-a-tenth",
    text="with the fewest visual tokens (10 %), VFlowOpt keeps at least 97 % of the right answers with all tokens",
    measure=visual.kept,
    above=1 - COMPARABLE,
    because="comparable means at most 3 of 100 right answers fewer; the paper's own table has 85.5 %",
    other_thresholds=(0.95, 0.9, 0.85),
    unit=PERCENT,
    quantity="right answers over those with all tokens",
    refuted="over 3 % of the right answers lost with the fewest tokens",
    published=_published_kept,
    larger_models=False,
)
ATTENTION_ALONE = _visual(
    id="sparse_attention-attention-alone",
    text="with the fewest visual tokens (10 %), attention alone keeps less than 90 % of the right answers",
    measure=partial(visual.kept, method="attention alone"),
    below=DECENT,
    because="to degrade substantially is to lose more than a tenth; the source names no number",
    other_thresholds=(0.8, 0.5),
    unit=PERCENT,
    quantity="right answers over those with all tokens",
    refuted="a tenth or less of the right answers lost by attention alone",
    larger_models=False,
)
_answers_more = partial(_visual, quantity="right answers minus those of the other way, by fraction of the tokens")
BOTH_SIGNALS, THAN_ENTROPY, THAN_RANDOM_TOKENS = (
    _answers_more(
        id=f"sparse_attention-{name}",
        text=f"at every fraction of the tokens, VFlowOpt answers more than {what}",
        measure=partial(_ahead, other),
        refuted=f"a fraction of the tokens at which {what} answers as much",
    )
    for name, other, what in (
        ("both-signals", "attention alone", "attention alone"),
        ("than-entropy", "entropy alone", "entropy alone"),
        ("than-random-tokens", "random", "a random choice"),
    )
)
RECYCLED, STAGES, ENTROPY, ATTENTION, SCORE = (
    _answers_more(
        id=f"sparse_attention-{name}",
        text=f"at every fraction of the tokens, VFlowOpt answers more with {part} than without",
        measure=partial(_part, part),
        refuted=f"a fraction of the tokens at which it answers as much without {part}",
        published=partial(_published_part, part) if part in ("recycling", "stages") else "",
    )
    for name, part in zip(("recycled", "stages", "entropy", "attention", "score"), visual.PARTS, strict=True)
)
CALIBRATED = _answers_more(
    id="sparse_attention-calibrated",
    text="at every fraction of the tokens, VFlowOpt answers more with calibration than with settings by hand",
    measure=partial(_ahead, visual.BY_HAND),
    refuted="a fraction of the tokens at which settings by hand answer as much",
    published=partial(_published_part, "calibration"),
)
VISUAL_CLAIMS = (
    A_TENTH,
    BOTH_SIGNALS,
    THAN_ENTROPY,
    THAN_RANDOM_TOKENS,
    RECYCLED,
    STAGES,
    ENTROPY,
    ATTENTION,
    SCORE,
    CALIBRATED,
)
