"""The claims of lesson 07 on attention and on small key-value caches, from papers and lectures."""

from collections.abc import Callable
from functools import partial
from math import log
from statistics import fmean, median
from typing import Any

from course_lib.lessons.common.cache_speed import EVERYTHING
from course_lib.lessons.common.claim import NUMBER, PERCENT, POINTS, TIMES, Claim, Unit
from course_lib.lessons.common.effects import accuracy_gap, share_above
from course_lib.lessons.common.results import load_published, percent, rows
from course_lib.lessons.common.verdicts import Effect, of_count
from course_lib.lessons.kv import estimates

Measured = dict[str, Any]
MOST, ALMOST_ALL = 0.5, 0.95  # of the layers
ALIKE = 0.01  # nats per token, which is 1 % of perplexity
WHY_ALIKE = "1 % is the smallest increase that the course counts as a loss"
OTHERS_ALIKE = (log(1.02), log(1.05), log(1.1))
WHY_MOST = "most layers are more than half of them"
APART = 0.1  # of the weights, and of a cosine: heads of a layer that differ by less are called alike
FIVE, SMALLER, LATENCY, SLOWER = 5, 20, 1.9, 1.1  # times
COLLAPSED = 1.5  # times the perplexity
STREAMED = 1.05  # times the perplexity
NEEDLES = 0.95
STRONG = 0.5  # of a rank correlation
RIVALS = ("StreamingLLM", "H2O", "SnapKV", "TOVA")
H2O = "Zhang and others (2023), arXiv:2306.14048"
SCISSORHANDS = "Liu and others (2023), arXiv:2305.17118"
EMS = "Li and others (2024), arXiv:2412.08521"
D2O = "Wan and others (2024), arXiv:2406.13035"
RECYCLED = "Xu and others (2024), arXiv:2411.05787"
STREAMING_LLM = "Xiao and others (2023), arXiv:2309.17453"

CORRELATION = Unit("", signed=True)
OF_LAYERS = Unit("% of the layers", scale=100)
_claim = partial(Claim, results=("kv/measured",), unit=TIMES)
_heavy = partial(_claim, results=("kv/heavy",), source=H2O)
_clock = partial(_claim, results=("bench/cpu_kv",))


def _published(words: str, template: str) -> str:
    """The paper's number on the line with these words of published.json, in a sentence."""
    (value,) = (row["value"] for row in rows(load_published("kv"), "claims") if words in row["claim"])
    return template.format(value=value, percent=f"{100 * value:.0f} %")


def _of_layers(hold: Callable[[Measured], list[bool]], measured: Measured) -> Effect:
    """The fraction of all layers in which something holds: exact."""
    held = hold(measured)
    return of_count(sum(held), len(held))


def _counted(hold: Callable[[Measured], list[bool]], measured: Measured) -> str:
    held = hold(measured)
    return f"{sum(held)} of {len(held)} layers"


def _layers(hold: Callable[[Measured], list[bool]], **record: Any) -> Claim:
    """A claim that is counted layer by layer, and has to hold in more than half of them."""
    record = {"above": MOST, "because": WHY_MOST, "shown": partial(_counted, hold)} | record
    return _claim(measure=partial(_of_layers, hold), quantity="of the layers", unit=OF_LAYERS, **record)


def _show_sparse(measured: Measured) -> str:
    mean = fmean(row["sparsity"] for row in estimates.layers(measured))
    return f"{_counted(estimates.is_sparse, measured)}, {percent(mean)} of the weights on average"


def _show_power_law(measured: Measured) -> str:
    first, *_ = layers = estimates.layers(measured)
    slope = median(row["slope"] for row in layers)
    ranks = f"ranks {first['first_rank']} to {first['last_rank']} of {first['length']}"
    return f"{_counted(estimates.follows_power_law, measured)} ({ranks}; median exponent {slope:.2f})"


