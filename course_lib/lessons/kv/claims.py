"""The claims of lesson 07 on attention and on small key-value caches, from papers and lectures."""

from collections.abc import Callable
from functools import partial
from math import log
from statistics import fmean, median
from typing import Any

from course_lib.lessons.common.cache_speed import EVERYTHING
from course_lib.lessons.common.claim import (
    HARMED,
    MOST,
    NO_LOSS,
    NUMBER,
    OTHER_HARMS,
    OTHER_LOSSES,
    OTHER_MAJORITIES,
    PERCENT,
    POINTS,
    TIMES,
    WHY_HARMED,
    WHY_MOST,
    WHY_NO_LOSS,
    WHY_OWN_NUMBER,
    Claim,
    Unit,
)
from course_lib.lessons.common.effects import Row, accuracy_gap, share_above
from course_lib.lessons.common.results import load_published, percent, rows
from course_lib.lessons.common.verdicts import Effect, of_samples
from course_lib.lessons.kv import estimates, gpu_speed
from course_lib.lessons.kv.experiments.answers import EVERY_4_STEPS
from course_lib.lessons.kv.experiments.settings import WITHOUT_MERGING

Measured = dict[str, Any]
ALMOST_ALL = 0.95  # of the layers
FIVE, SMALLER, LATENCY, SLOWER = 5, 20, 1.9, 1.1  # times
THROUGHPUT, OFFLOADING = 3, 29  # times
NEEDLES = 0.95
STRONG = 0.5  # of a rank correlation
RIVALS = ("StreamingLLM", "H2O", "SnapKV", "TOVA")  # Scissorhands holds half of EMS's bytes, D2O more than EMS
LIBRARY = "DynamicCache"
SPARSE_WEIGHTS = estimates.SPARSE
H2O = "Zhang and others (2023), arXiv:2306.14048"
SCISSORHANDS = "Liu and others (2023), arXiv:2305.17118"
EMS = "Li and others (2024), arXiv:2412.08521"
D2O = "Wan and others (2024), arXiv:2406.13035"
RECYCLED = "Xu and others (2024), arXiv:2411.05787"
STREAMING_LLM = "Xiao and others (2023), arXiv:2309.17453"

CORRELATION = Unit("", signed=True)
OF_LAYERS = Unit("% of the layers", scale=100)
_claim = partial(Claim, results=("kv/measured",), unit=TIMES)
_further = partial(_claim, results=("kv/kv_further",))  # one text per article
_heavy = partial(_claim, results=("kv/heavy",), source=H2O)
_clock = partial(_claim, results=("bench/cpu_kv",))
_gpu = partial(_claim, results=("bench/gpu_h200",))
_without_loss = partial(
    _claim,
    below=NO_LOSS,
    because=WHY_NO_LOSS,
    other_thresholds=OTHER_LOSSES,
    quantity="perplexity over that of the full cache",
    refuted="5 % more perplexity, or more",
)
_harmed = partial(_claim, above=HARMED, because=WHY_HARMED, other_thresholds=OTHER_HARMS)


def _published(words: str, template: str) -> str:
    """The paper's number on the line with these words of published.json, in a sentence."""
    (value,) = (row["value"] for row in rows(load_published("kv"), "claims") if words in row["claim"])
    return template.format(value=value, percent=f"{100 * value:.0f} %")


def _of_layers(hold: Callable[[Measured], list[bool]], measured: Measured) -> Effect:
    """The fraction of all layers in which something holds: counted, on n texts."""
    return estimates.counted(fmean(hold(measured)), measured)


def _counted(hold: Callable[[Measured], list[bool]], measured: Measured) -> str:
    held = hold(measured)
    return f"{sum(held)} of {len(held)} layers"


def _layers(hold: Callable[[Measured], list[bool]], **record: Any) -> Claim:
    """A claim that is counted layer by layer, and has to hold in more than half of them."""
    record = {"above": MOST, "because": WHY_MOST, "other_thresholds": OTHER_MAJORITIES} | record
    record = {"shown": partial(_counted, hold)} | record
    return _further(measure=partial(_of_layers, hold), quantity="of the layers", unit=OF_LAYERS, **record)


def _mean_sparsity(measured: Measured) -> Effect:
    return of_samples([fmean(text) for text in estimates.sparsity_by_text(measured)])


