"""The claims of lesson 08: what the first tokens of a text do for a stream, and how we measure it."""

from collections.abc import Callable
from functools import partial
from math import log
from statistics import fmean
from typing import Any

from course_lib.lessons.common.claim import (
    HARMED,
    MOST,
    NO_LOSS,
    OTHER_HARMS,
    OTHER_LOSSES,
    PERCENT,
    POINTS,
    TIMES,
    WHY_HARMED,
    WHY_MOST,
    WHY_NO_LOSS,
    Claim,
)
from course_lib.lessons.common.effects import share_above
from course_lib.lessons.common.results import load_published, rows
from course_lib.lessons.common.verdicts import Effect, of_samples, of_series
from course_lib.lessons.sinks import estimates
from course_lib.lessons.sinks.experiments import dialogue, four_ways

Measured = dict[str, Any]
FLAT = 1.25  # times the time per token: clocks are not quiet
AFRESH = 22.0  # times as fast
STREAMED = 4_000_000  # tokens in the paper
CIRCLES = 0.1  # of an answer
MORE_WHEN_IDLE = 0.1  # of the attention
STREAMING_LLM = "Xiao and others (2023), arXiv:2309.17453"
OVER_SINKS = "Llama-2-13B, over a window with sinks"
LLAMA_2_13B, LLAMA_2_7B, SMALL = "Llama-2-13B", "Llama-2-7B", "160 million parameters"

_claim = partial(Claim, source=STREAMING_LLM, unit=TIMES)
_stream = partial(_claim, results=("kv/measured",))
_ways = partial(_claim, results=("sinks/four_ways",))
_trained = partial(_claim, results=("sinks/sink_pretraining",))
_harmed = {"above": HARMED, "because": WHY_HARMED, "other_thresholds": OTHER_HARMS}
_harmless = {"below": NO_LOSS, "because": WHY_NO_LOSS, "other_thresholds": OTHER_LOSSES}
_lossy = {"above": NO_LOSS, "because": WHY_NO_LOSS, "other_thresholds": OTHER_LOSSES}


def _perplexity(table: str, **wanted: Any) -> float:
    (row,) = rows(load_published("sinks"), table, **wanted)
    return row["perplexity"]


def _published_ratio(table: str, column: str, worse: Any, better: Any, model: str) -> str:
    value = _perplexity(table, **{column: worse}) / _perplexity(table, **{column: better})
    return f"{value:,.0f} times ({model})" if value > 100 else f"{value:.2f} times ({model})"


def _published_fraction(none: float, some: float, most: float, model: str) -> str:
    return f"{100 * log(none / some) / log(none / most):.1f} % ({model})"


def _published_one_sink() -> str:
    none, one, most = (_perplexity("sinks", sinks=n) for n in (0, 1, 8))
    return _published_fraction(none, one, most, f"{LLAMA_2_7B}, of what eight sinks do")


def _published_newlines() -> str:
    caches = ("0 + 1024", "4 newlines + 1020", "4 + 1020")
    return _published_fraction(*(_perplexity("window", cache=cache) for cache in caches), LLAMA_2_13B)


def _published_few(sinks: int, variants: tuple[str, ...]) -> str:
    ratios = [
        _perplexity("pretraining", variant=variant, sinks=sinks) / _perplexity("pretraining", variant=variant, sinks=4)
        for variant in variants
    ]
    return ", ".join(f"{ratio:,.0f}" if ratio > 10 else f"{ratio:.2f}" for ratio in ratios) + f" times ({SMALL})"


def _published_own_slot() -> str:
    values = (_perplexity("pretraining", variant="learnable sink", sinks=n) for n in (0, 1, 4))
    return _published_fraction(*values, SMALL)


def _published_speed() -> str:
    return f"up to {load_published('sinks')['tables']['speed'][0]['times']} times (a GPU, larger models)"


