"""The estimates that decide the claims of lesson 08, computed from the rows of its results.

Dimension key: C compared predictions.
"""

import math
import re
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.lessons.common.claim import NO_LOSS
from course_lib.lessons.common.effects import Row, log_gap, of_repetitions
from course_lib.lessons.common.results import rows
from course_lib.lessons.common.verdicts import Effect, of_independent, of_samples, of_series
from course_lib.lessons.sinks.experiments import four_ways
from course_lib.measure.paired import mean_and_error

Measured = dict[str, Any]
EVERYTHING = "everything kept"
VARIANTS = ("vanilla", "zero sink", "learnable sink")
RESTORED, ALMOST = 0.8, 0.9  # of the difference of two log-perplexities
HIGH = 3.0  # medians: norms above that are called high, as in the measurement
HALF = 2.0  # registers must bring the largest norm down to less than a half
MOST = 0.9  # of what all first slots do
BUSY = 0.1  # of the attention of a query
TRAINED = 8192  # tokens: the length of the texts that the model was trained on


# The long stream of lesson 07's measured.json.


def by_block(measured: Measured, *names: str) -> list[Float[Tensor, "n"]]:
    """The log-perplexities of the blocks that the caches of these names have all read, once those are full."""
    found = [rows(measured, "streaming", name=name)[0] for name in names]
    key = "compared_losses" if EVERYTHING in names else "losses"
    if all(key in row for row in found):
        return [torch.tensor(row[key], dtype=torch.float64) for row in found]
    curves = [rows(measured, "streaming_curves", name=name)[0]["perplexity"][1:] for name in names]
    shortest = min(len(curve) for curve in curves)
    return [torch.tensor(curve[:shortest], dtype=torch.float64).log() for curve in curves]


def lost_by_window(measured: Measured) -> Effect:
    """Log-perplexity of a window without sinks minus that with everything kept."""
    window, full = by_block(measured, "0 sinks", EVERYTHING)
    return of_series(window - full)


def fraction_restored(lost: Float[Tensor, "n"], gained: Float[Tensor, "n"], fraction: float) -> Effect:
    """The gain as a fraction of the loss, with the error of gain − fraction · loss on the same scale.

    This error is that of the test whether more than `fraction` of the loss is gained.
    """
    whole = lost.mean().item()
    effect = of_series(gained - fraction * lost)
    return Effect(value=gained.mean().item() / whole, error=effect.error / abs(whole), n=effect.n)


def one_sink_against_none(measured: Measured) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """The loss of a window without sinks against the full cache, and the gain of one sink over that window."""
    window, full, one = by_block(measured, "0 sinks", EVERYTHING, "1 sink")
    return window - full, window - one


def newlines_against_none(measured: Measured) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """The gains over a window without sinks: with the text's own first four tokens, and with four newlines."""
    newlines, own, window = by_block(measured, "4 newlines", "4 sinks", "0 sinks")
    return window - own, window - newlines


def one_minus_four(measured: Measured) -> Effect:
    """Log-perplexity with one sink minus that with four."""
    one, four = by_block(measured, "1 sink", "4 sinks")
    return of_series(one - four)


def original_minus_rolling(measured: Measured) -> Effect:
    """Log-perplexity with positions of the text minus that with positions in the cache, at the largest distance."""
    farthest = max(row["gap"] for row in rows(measured, "gaps"))
    original, rolling = (
        rows(measured, "gaps", positions=positions, gap=farthest)[0] for positions in ("original", "rolling")
    )
    return log_gap(rolling, original)


def over_no_distance(measured: Measured, positions: str) -> dict[str, Effect]:
    """By distance of the sinks beyond the trained length: log-perplexity minus that at no distance."""
    table = sorted(rows(measured, "gaps", positions=positions), key=lambda row: row["gap"])
    near, *others = table
    return {f"{row['gap']:,} positions": log_gap(near, row) for row in others if row["gap"] > TRAINED}