def _show_sparse(measured: Measured) -> str:
    return f"{_counted(estimates.is_sparse, measured)}, {PERCENT(_mean_sparsity(measured))} of the weights on average"


def _show_power_law(measured: Measured) -> str:
    first, *_ = layers = estimates.layers(measured)
    slope = median(row["slope"] for row in layers)
    ranks = f"ranks {first['first_rank']} to {first['last_rank']} of {first['length']}"
    heavy, log_normal = (_counted(fit, measured) for fit in (estimates.is_heavy_tailed, estimates.beats_log_normal))
    return (
        f"{_counted(estimates.follows_power_law, measured)} ({ranks}; median exponent {slope:.2f}); better than an "
        f"exponential in {heavy}, than a log-normal in {log_normal}"
    )


def _show_persistence(measured: Measured) -> str:
    found = estimates.layers(measured)
    mean, chance, any_query, any_chance = (
        percent(fmean(row[column] for row in found))
        for column in ("persistence_mean", "pivotal_mean", "persistence_any", "pivotal_any")
    )
    return (
        f"{_counted(estimates.is_persistent, measured)}, {mean} on average ({chance} by chance). By the paper's count "
        f"a single query is enough: {any_query} ({any_chance} by chance)"
    )


def _show_smaller(measured: Measured) -> str:
    row = estimates.smallest_cache(measured, "Scissorhands", FIVE)
    (full,) = rows(measured, "compressed", policy=estimates.FULL)
    loss = TIMES(estimates.loss_of_smaller_cache(measured, FIVE))
    return f"{loss} the perplexity with a cache {full['bytes'] / row['bytes']:.1f} times smaller"


SPARSE = _layers(
    estimates.is_sparse,
    id="kv-sparse",
    text="over 95 % of the attention weights are negligible in almost all layers (in more than 95 % of them)",
    above=ALMOST_ALL,
    because="almost all means more than 95 %",
    other_thresholds=(0.9, MOST),
    refuted="fewer than 95 % of the layers with over 95 % of their weights below a hundredth of the row's largest",
    source=H2O,
    shown=_show_sparse,
    published=partial(_published, "attention sparsity", "over {percent} in almost all layers (OPT)"),
    larger_models=True,
)
MEAN_SPARSITY = _further(
    id="kv-mean-sparsity",
    text="over 95 % of the attention weights are negligible, on average over the layers",
    measure=_mean_sparsity,
    above=SPARSE_WEIGHTS,
    because=WHY_OWN_NUMBER,
    other_thresholds=(0.9,),
    unit=PERCENT,
    quantity="of the weights, mean of the layers",
    refuted="at least a twentieth of the weights that are not negligible",
    source=H2O,
    larger_models=True,
)
MOSTLY_SPARSE = _layers(
    estimates.is_mostly_sparse,
    id="kv-mostly-sparse",
    text="in most layers most of the attention weights are negligible",
    refuted="half of the layers or more in which at least half of the weights are not negligible",
    source=H2O,
)
POWER_LAW = _layers(
    estimates.follows_power_law,
    id="kv-power-law",
    text="in most layers the attention that tokens receive falls like a power of their rank (r² above 0.95)",
    refuted="half of the layers or more in which a power law explains less than 95 % of the variance",
    source=H2O,
    shown=_show_power_law,
)
THAN_LOG_NORMAL = _layers(
    estimates.beats_log_normal,
    id="kv-than-log-normal",
    text="in most layers a power law fits the attention that tokens receive better than a log-normal distribution",
    refuted="half of the layers or more in which a log-normal distribution fits better",
    source=H2O,
)
PERSISTENCE = _layers(
    estimates.is_persistent,
    id="kv-persistence",
    text="in most layers over 95 % of the tokens that matter later, to the mean of the queries, mattered before",
    refuted="half of the layers or more in which over 5 % of the tokens that matter later did not matter before",
    source=SCISSORHANDS,
    shown=_show_persistence,
    published=partial(_published, "persistence", "over {percent} in most layers (larger models)"),
)
_in_even_shares = partial(
    _further,
    above=2,
    because="twice an even share is what the course calls much attention",
    other_thresholds=(3, 5, 10),
    unit=Unit("times an even share"),
)
FIRST_TOKEN = _in_even_shares(
    id="kv-first-token",
    text="the first token receives over twice an even share of the attention",
    measure=estimates.first_token_in_even_shares,
    quantity="median of the layers",
    refuted="a median layer in which it receives at most twice an even share",
    source=STREAMING_LLM,
)
FIRST_TOKEN_WEIGHT = _further(
    id="kv-first-token-weight",
    text="the first token receives over a tenth of all attention",
    measure=estimates.first_token_weight,
    above=0.1,
    because="a tenth is what the course calls a considerable part of the denominator",
    other_thresholds=(0.25, 0.5),
    unit=PERCENT,
    quantity="of all attention, median of the layers",
    refuted="a median layer in which it receives at most a tenth",
    source=STREAMING_LLM,
)
SPECIAL_TOKEN = _in_even_shares(
    id="kv-special-token",
    results=("kv/measured",),
    text="a special token at the start of a text receives over twice an even share of the attention",
    measure=partial(estimates.first_token_in_even_shares, start="special"),
    shown=lambda measured: (
        f"{percent(estimates.first_token_weight(measured, 'special').value)} of all attention, "
        f"{estimates.first_token_in_even_shares(measured, 'special').value:.1f} times an even share (<|im_start|>, "
        "median of the layers)"
    ),
    quantity="median of the layers",
    refuted="a median layer in which it receives at most twice an even share",
    source=STREAMING_LLM,
)
PUNCTUATION = _further(
    id="kv-punctuation",
    text="a punctuation mark receives more attention than a word",
    measure=estimates.punctuation_over_words,
    above=1,
    because="as much as a word",
    other_thresholds=(1.5, 2),
    unit=Unit("times a word's attention"),
    quantity="median of the layers, beyond the 16 nearest tokens",
    refuted="a median layer in which a word receives as much",
)
NEAR = _in_even_shares(
    id="kv-near",
    text="the 16 nearest tokens receive over twice an even share of the attention",
    measure=estimates.neighbours_in_even_shares,
    quantity="median of the layers",
    refuted="a median layer in which they receive at most twice an even share",
)