def _fraction(pair: Callable[[Measured], tuple], fraction: float, because: str) -> dict[str, Any]:
    """How a claim measures the fraction of a loss of log-perplexity that something restores."""
    return {
        "measure": lambda measured: estimates.fraction_restored(*pair(measured), fraction),
        "above": fraction,
        "because": because,
        "other_thresholds": tuple(sorted({0.5, 0.8, 0.9, 0.95} - {fraction})),
        "unit": PERCENT,
    }


COLLAPSE = _stream(
    id="sinks-collapse",
    text="without a sink a window collapses: its perplexity is over 1.5 times that of the full cache",
    measure=estimates.lost_by_window,
    **_harmed,
    quantity="perplexity of the window over that of the full cache",
    refuted="a window without first tokens within 1.5 times the perplexity of the full cache",
    published=partial(_published_ratio, "ways", "way", four_ways.WINDOW, four_ways.STREAMING, OVER_SINKS),
)
ONE_SINK = _stream(
    id="sinks-one-sink",
    text="one sink restores over 80 % of the log-perplexity that a window without sinks loses",
    **_fraction(estimates.one_sink_against_none, estimates.RESTORED, "the main reason explains more than 80 %"),
    quantity="of the log-perplexity that the window lost",
    refuted="a fifth or more of the loss left with the first token kept",
    published=_published_one_sink,
)
NEWLINES = _stream(
    id="sinks-newlines",
    text="four newlines as sinks do over 90 % of what the text's own first four tokens do",
    **_fraction(estimates.newlines_against_none, estimates.ALMOST, "almost as well means at least 90 %"),
    quantity="of the log-perplexity that the text's own first tokens restore",
    refuted="newlines in the first positions that do less than 90 % of what the text's own tokens do",
    published=_published_newlines,
)
STEADY_TIME = _stream(
    id="sinks-steady-time",
    text="in a long stream the time per token stays within 1.25 times",
    measure=estimates.time_of_second_half,
    below=log(FLAT),
    because="constant within what clocks on a shared machine vary",
    other_thresholds=(log(1.1),),
    quantity="time per token in the second half of the stream over that in the first",
    refuted="a second half of the stream that takes over 1.25 times as long per token",
)
ONE_IS_NOT_ENOUGH = _stream(
    id="sinks-one-is-not-enough",
    text="one sink is not enough: its perplexity is over 5 % above that of four",
    measure=estimates.one_minus_four,
    **_lossy,
    quantity="perplexity with one sink over that with four",
    refuted="one sink within 5 % of four",
    published=partial(_published_ratio, "sinks", "sinks", 1, 4, LLAMA_2_7B),
)
ROLLING = _stream(
    id="sinks-rolling",
    text="sinks that are far away need positions counted in the cache",
    measure=estimates.original_minus_rolling,
    quantity="perplexity with positions of the text over that with positions in the cache, 65,536 positions away",
    refuted="sinks 65,536 positions away that work as well with positions of the text",
    larger_models=True,
)
FAR_POSITIONS = _stream(
    id="sinks-far-positions",
    text="beyond the trained length, positions of the text raise the perplexity to over 1.5 times",
    measure=partial(estimates.over_no_distance, positions="original"),
    **_harmed,
    quantity="perplexity over that at no distance, twice the trained length and further away",
    refuted="a distance of twice the trained length or more with less than 1.5 times the perplexity",
)
CACHE_POSITIONS = _stream(
    id="sinks-cache-positions",
    text="beyond the trained length, positions counted in the cache raise the perplexity by less than 5 %",
    measure=partial(estimates.over_no_distance, positions="rolling"),
    **_harmless,
    quantity="perplexity over that at no distance, twice the trained length and further away",
    refuted="a distance of twice the trained length or more with 5 % more perplexity",
)


def _show_drift(measured: Measured) -> str:
    n_tokens = estimates.drifting_tokens(measured)
    return (
        f"{TIMES(estimates.drift(measured))}, over {n_tokens:,} tokens ({100 * n_tokens / STREAMED:.1f} % of 4 million)"
    )