def _show_persistence(measured: Measured) -> str:
    found = estimates.layers(measured)
    mean, chance, any_query, any_chance = (
        percent(fmean(row[column] for row in found))
        for column in ("persistence_mean", "pivotal_mean", "persistence_any", "pivotal_any")
    )
    return (
        f"{_counted(estimates.is_persistent, measured)}, {mean} on average ({chance} by chance); by the paper's count, "
        f"in which a single query is enough, {any_query} ({any_chance} by chance)"
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
    because="almost all layers are more than 95 % of them",
    other_thresholds=(0.9, MOST),
    refuted="fewer than 95 % of the layers with over 95 % of their weights below a hundredth of the row's largest",
    source=H2O,
    shown=_show_sparse,
    published=partial(_published, "attention sparsity", "over {percent} in almost all layers (OPT)"),
    larger_models=True,
)
POWER_LAW = _layers(
    estimates.follows_power_law,
    id="kv-power-law",
    text="in most layers the attention that tokens receive falls like a power of their rank, not exponentially",
    refuted="half of the layers or more in which an exponential fits better",
    source=H2O,
    shown=_show_power_law,
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
    _claim,
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
FIRST_TOKEN_WEIGHT = _claim(
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
PUNCTUATION = _claim(
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
FEW_CARRY_MOST = _claim(
    id="kv-few-carry-most",
    text="5 % of the tokens receive over half of the attention",
    measure=estimates.top_5_percent,
    above=0.5,
    because="most of the attention is more than half",
    other_thresholds=(0.25, 0.75),
    unit=PERCENT,
    quantity="of all attention, median of the layers",
    refuted="a median layer in which they receive at most half",
    source=H2O,
)
SHALLOW_DENSER = _claim(
    id="kv-shallow-denser",
    text="the last third of the layers has more negligible attention weights than the first third",
    measure=estimates.deep_minus_shallow,
    quantity="fraction of negligible weights, last third of the layers minus first third",
    refuted="a last third with no more negligible weights than the first",
    unit=POINTS,
    source=D2O,
)
WINDOW_COLLAPSES = _claim(
    id="kv-window-collapses",
    text="a plain window of the newest tokens has over 1.5 times the perplexity of the full cache",
    measure=estimates.window_over_full,
    above=log(COLLAPSED),
    because="1.5 times is the course's mark of a harmed model",
    other_thresholds=(log(1.25), log(2), log(3)),
    quantity="perplexity of the window over that of the full cache, by budget",
    refuted="a budget at which it stays within 1.5 times",
    source=STREAMING_LLM,
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
FIVE_TIMES = _claim(
    id="kv-five-times",
    text="a cache that Scissorhands makes up to 5 times smaller raises the perplexity by less than 1 %",
    measure=partial(estimates.loss_of_smaller_cache, times=FIVE),
    below=ALIKE,
    because=WHY_ALIKE,
    other_thresholds=OTHERS_ALIKE,
    quantity="perplexity over that of the full cache",
    refuted="over 1 % more perplexity",
    source=SCISSORHANDS,
    shown=_show_smaller,
    published=partial(_published, "without loss of quality", "no loss up to {value} times smaller (larger models)"),
    larger_models=True,
)
TWENTY_TIMES = Claim(
    id="kv-twenty-times",
    text="a fifth of the cache in 4 bits takes 20 times less memory than all of it in 16 bits",
    measure=lambda: {
        f"{n:,} tokens": Effect(value=estimates.times_smaller_with_codes(n), error=0.0) for n in (512, 4096, 32768)
    },
    above=0.95 * SMALLER,
    because="the paper's own number, 5 times fewer tokens of 4 times fewer bits, within 5 %",
    other_thresholds=(15, 10),
    quantity="bytes in float16 over those of a fifth in 4 bits, with minima, steps and the 32 newest tokens in float16",
    refuted="minima and steps that take more than the rounding of the claim",
    unit=Unit("times"),
    source=SCISSORHANDS,
    published=partial(_published, "together with 4 bits", "{value} times (larger models)"),
)
FEWER_BITS = _claim(
    id="kv-fewer-bits",
    text="4 bits for the keys and values that are kept raise the perplexity by less than 1 %",
    measure=estimates.loss_of_four_bits,
    below=ALIKE,
    because=WHY_ALIKE,
    other_thresholds=OTHERS_ALIKE,
    quantity="perplexity over that of the same cache in 32 bits, by policy",
    refuted="over 1 % more perplexity from 4 bits on top of eviction",
    source=H2O,
    larger_models=True,
)
EMS_BEST = _claim(
    id="kv-ems-best",
    text="at every budget, EMS has a lower perplexity than StreamingLLM, H2O, SnapKV and TOVA",
    measure=partial(estimates.gains, policy="EMS", rivals=RIVALS),
    quantity="perplexity of four other policies over EMS's, by budget",
    refuted="a budget at which another policy has as low a perplexity",
    source=EMS,
    larger_models=True,
)
D2O_MERGES = _claim(
    id="kv-d2o-merges",
    text="at every budget, merging evicted tokens (D2O) gives a lower perplexity than eviction alone (H2O)",
    measure=partial(estimates.gains, policy="D2O", rivals=("H2O",)),
    quantity="perplexity of H2O over D2O's, by budget",
    refuted="a budget at which eviction alone has as low a perplexity",
    source=D2O,
    larger_models=True,
)


def _ems_needles(measured: Measured) -> Effect:
    smallest, *_ = estimates.by_budget(measured, "retrieval", policy="EMS", task="word")
    return share_above(round(smallest["exact"] * smallest["n"]), smallest["n"], 0.0)


EMS_NEEDLES = _claim(
    id="kv-ems-needles",
    text="EMS finds over 95 % of the needles with 10 % of the text in the cache",
    measure=_ems_needles,
    above=NEEDLES,
    because="the paper's own number, which it reports with a fifth of this budget",
    other_thresholds=(0.5,),
    quantity="fraction of the needles found, with 10 % of the text kept",
    refuted="a twentieth of the needles or more that are lost",
    unit=PERCENT,
    source=EMS,
    published=partial(_published, "needles found", "{percent} with less than 2 % of the context (larger models)"),
    larger_models=True,
)
STREAMING_H2O = _claim(
    id="kv-streaming-h2o",
    text="with positions counted in the cache, H2O streams a text at less than 5 % more perplexity",
    measure=estimates.loss_of_streaming,
    below=log(STREAMED),
    because="the paper shows that it streams; 5 % more perplexity is what the course allows for that",
    other_thresholds=(log(1.02), log(1.1)),
    quantity="perplexity over that of the full cache",
    refuted="over 5 % more perplexity than with the full cache",
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
    published=partial(_published, "RULER", "about {value} times the score of eviction on RULER (larger models)"),
)


def _by_similarity(measured: Measured) -> Effect:
    second = estimates.second_answers(measured)
    return accuracy_gap(second["recycled, by similarity"], second["recycled, every 8 steps"], "exact")


BY_SIMILARITY = _claim(
    id="kv-by-similarity",
    text="looking again when the query has changed finds more than looking again every 8 steps",
    measure=_by_similarity,
    quantity="right answers to the second question minus those with a full step every 8 steps",
    refuted="as many right answers with a full step every 8 steps",
    unit=POINTS,
    source=RECYCLED,
    larger_models=True,
)


def _show_enough(heavy: Measured) -> str:
    row = estimates.suffices(heavy)
    same = percent(fmean(row["same"]))
    return f"{TIMES(estimates.above_full(row))} the perplexity, {same} of the next tokens the same"


FIVE_PER_CENT = _heavy(
    id="kv-five-per-cent",
    text="if every query reads only the 5 % of the tokens with its largest weights, perplexity stays within 1 %",
    measure=lambda heavy: estimates.above_full(estimates.suffices(heavy)),
    below=ALIKE,
    because=WHY_ALIKE,
    other_thresholds=OTHERS_ALIKE,
    quantity="perplexity over that with all weights",
    refuted="more than 1 % of perplexity lost when every query reads its 5 % largest weights",
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
    text="the heads of a layer differ by over 0.1 in how sparse their attention is and in how redundant their keys are",
    measure=estimates.head_gaps,
    above=APART,
    because="heads of a layer that differ by less are called alike here; the paper names no number",
    other_thresholds=(0.05, 0.2),
    quantity="first minus last head of a layer: fraction of negligible weights; cosine of similar keys",
    refuted="heads of a layer that differ by less than 0.1 on texts that did not choose them",
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
    text="sums of attention keep more tokens of the first quarter of a prompt than means of attention",
    measure=partial(estimates.sum_minus_mean, column="first_quarter"),
    quantity="fraction of the kept tokens that lie in the first quarter, by sums minus by means, by budget",
    refuted="a budget at which means keep as many old tokens",
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
WRITES_ON = _heavy(
    id="kv-writes-on",
    text="under the full cache, text written with H2O has a lower perplexity than text written with a window",
    measure=partial(estimates.written_gap, column="losses", writer="window", other="H2O"),
    quantity="perplexity to the full cache of what a window writes over that of what H2O writes",
    refuted="a window of as many slots whose text the full cache finds as likely",
)
FASTER = _clock(
    id="kv-faster",
    text="H2O with a fifth of the cache decodes faster than the same cache with nothing evicted",
    measure=partial(estimates.speedups, side="H2O, 20 %", other=EVERYTHING),
    quantity="time with nothing evicted over H2O's, by batch size",
    refuted="a fifth of the cache that takes as long as the same cache with nothing evicted",
)
LATENCY_CLAIM = _clock(
    id="kv-latency",
    text="H2O with a fifth of the cache decodes over 1.9 times as fast",
    measure=partial(estimates.speedups, side="H2O, 20 %", other=EVERYTHING),
    above=log(LATENCY),
    because="the paper's own number",
    other_thresholds=(log(1.5),),
    quantity="time with nothing evicted over H2O's, by batch size",
    refuted="less than 1.9 times the speed of the same cache with nothing evicted",
    source=H2O,
    published=partial(_published, "lower latency", "{value} times at the same batch size (a GPU, larger models)"),
    larger_models=True,
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