def _show_few(measured: Measured) -> str:
    few, others = (percent(estimates.top_5_percent(measured, but_first).value) for but_first in (False, True))
    return f"{few} of all attention, {others} without the first token (medians of the layers)"


FEW_CARRY_MOST = _further(
    id="kv-few-carry-most",
    text="5 % of the tokens receive over half of the attention",
    measure=estimates.top_5_percent,
    shown=_show_few,
    above=MOST,
    because=WHY_MOST,
    other_thresholds=(0.25, 0.75),
    unit=PERCENT,
    quantity="of all attention, median of the layers",
    refuted="a median layer in which they receive at most half",
    source=H2O,
)


def _show_depth(measured: Measured) -> str:
    first, last = estimates.thirds([row["sparsity"] for row in estimates.layers(measured)])
    rest = percent(fmean(first[1:]))
    return (
        f"{percent(fmean(first))} of the weights negligible in the first third of the layers, {percent(fmean(last))} "
        f"in the last ({percent(first[0])} in layer 0; {rest} in the first third without it); difference "
        f"{POINTS(estimates.deep_minus_shallow(measured))}"
    )


SHALLOW_DENSER = _further(
    id="kv-shallow-denser",
    text="the last third of the layers has more negligible attention weights than the first third",
    measure=estimates.deep_minus_shallow,
    shown=_show_depth,
    quantity="fraction of negligible weights, last third of the layers minus first third",
    refuted="a last third with no more negligible weights than the first",
    unit=POINTS,
    source=D2O,
)
WINDOW_COLLAPSES = _harmed(
    id="kv-window-collapses",
    text="a plain window of the newest tokens has over 1.5 times the perplexity of the full cache",
    measure=partial(estimates.losses_by_budget, policies=(estimates.WINDOW,)),
    quantity="perplexity of the window over that of the full cache, by budget",
    refuted="a budget at which it stays within 1.5 times",
    source=STREAMING_LLM,
)


def _show_fixed(measured: Measured) -> str:
    windows, with_sinks = (
        TIMES.several(estimates.losses_by_budget(measured, (name,))) for name in estimates.FIXED_PATTERNS
    )
    return f"{windows} (plain window); {with_sinks} (window with four sinks)"