STREAM_STEADY = _ways(
    id="sinks-stream-steady",
    text="compared with dense attention on the same text, StreamingLLM's perplexity rises by less than 5 % from the "
    "first to the second half",
    measure=estimates.drift,
    shown=_show_drift,
    **_harmless,
    quantity="perplexity over that of dense attention within the trained length, second half over first half",
    refuted="a second half in which this ratio of perplexities is over 5 % higher",
    published="steady perplexity over 4 million tokens",
    larger_models=True,
)


def _show_speedups(bench: Measured) -> str:
    return ", ".join(f"{TIMES(gain)} ({name})" for name, gain in estimates.speedups_of_stream(bench).items())


TWENTY_TWO = _claim(
    id="sinks-twenty-two",
    text="a token of a stream takes less than a 22nd of the time that it takes to read the largest window again",
    results=("bench/cpu_kv",),
    measure=estimates.speedup_of_stream,
    shown=_show_speedups,
    above=log(AFRESH),
    because='the paper\'s own number, which is an "up to", so that the largest window counts',
    other_thresholds=(log(10), log(30)),
    quantity="time to read the window again over that of one token of the stream",
    refuted="less than 22 times the speed of the largest window read again",
    published=_published_speed,
    larger_models=True,
)


def _above_streaming(way: str, start: str, measured: Measured) -> Effect:
    """Loss of a way minus StreamingLLM's, block by block from its trained length or budget on."""
    first = rows(measured, "ways", way=way)[0][start]
    more = estimates.blocks(measured, way, first) - estimates.blocks(measured, four_ways.STREAMING, first)
    return of_series(more)


def _show_dense(measured: Measured) -> str:
    trained = rows(measured, "ways", way=four_ways.DENSE)[0]["trained"]
    beyond = measured["sizes"]["tokens"] / trained - 1
    return f"{TIMES(_above_streaming(four_ways.DENSE, 'trained', measured))}, {100 * beyond:.0f} % beyond that length"


DENSE_BEYOND = _ways(
    id="sinks-dense-beyond",
    text="beyond the trained length, dense attention has over 1.5 times the perplexity of StreamingLLM",
    measure=partial(_above_streaming, four_ways.DENSE, "trained"),
    **_harmed,
    quantity="perplexity of dense attention over StreamingLLM's",
    refuted="dense attention beyond the trained length within 1.5 times StreamingLLM's perplexity",
    shown=_show_dense,
    published=partial(_published_ratio, "ways", "way", four_ways.DENSE, four_ways.STREAMING, LLAMA_2_13B),
)
WINDOW_ALONG = _ways(
    id="sinks-window-along",
    text="along the whole text, a window without sinks has over 1.5 times the perplexity of StreamingLLM",
    measure=partial(_above_streaming, four_ways.WINDOW, "budget"),
    **_harmed,
    quantity="perplexity of the window over StreamingLLM's",
    refuted="a window without sinks within 1.5 times StreamingLLM's perplexity",
    published=partial(_published_ratio, "ways", "way", four_ways.WINDOW, four_ways.STREAMING, LLAMA_2_13B),
)


def _above_recomputed(measured: Measured) -> Effect:
    return of_series(estimates.losses(measured, four_ways.STREAMING) - estimates.losses(measured, four_ways.AFRESH))


AS_AFRESH = _ways(
    id="sinks-recomputed",
    text="StreamingLLM has at most 5 % more perplexity than a window that is read again for every token",
    measure=_above_recomputed,
    **_harmless,
    quantity="perplexity of StreamingLLM over that of the window read again",
    refuted="over 5 % more perplexity than a window that is read again",
    published=partial(_published_ratio, "ways", "way", four_ways.STREAMING, four_ways.AFRESH, LLAMA_2_13B),
)
REPETITION, PERPLEXITY = "repetition", "perplexity"
WHY_CIRCLES = "ten points are what the course calls a chat that repeats itself"


def _chats(measured: Measured, cache: str) -> dict[str, Effect]:
    return {
        REPETITION: estimates.more_repeats(measured, cache, dialogue.EVERYTHING),
        PERPLEXITY: estimates.less_likely(measured, cache, dialogue.EVERYTHING),
    }