def time_of_second_half(measured: Measured) -> Effect:
    """Log of the time per token in the second half of the stream minus that in the first, from the parts of each."""
    (row,) = rows(measured, "streaming_curves", name="4 sinks")
    times = torch.tensor(row["milliseconds_per_token"], dtype=torch.float64).log()
    first, second = (mean_and_error(half) for half in (times[: len(times) // 2], times[len(times) // 2 :]))
    return of_independent(first, second)


def speedups_of_stream(bench: Measured) -> dict[str, Effect]:
    """By window, the smallest first: log of the time to read it again over that of one token of a stream."""
    timed = [row for row in rows(bench, "sides", contest="a token of a stream") if row["side"] != row["anchor"]]
    return {f"{row['shape'][-1]:,} slots": of_repetitions(row) for row in sorted(timed, key=lambda row: row["shape"])}


def speedup_of_stream(bench: Measured) -> Effect:
    """That of the largest window."""
    *_, largest = speedups_of_stream(bench).values()
    return largest


# Four ways to read on, and chats, from four_ways.json.


def losses(measured: Measured, way: str) -> Float[Tensor, "C"]:
    """The losses of the predictions that all ways make."""
    (row,) = rows(measured, "ways", way=way)
    return torch.tensor(row["losses"], dtype=torch.float64)


def blocks(measured: Measured, way: str, first: int) -> Float[Tensor, "n"]:
    """The losses of the blocks that begin at a token or later: every prediction, where nothing was read again."""
    (row,) = rows(measured, "ways", way=way)
    return torch.tensor(row["blocks"][math.ceil(first / row["block"]) :], dtype=torch.float64)


def _behind_dense(measured: Measured) -> Float[Tensor, "n"]:
    """StreamingLLM's loss minus that of dense attention by block, from the budget on up to the trained length."""
    (row,) = rows(measured, "ways", way=four_ways.STREAMING)
    n_blocks = (row["trained"] - row["budget"]) // row["block"]
    sides = (blocks(measured, way, row["budget"])[:n_blocks] for way in (four_ways.STREAMING, four_ways.DENSE))
    streaming, dense = sides
    return streaming - dense


def drifting_tokens(measured: Measured) -> int:
    """How many tokens the drift is measured on."""
    return len(_behind_dense(measured)) * rows(measured, "ways", way=four_ways.STREAMING)[0]["block"]


def drift(measured: Measured) -> Effect:
    """How much more loss StreamingLLM adds to dense attention in the second half of the text than in the first.

    Both read the same blocks, so that a harder second half of the text drops out.
    """
    behind = _behind_dense(measured)
    before, after = map(of_series, (behind[: len(behind) // 2], behind[len(behind) // 2 :]))
    error, n = math.hypot(before.error, after.error), min(before.n, after.n)
    return Effect(value=after.value - before.value, error=error, n=n)


def repeated(text: str) -> float:
    """The fraction of a text's runs of three words that occurred in it before."""
    words = re.findall(r"[a-z0-9']+", text.lower())
    runs = list(zip(words, words[1:], words[2:], strict=False))
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def repeats(measured: Measured, cache: str, number: int) -> list[float]:
    """For each chat, the fraction of the first or second answer that is repetition."""
    return [repeated(row["text"]) for row in rows(measured, "chats", cache=cache, round=number)]


def more_repeats(measured: Measured, cache: str, everything: str) -> Effect:
    """Repetition in the second answers with a cache minus that with everything kept."""
    pairs = zip(repeats(measured, cache, 2), repeats(measured, everything, 2), strict=True)
    return of_samples([a - b for a, b in pairs])


def less_likely(measured: Measured, cache: str, everything: str) -> Effect:
    """The loss of a chat's two answers to the full cache, minus that of the answers with everything kept."""

    def by_chat(name: str) -> list[float]:
        rounds = ([row["loss"] for row in rows(measured, "chats", cache=name, round=number)] for number in (1, 2))
        return [fmean(chat) for chat in zip(*rounds, strict=True)]

    return of_samples([a - b for a, b in zip(by_chat(cache), by_chat(everything), strict=True)])


# Models trained with a sink, and vision transformers with registers, from sink_pretraining.json.


def losses_by_sinks(measured: Measured, variant: str) -> dict[int, list[float]]:
    """The loss of each document, by the number of first slots kept."""
    return {row["sinks"]: row["losses"] for row in rows(measured, "streaming", variant=variant)}


def cost_of_few(measured: Measured, variant: str, sinks: int) -> Effect:
    """Loss of a model that keeps so many first slots minus that with the most, document by document."""
    by_sinks = losses_by_sinks(measured, variant)
    return of_samples([less - most for less, most in zip(by_sinks[sinks], by_sinks[max(by_sinks)], strict=True)])


def own_slot_against_none(measured: Measured) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """The learnable sink's loss with no first slot instead of the most, and its gain with one slot instead of none."""
    by_sinks = losses_by_sinks(measured, "learnable sink")
    none, one, most = (torch.tensor(by_sinks[n], dtype=torch.float64) for n in (0, 1, max(by_sinks)))
    return none - most, none - one


def peaks(measured: Measured) -> dict[int, list[float]]:
    """By number of registers, for each training: the largest patch norm over the median in its highest layer."""
    norms = rows(measured, "registers")
    return {
        n: [
            max(row["largest"] / row["median"] for row in norms if (row["registers"], row["seed"]) == (n, seed))
            for seed in sorted({row["seed"] for row in norms})
        ]
        for n in sorted({row["registers"] for row in norms})
    }


def register_effects(measured: Measured) -> dict[str, Effect]:
    """Logs of the largest norm over HIGH medians without registers, and over HALF times that with most registers."""
    without, *_, with_most = peaks(measured).values()
    return {
        "without registers": of_samples([math.log(peak / HIGH) for peak in without]),
        "with registers": of_samples(
            [math.log(before / after / HALF) for before, after in zip(without, with_most, strict=True)]
        ),
    }


# A head that is idle most of the time, from backcopy.json: one value per training.


def _own(measured: Measured) -> list[Row]:
    return rows(measured, "attention", variant="learnable sink")


def _others(measured: Measured, variant: str, sinks: int) -> list[float]:
    """The loss at all letters that the head does not predict, by training."""
    return [row["others"] for row in rows(measured, "streaming", variant=variant, sinks=sinks)]


def _cost(measured: Measured, variant: str, sinks: int) -> list[float]:
    pairs = zip(_others(measured, variant, sinks), _others(measured, variant, 4), strict=True)
    return [few - four for few, four in pairs]


def idle_minus_busy(measured: Measured) -> list[float]:
    """By training: the attention of the idle head on its sink minus that of the busy head."""
    return [row["idle_first_slot"] - row["busy_first_slot"] for row in _own(measured)]


def leaves_when_busy(measured: Measured) -> list[bool]:
    return [row["busy_first_slot"] < BUSY for row in _own(measured)]


def needs_its_sink(measured: Measured) -> list[bool]:
    return [more > NO_LOSS for more in _cost(measured, "learnable sink", 0)]


def is_content_with_one(measured: Measured) -> list[bool]:
    return [abs(more) < NO_LOSS for more in _cost(measured, "learnable sink", 1)]


def others_lose_nothing(measured: Measured) -> list[bool]:
    return [more < NO_LOSS for variant in VARIANTS[:2] for more in _cost(measured, variant, 0)]