FIXED_PATTERNS = _claim(
    id="kv-fixed-patterns",
    text="fixed patterns, a plain window and a window with four sinks, raise the perplexity by over 5 %",
    measure=partial(estimates.losses_by_budget, policies=estimates.FIXED_PATTERNS),
    shown=_show_fixed,
    above=NO_LOSS,
    because=WHY_NO_LOSS,
    other_thresholds=(*OTHER_LOSSES, *OTHER_HARMS),
    quantity="perplexity over that of the full cache, by pattern and budget",
    refuted="a fixed pattern within 5 % of the full cache",
)
THAN_WINDOW = _claim(
    id="kv-than-window",
    text="at every budget, H2O has a lower perplexity than a plain window",
    measure=partial(estimates.gains, policy="H2O", rivals=(estimates.WINDOW,)),
    quantity="perplexity of the window over H2O's, by budget",
    refuted="a budget at which a window of the newest tokens has as low a perplexity",
    source=H2O,
)
THAN_SINKS = _claim(
    id="kv-than-sinks",
    text="at every budget, H2O has a lower perplexity than a window with four sinks",
    measure=partial(estimates.gains, policy="H2O", rivals=("StreamingLLM",)),
    quantity="perplexity of the window with sinks over H2O's, by budget",
    refuted="a budget at which a window with four sinks has as low a perplexity",
    source=H2O,
)
FIVE_TIMES = _without_loss(
    id="kv-five-times",
    results=("kv/kv_further",),
    text="a cache that Scissorhands makes up to 5 times smaller raises the perplexity by less than 5 %",
    measure=partial(estimates.loss_of_smaller_cache, times=FIVE),
    source=SCISSORHANDS,
    shown=_show_smaller,
    published=partial(_published, "without loss of quality", "no loss up to {value} times smaller (larger models)"),
    larger_models=True,
)
LENGTHS = (512, 4096, 32768)  # tokens


def _show_times_smaller() -> str:
    each = ", ".join(f"{estimates.times_smaller_with_codes(n):.1f} times ({n:,} tokens)" for n in LENGTHS)
    return f"{each}; bytes in float16 over those of a fifth in 4 bits, with minima, steps and 32 tokens in float16"


TWENTY_TIMES = Claim(
    id="kv-twenty-times",
    text="a fifth of the cache in 4 bits takes up to 20 times less memory than all of it in 16 bits",
    measure=lambda: Effect(value=max(map(estimates.times_smaller_with_codes, LENGTHS)), error=0.0),
    shown=_show_times_smaller,
    above=0.95 * SMALLER,
    because="the paper's own number, 5 times fewer tokens of 4 times fewer bits, within 5 %",
    other_thresholds=(15, 10),
    quantity="bytes in float16 over those of a fifth in 4 bits, at the length at which this is most",
    refuted="minima and steps that take more than the rounding of the claim",
    unit=Unit("times"),
    source=SCISSORHANDS,
    published=partial(_published, "together with 4 bits", "{value} times (larger models)"),
)
FEWER_BITS = _without_loss(
    id="kv-fewer-bits",
    text="4 bits for the keys and values that are kept raise the perplexity by less than 5 %",
    measure=estimates.loss_of_four_bits,
    quantity="perplexity over that of the same cache in 32 bits, by policy",
    refuted="5 % more perplexity or more from 4 bits on top of eviction",
    source=H2O,
    larger_models=True,
)
EMS_BEST = _claim(
    id="kv-ems-best",
    text="at every budget, EMS has a lower perplexity than StreamingLLM, H2O, SnapKV and TOVA",
    measure=partial(estimates.gains, policy="EMS", rivals=RIVALS),
    quantity="perplexity of four other policies with as many bytes over EMS's, by budget",
    refuted="a budget at which another policy has as low a perplexity",
    source=EMS,
    larger_models=True,
)


def _show_merging(measured: Measured) -> str:
    gains = estimates.gains(measured, "D2O", ("H2O",))
    low, high = estimates.range_of_bytes(measured, "D2O", "H2O")
    return f"{TIMES.several(gains)} (perplexity of H2O over D2O's), with {low:.1f} to {high:.1f} times H2O's bytes"