def _show_chats(cache: str, measured: Measured) -> str:
    found = _chats(measured, cache)
    return (
        f"{POINTS(found[REPETITION])} of repeated runs of three words in the second answers, "
        f"{TIMES(found[PERPLEXITY])} the perplexity of both answers to the full cache, compared with everything kept"
    )


CHAT_COLLAPSES = _ways(
    id="sinks-chat-collapses",
    text="without sinks, repetition in the second answer of a chat rises by over 10 percentage points",
    measure=partial(estimates.more_repeats, cache=dialogue.NEWEST, everything=dialogue.EVERYTHING),
    shown=partial(_show_chats, dialogue.NEWEST),
    above=CIRCLES,
    because=WHY_CIRCLES,
    other_thresholds=(0.0, 0.2),
    quantity="fraction of repeated runs of three words minus that with everything kept",
    refuted="second answers without sinks that repeat little more than with everything kept",
    unit=POINTS,
)


def _goes_on(measured: Measured) -> dict[str, Effect]:
    found = _chats(measured, dialogue.SINKS)
    return {REPETITION: found[REPETITION].below(CIRCLES), PERPLEXITY: found[PERPLEXITY].below(HARMED)}


CHAT_GOES_ON = _ways(
    id="sinks-chat-goes-on",
    text="with four sinks, repetition in the second answer of a chat rises by less than 10 percentage points, and the "
    "answers have less than 1.5 times the perplexity",
    measure=_goes_on,
    shown=partial(_show_chats, dialogue.SINKS),
    criterion=f"less than 10 percentage points more: {WHY_CIRCLES}; less than 1.5 times the perplexity: {WHY_HARMED}",
    quantity="repeated runs of three words, and perplexity to the full cache, compared with everything kept",
    refuted="answers with four sinks that go round in circles, or that are unlikely under the full cache",
)


def _without_slots(measured: Measured) -> dict[str, Effect]:
    return {variant: estimates.cost_of_few(measured, variant, 0) for variant in estimates.VARIANTS}


SLOT_MISSED = _trained(
    id="sinks-slot-missed",
    text="without its first slots each of the three models has over 5 % more perplexity",
    measure=_without_slots,
    **_lossy,
    quantity="perplexity without first slots over that with four, by kind of softmax",
    refuted="a model that loses nothing without its first slots",
    published=partial(_published_few, 0, estimates.VARIANTS),
)
VANILLA_NEEDS_MORE = _trained(
    id="sinks-vanilla-needs-more",
    text="with one first slot the vanilla model still has over 5 % more perplexity than with four",
    measure=partial(estimates.cost_of_few, variant="vanilla", sinks=1),
    **_lossy,
    quantity="perplexity with one first slot over that with four",
    refuted="a vanilla model for which one first slot is enough",
    published=partial(_published_few, 1, ("vanilla",)),
)
OWN_SLOT = _trained(
    id="sinks-own-slot",
    text="a model that is trained with a learnable sink needs only this one slot, which does over 90 % of what four do",
    **_fraction(estimates.own_slot_against_none, estimates.MOST, "alone means at least 90 % of what four do"),
    quantity="of the log-perplexity that four slots restore",
    refuted="a learnable sink that leaves a tenth or more of the loss",
    published=_published_own_slot,
)


def _show_peaks(measured: Measured) -> str:
    peaks = estimates.peaks(measured)
    cells = [f"{fmean(each):.1f} ({min(each):.1f} to {max(each):.1f}) with {n}" for n, each in peaks.items()]
    n_trainings = len(next(iter(peaks.values())))
    return f"largest patch norm over the median {', '.join(cells)} registers, {n_trainings} trainings"


REGISTERS = _trained(
    id="sinks-registers",
    text="in a vision transformer some patches exceed three median norms, and registers more than halve this norm",
    source="Darcet and others (2023), arXiv:2309.16588",
    measure=estimates.register_effects,
    criterion="over three medians without registers, less than half of that with them",
    quantity="largest norm over three medians; largest norm without registers over twice that with them",
    refuted="patches whose norms are alike, or as large with registers as without",
    shown=_show_peaks,
    larger_models=True,
)