_merges = partial(_further, quantity="perplexity of H2O over D2O's, by budget", source=D2O)
D2O_MERGES = _merges(
    id="kv-d2o-merges",
    text="at every budget D2O, which merges evicted tokens, has a lower perplexity than H2O, which evicts alone",
    measure=partial(estimates.gains, policy="D2O", rivals=("H2O",)),
    shown=_show_merging,
    refuted="a budget at which eviction alone has as low a perplexity",
)
MERGING = _merges(
    id="kv-merging",
    text="at every budget, merging what D2O evicts gives a lower perplexity than losing it",
    measure=partial(estimates.gains, policy="D2O", rivals=("D2O" + WITHOUT_MERGING,)),
    quantity="perplexity of D2O without merging over D2O's, with as many slots in each layer, by budget",
    refuted="a budget at which the same eviction without merging has as low a perplexity",
)
D2O_TIGHT = _merges(
    id="kv-d2o-tight",
    text="under the tightest budget, D2O has a lower perplexity than H2O",
    measure=partial(estimates.gain_at_tightest, policy="D2O", rival="H2O"),
    refuted="a perplexity of H2O that is as low with 10 % of the slots",
)
EMS_SCORE = _further(
    id="kv-ems-score",
    text="at every budget, evicting by EMS's score, without merging, gives a lower perplexity than H2O",
    measure=partial(estimates.gains, policy="EMS" + WITHOUT_MERGING, rivals=("H2O",)),
    quantity="perplexity of H2O over that of EMS's score alone, with as many slots, by budget",
    refuted="a budget at which sums of attention with half of the slots for recent tokens choose as well",
    source=EMS,
)


def _ems_needles(measured: Measured) -> Effect:
    smallest, *_ = estimates.by_budget(measured, "retrieval", policy="EMS", task="word")
    return share_above(round(smallest["exact"] * smallest["n"]), smallest["n"], 0.0)


EMS_NEEDLES = _claim(
    id="kv-ems-needles",
    text="EMS finds over 95 % of the needles with 10 % of the text in the cache",
    measure=_ems_needles,
    above=NEEDLES,
    because="the paper's own number, for under 2 % of a long context; 10 % of this text are 38 slots",
    other_thresholds=(0.5,),
    quantity="fraction of the needles found, with 10 % of the text kept",
    refuted="a twentieth of the needles or more that are lost",
    unit=PERCENT,
    source=EMS,
    published=partial(_published, "needles found", "{percent} with less than 2 % of the context (larger models)"),
    larger_models=True,
)
STREAMING_H2O = _without_loss(
    id="kv-streaming-h2o",
    text="with positions counted in the cache, H2O streams a text at less than 5 % more perplexity",
    measure=estimates.loss_of_streaming,
    source=H2O,
    larger_models=True,
)
FORGETS_THE_MIDDLE = _claim(
    id="kv-forgets-the-middle",
    text="StreamingLLM finds fewer needles in the middle of a text than at its end",
    measure=estimates.end_minus_middle,
    quantity="fraction of the needles found, at the end minus in the middle, by task and budget",
    refuted="as many needles found in the middle as at the end",
    unit=POINTS,
    source=STREAMING_LLM,
    larger_models=True,
)
CHOOSING = _claim(
    id="kv-choosing",
    text="every policy that selects tokens finds more needles than a plain window of the same size",
    measure=estimates.above_window,
    quantity="right answers minus those of the window, by task, budget and policy",
    refuted="a policy that finds no more needles than the window",
    unit=POINTS,
)
LOOKS_AGAIN = _claim(
    id="kv-looks-again",
    text="full attention now and then answers a second question better than any eviction",
    measure=estimates.gains_of_looking_again,
    quantity="right answers to the second question minus those of the best eviction, by rule for looking again",
    refuted="an eviction that answers the second question as well",
    unit=POINTS,
    source=RECYCLED,
)


def _show_doubled(measured: Measured) -> str:
    beyond = estimates.beyond_twice_local(measured)
    return f"{', '.join(f'{POINTS(gap)} ({name})' for name, gap in beyond.items())}: right answers minus twice those"