def _of_trainings(hold: Callable[[Measured], list[bool]], measured: Measured) -> Effect:
    held = hold(measured)
    return share_above(sum(held), len(held), 0.0)


def _show_trainings(hold: Callable[[Measured], list[bool]], measured: Measured) -> str:
    held = hold(measured)
    return f"{sum(held)} of {len(held)} trainings"


_head = partial(Claim, source="Guo and others (2024), arXiv:2410.13835", results=("sinks/backcopy",))


def _idle(hold: Callable[[Measured], list[bool]], **record: str) -> Claim:
    """A claim on the idle head that has to hold in most trainings."""
    return _head(
        measure=partial(_of_trainings, hold),
        shown=partial(_show_trainings, hold),
        above=MOST,
        because=WHY_MOST,
        quantity="fraction of the trainings",
        unit=PERCENT,
        **record,
    )


def _show_idle(measured: Measured) -> str:
    gaps = [100 * gap for gap in estimates.idle_minus_busy(measured)]
    none = max(100 * row["idle_first_slot"] for row in rows(measured, "attention", variant="vanilla"))
    return (
        f"{POINTS(of_samples([gap / 100 for gap in gaps]))} ({min(gaps):.0f} to {max(gaps):.0f} by training) with a "
        f"learnable sink; the usual softmax forms no sink (at most {none:.1f} %)"
    )


IDLE = _head(
    id="sinks-idle",
    text="an idle head gives its sink over 10 percentage points more of its attention than a busy head does",
    measure=lambda measured: of_samples(estimates.idle_minus_busy(measured)),
    shown=_show_idle,
    above=MORE_WHEN_IDLE,
    because="a tenth of all attention is what the course calls a considerable part",
    other_thresholds=(0.0, 0.25, 0.5),
    quantity="attention on the sink, idle minus busy",
    refuted="an idle head that attends to its sink little more than a busy one",
    unit=POINTS,
)
BUSY = _idle(
    estimates.leaves_when_busy,
    id="sinks-busy",
    text="in most trainings a busy head gives its sink less than a tenth of its attention",
    refuted="half of the trainings or more whose busy head attends to its sink",
)
NEEDS_ITS_SINK = _idle(
    estimates.needs_its_sink,
    id="sinks-needs-its-sink",
    text=f"in most trainings the model with a sink loses over {NO_LOSS} nats per letter without it",
    refuted="half of the trainings or more that lose less",
)
CONTENT_WITH_ONE = _idle(
    estimates.is_content_with_one,
    id="sinks-content-with-one",
    text=f"in most trainings this one slot is enough, within {NO_LOSS} nats per letter of four",
    refuted="half of the trainings or more that need more slots",
)
OTHERS_LOSE_NOTHING = _idle(
    estimates.others_lose_nothing,
    id="sinks-others-lose-nothing",
    text=f"in most trainings models without a sink of their own lose less than {NO_LOSS} nats per letter",
    refuted="half of the trainings or more in which they lose more",
)
STREAM_CLAIMS = (COLLAPSE, ONE_SINK, NEWLINES, STEADY_TIME)
WAYS_CLAIMS = (DENSE_BEYOND, WINDOW_ALONG, AS_AFRESH)
CHAT_CLAIMS = (CHAT_COLLAPSES, CHAT_GOES_ON)
TRAINED_CLAIMS = (SLOT_MISSED, VANILLA_NEEDS_MORE, OWN_SLOT)
IDLE_CLAIMS = (IDLE, BUSY, NEEDS_ITS_SINK, CONTENT_WITH_ONE, OTHERS_LOSE_NOTHING)
TAKE_HOME = (COLLAPSE, ONE_IS_NOT_ENOUGH, NEWLINES, ROLLING, AS_AFRESH, OWN_SLOT)