DOUBLES = _claim(
    id="kv-recycled-doubles",
    text="recycled attention gives more than twice the right answers of a window with sinks",
    measure=estimates.beyond_twice_local,
    shown=_show_doubled,
    quantity="right answers minus twice those of StreamingLLM, by question and rule for looking again",
    refuted="a question and a rule with at most twice the right answers",
    unit=POINTS,
    source=RECYCLED,
    published=partial(_published, "RULER", "about {value} times the score of eviction on RULER (larger models)"),
)


def _by_similarity(measured: Measured) -> Effect:
    second = estimates.second_answers(measured)
    return accuracy_gap(second["recycled, by similarity"], second["recycled, every 8 steps"], "exact")


def _show_similarity(measured: Measured) -> str:
    second = estimates.second_answers(measured)
    similar, fixed = (second[f"recycled, {how}"].get("full_steps", 0.0) for how in ("by similarity", "every 8 steps"))
    return f"{POINTS(_by_similarity(measured))}, with {similar:.1f} full steps against {fixed:.1f}"


BY_SIMILARITY = _claim(
    id="kv-by-similarity",
    text="looking again when the query has changed finds more than looking again every 8 steps",
    measure=_by_similarity,
    shown=_show_similarity,
    quantity="right answers to the second question minus those with a full step every 8 steps",
    refuted="as many right answers with a full step every 8 steps",
    unit=POINTS,
    source=RECYCLED,
    larger_models=True,
)


def _looking_again(results: tuple[Measured, ...]) -> tuple[Row, Row]:
    """The second answers by similarity, and those with a full step every 4 steps: from two results or a joined one."""
    first, last = (estimates.second_answers(each) for each in (results[0], results[-1]))
    return first["recycled, by similarity"], last[EVERY_4_STEPS]


def _similarity_pays(*results: Measured) -> Effect:
    return accuracy_gap(*_looking_again(results), "exact")


def _show_full_steps(*results: Measured) -> str:
    similar, fixed = (row["full_steps"] for row in _looking_again(results))
    return f"{POINTS(_similarity_pays(*results))}, with {similar:.1f} full steps against {fixed:.1f}"


SIMILARITY_PAYS = _claim(
    id="kv-similarity-pays",
    text="looking again when the query has changed finds more than looking again at fixed steps, with no more full "
    "steps",
    results=("kv/measured", "kv/kv_further"),
    measure=_similarity_pays,
    shown=_show_full_steps,
    quantity="right answers to the second question minus those with a full step every 4 steps",
    refuted="as many right answers with a full step every 4 steps",
    unit=POINTS,
    source=RECYCLED,
)


def _show_enough(heavy: Measured) -> str:
    row = estimates.suffices(heavy)
    same = percent(fmean(row["same"]))
    return f"{TIMES(estimates.above_full(row))} the perplexity, {same} of the next tokens the same"


FIVE_PER_CENT = _heavy(
    id="kv-five-per-cent",
    text="if every query reads only the 5 % of the tokens with its largest weights, perplexity stays within 5 %",
    measure=lambda heavy: estimates.above_full(estimates.suffices(heavy)),
    below=NO_LOSS,
    because=WHY_NO_LOSS,
    other_thresholds=OTHER_LOSSES,
    quantity="perplexity over that with all weights",
    refuted="5 % more perplexity or more when every query reads its 5 % largest weights",
    shown=_show_enough,
    published="the same accuracy with a cache 20 times smaller (lecture on H2O)",
    larger_models=True,
)
MASKED = _heavy(
    id="kv-masked",
    text="masking the tokens that receive the most attention raises the perplexity more than masking random tokens",
    measure=partial(estimates.masked_above_random, which=estimates.HEAVIEST),
    quantity="perplexity over that with as many random tokens masked",
    refuted="as much loss from masking as many random tokens",
    published="significant degradation (larger models)",
)
MASKED_BUT_FIRST = _heavy(
    id="kv-masked-but-first",
    text="masking the tokens with the most attention, except the first, also costs more than masking random tokens",
    measure=partial(estimates.masked_above_random, which=estimates.SPARED),
    quantity="perplexity over that with as many random tokens masked",
    refuted="as much loss from masking random tokens, once the first token is spared",
)
OFTEN = _heavy(
    id="kv-often",
    text="the more often a token occurs in a text, the more attention all its occurrences receive together",
    measure=partial(estimates.correlation, which="whole"),
    quantity="rank correlation of a token's count with what all its occurrences receive",
    refuted="no rank correlation, or a negative one",
    unit=CORRELATION,
)
OFTEN_EACH = _heavy(
    id="kv-often-each",
    text="how often a token occurs in a text correlates strongly with the attention that a single occurrence receives",
    measure=partial(estimates.correlation, which="each"),
    above=STRONG,
    because="a strong correlation is one above 0.5; sums over all occurrences grow with their number by construction",
    other_thresholds=(0.0, 0.3),
    quantity="rank correlation of a token's count with what one of its occurrences receives",
    refuted="no rank correlation, or a negative one",
    unit=CORRELATION,
)
HEADS_DIFFER = _heavy(
    id="kv-heads-differ",
    text="the heads of a layer differ in how sparse their attention is and in how redundant their keys are",
    measure=estimates.head_gaps,
    above=0.0,
    because="each half of the texts chooses the two heads for the other half, so that chance gives 0",
    other_thresholds=(0.05, 0.1, 0.2),
    quantity="first minus last head of a layer: fraction of negligible weights; cosine of similar keys",
    refuted="heads of a layer that do not differ on texts that did not choose them",
    unit=NUMBER,
    source=EMS,
)
REPEATS_LESS = _heavy(
    id="kv-repeats-less",
    text="with H2O the model repeats itself less than with the full cache",
    measure=partial(estimates.written_gap, column="distinct", writer="H2O", other=estimates.FULL_WRITER),
    quantity="fraction of distinct tokens minus that with the full cache",
    refuted="as many repeated tokens with H2O as with the full cache",
    unit=POINTS,
)
SUM_IS_BIASED = _heavy(
    id="kv-sum-is-biased",
    text="over a quarter of the tokens that sums of attention keep are from the first quarter of the prompt",
    measure=estimates.beyond_a_quarter,
    quantity="fraction of the kept tokens that lie in the first quarter, minus 25 %, by budget",
    refuted="a budget at which sums keep no more than a quarter of their tokens from the first quarter",
    unit=POINTS,
    source=EMS,
)
MEANS_READ_BETTER = _heavy(
    id="kv-means-read-better",
    text="at every budget, choosing by means of attention gives a lower perplexity than choosing by sums",
    measure=partial(estimates.sum_minus_mean, column="losses"),
    quantity="perplexity by sums over that by means, by budget",
    refuted="a budget at which sums choose as well",
    source=EMS,
)


def _beside_harmed(heavy: Measured) -> dict[str, Effect]:
    window, h2o = (estimates.written_gap(heavy, "losses", name, estimates.FULL_WRITER) for name in ("window", "H2O"))
    return {"window": window.above(HARMED), "H2O": h2o.below(HARMED)}


def _show_written(heavy: Measured) -> str:
    names = {"window": "window", "H2O": "H2O", "4 sinks + window": "window with four sinks"}
    gaps = {said: estimates.written_gap(heavy, "losses", name, estimates.FULL_WRITER) for name, said in names.items()}
    return f"{TIMES.several(gaps)}: perplexity over that of what the full cache writes itself"


WRITES_ON = _heavy(
    id="kv-writes-on",
    text="text written with a window has over 1.5 times the perplexity of the full cache's own text, and text written "
    "with H2O less",
    measure=_beside_harmed,
    shown=_show_written,
    criterion=f"more than 1.5 times for the window, less for H2O: {WHY_HARMED}",
    quantity="perplexity to the full cache, over that of its own text",
    refuted="a window whose text the full cache finds nearly as likely as its own, or a text of H2O that it does not",
)
FASTER = _clock(
    id="kv-faster",
    text="H2O with a fifth of the cache decodes faster than the same cache with nothing evicted",
    measure=partial(estimates.speedups, side="H2O, 20 %", other=EVERYTHING),
    quantity="time with nothing evicted over H2O's, by batch size",
    refuted="a fifth of the cache that takes as long as the same cache with nothing evicted",
)
MEMORY_AND_PRODUCTS = _claim(
    id="kv-memory-and-products",
    text="H2O with a fifth of the slots takes less memory and fewer multiplications per step in attention",
    measure=estimates.saved_by_eviction,
    quantity="bytes and keys read per step with the full cache over those with H2O, counted",
    refuted="a fifth of the slots that takes as many bytes or multiplications",
)


def _show_latency(bench: Measured) -> str:
    same, library = (TIMES.several(estimates.speedups(bench, "H2O, 20 %", each)) for each in (EVERYTHING, LIBRARY))
    return f"compared with nothing evicted {same}; with transformers' DynamicCache {library}"


LATENCY_CLAIM = _clock(
    id="kv-latency",
    text="H2O with a fifth of the cache decodes over 1.9 times as fast",
    measure=partial(estimates.speedups, side="H2O, 20 %", other=EVERYTHING),
    shown=_show_latency,
    above=log(LATENCY),
    because="the paper's own number",
    other_thresholds=(log(1.5),),
    quantity="time with nothing evicted over H2O's, by batch size",
    refuted="less than 1.9 times the speed of the same cache with nothing evicted",
    source=H2O,
    published=partial(_published, "lower latency", "{value} times at the same batch size (a GPU, larger models)"),
    larger_models=True,
)
LATENCY_ON_A_GPU = _gpu(
    id="kv-latency-on-a-gpu",
    text="on a GPU, H2O with a fifth of the cache decodes over 1.9 times as fast as the full cache",
    measure=gpu_speed.speedups,
    shown=gpu_speed.show_speedups,
    above=log(LATENCY),
    because="the paper's own number",
    other_thresholds=(log(1.5), 0.0),
    quantity="time per step of the full cache over H2O's, 8B parameters with random weights, by batch and length",
    refuted="a batch and a length at which it is less than 1.9 times as fast",
    source=H2O,
    published=partial(_published, "lower latency", "up to {value} times at the same batch size"),
)


def _throughput(side: str, **record: Any) -> Claim:
    """A claim on tokens per second, each side at the largest batch that fits, with 32,768 tokens per sequence."""
    return _gpu(
        measure=partial(gpu_speed.throughput_gain, side=side),
        above=log(THROUGHPUT),
        quantity="tokens per second over the full cache's, each at its largest batch, 8B random weights",
        **record,
    )


THROUGHPUT_ON_A_GPU = _throughput(
    gpu_speed.H2O,
    id="kv-throughput-on-a-gpu",
    text="on a GPU, H2O with a fifth of the cache decodes over 3 times as many tokens per second as the full cache, "
    "each with the largest batch that fits",
    shown=partial(gpu_speed.show_throughput, side=gpu_speed.H2O),
    because="the paper's number over FlexGen, its fastest baseline. Ours is the course's own full cache on one GPU: "
    "none of the paper's three systems runs here",
    other_thresholds=(log(OFFLOADING),),
    refuted="at most 3 times the tokens per second of the full cache",
    source=H2O,
    published=partial(
        _published, "the throughput of FlexGen", f"{{value}} times FlexGen, {OFFLOADING} times DeepSpeed and Accelerate"
    ),
)


def _show_d2o(measured: Measured) -> str:
    return (
        f"{gpu_speed.show_throughput(measured, gpu_speed.D2O)} (merged in PyTorch at each step, without a CUDA graph)"
    )


D2O_THROUGHPUT = _throughput(
    gpu_speed.D2O,
    id="kv-d2o-throughput",
    text="on a GPU, D2O with a fifth of the cache decodes over 3 times as many tokens per second as the full cache, "
    "each with the largest batch that fits",
    shown=_show_d2o,
    because="the paper's own number. The course has no kernel for D2O: each step merges what it evicts in PyTorch",
    other_thresholds=(0.0,),
    refuted="at most 3 times the tokens per second of the full cache",
    source=D2O,
    published=partial(_published, "times the throughput, more than", "over {value} times"),
)
RECYCLED_SPEED = _clock(
    id="kv-recycled-speed",
    text="recycled attention decodes at most 10 % slower than a window with sinks",
    measure=partial(estimates.speedups, side="recycled, 20 % read", other="StreamingLLM, 20 %"),
    above=log(1 / SLOWER),
    because="comparable means at most 10 % slower",
    other_thresholds=(log(1 / 1.05), log(1 / 1.2)),
    quantity="time of the window with sinks over recycled attention's, by batch size",
    refuted="recycled attention that takes over 10 % longer",
    source=RECYCLED,
)
