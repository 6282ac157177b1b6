"""The estimates that decide the claims of lesson 07, computed from the rows of its results.

Dimension key: N texts, L layers, A heads.
"""

import math
import re
from statistics import correlation as correlation_of
from statistics import fmean, median
from typing import Any

import torch
from jaxtyping import Float
from scipy.special import ndtri
from torch import Tensor

from course_lib.kv.quantized import Quantized
from course_lib.lessons.common.effects import Row, accuracy_gap, log_gap, share_gap, side_by_side
from course_lib.lessons.common.results import rows
from course_lib.lessons.common.verdicts import Effect, of_samples

Measured = dict[str, Any]
FULL, WINDOW = "Full", "Window"
FIXED_PATTERNS = (WINDOW, "StreamingLLM")  # positions alone decide what they keep
FULL_WRITER = "full"  # the cache of heavy.json that keeps everything
HEAVIEST, SPARED, RANDOM = "heaviest", "heaviest but the first", "random"  # which tokens are masked
SPARSE = PERSISTENT = 0.95  # of the weights of a layer (H2O); of the tokens that matter later (Scissorhands)
HALF = 0.5  # of the weights of a layer
FITS = 0.95  # r² of a power law
SUFFICE = 0.05  # of the tokens: "over 95 % of the weights are negligible"
NEAR_TOKENS = 16  # of a query, itself included; as the experiment counts them
DEPTHS = (0.5, 0.9)  # the middle and the end of a prompt
FIFTH = 0.2  # of the prompt


def layers(measured: Measured, start: str = "text") -> list[Row]:
    """Attention statistics by layer, on texts that begin with a word ("text") or with a special token ("special")."""
    return rows(measured, "attention", start=start)


def counted(value: float, measured: Measured) -> Effect:
    """A number that all layers give together. It has no error, and its sample is the texts, not the layers."""
    return Effect(value=value, error=0.0, n=layers(measured)[0].get("n_windows"))


def budget_name(row: Row) -> str:
    return f"{100 * row['budget']:.0f} % kept"


def by_budget(measured: Measured, table: str, **wanted: str) -> list[Row]:
    return sorted(rows(measured, table, **wanted), key=lambda row: row["budget"])


# Layers in which a property holds: one boolean per layer.


def is_sparse(measured: Measured) -> list[bool]:
    return [row["sparsity"] > SPARSE for row in layers(measured)]


def is_mostly_sparse(measured: Measured) -> list[bool]:
    return [row["sparsity"] > HALF for row in layers(measured)]


def follows_power_law(measured: Measured) -> list[bool]:
    """Whether a power of the rank fits the attention that tokens receive closely."""
    return [row["r_squared"] > FITS for row in layers(measured)]


def is_heavy_tailed(measured: Measured) -> list[bool]:
    """Whether a power of the rank fits better than an exponential, as many heavy-tailed curves would."""
    return [row["r_squared"] > row["exponential_r_squared"] for row in layers(measured)]


def beats_log_normal(measured: Measured) -> list[bool]:
    """Whether a power law fits the stored curve better than a log-normal distribution of as many values does.

    Of n values from a log-normal distribution, the logarithm of the k-th largest is linear in the normal quantile of
    1 - (k - 1/2) / n. Both lines are fitted to the same ranks, those of the power law.
    """
    return [_power_law_is_closer(row, curve) for row, curve in zip(layers(measured), _curves(measured), strict=True)]


def _curves(measured: Measured) -> list[Row]:
    return rows(measured, "mass_by_rank", start="text")


def _power_law_is_closer(layer: Row, curve: Row) -> bool:
    points = zip(curve["rank"], curve["mass"], strict=True)
    fitted = [(rank, math.log(mass)) for rank, mass in points if layer["first_rank"] <= rank <= layer["last_rank"]]
    mass = [log_mass for _, log_mass in fitted]
    power = [math.log(rank) for rank, _ in fitted]
    log_normal = [float(ndtri(1 - (rank - 0.5) / layer["length"])) for rank, _ in fitted]
    return correlation_of(power, mass) ** 2 > correlation_of(log_normal, mass) ** 2


def is_persistent(measured: Measured) -> list[bool]:
    """Whether tokens that matter later mattered before, by the mean over the queries that see them.

    The paper counts a token that matters to any single query. Nearly every token does, so that nearly every set of
    tokens would pass.
    """
    return [row["persistence_mean"] > PERSISTENT for row in layers(measured)]


# The median of all layers: no layer is left out.


def first_token_weight(measured: Measured, start: str = "text") -> Effect:
    """The fraction of all attention that the first token receives."""
    return counted(median(row["first_token"] for row in layers(measured, start)), measured)


def first_token_in_even_shares(measured: Measured, start: str = "text") -> Effect:
    """The same over that of an even distribution. Query i spreads over i tokens: 1 / i each."""
    length = layers(measured, start)[0]["length"]
    even = sum(1 / i for i in range(1, length + 1)) / length
    return counted(median(row["first_token"] / even for row in layers(measured, start)), measured)


def neighbours_in_even_shares(measured: Measured) -> Effect:
    """Attention to the NEAR_TOKENS nearest tokens over that of an even distribution."""
    _, *kinds = rows(measured, "attention_kinds", start="text")
    even = sum(min(NEAR_TOKENS / i, 1) for i in range(1, kinds[0]["length"] + 1)) / kinds[0]["length"]
    return counted(median(row["near"] / even for row in kinds), measured)


def punctuation_over_words(measured: Measured) -> Effect:
    """Attention per punctuation token over attention per word token, beyond the nearest tokens."""
    tokens, *kinds = rows(measured, "attention_kinds", start="text")
    by_word = tokens["punctuation"] / tokens["word"]
    return counted(median(row["punctuation"] / (by_word * row["word"]) for row in kinds), measured)


def top_5_percent(measured: Measured, but_first: bool = False) -> Effect:
    """The fraction of all attention that the 5 % most attended tokens receive, with or without the first token."""
    return counted(median(row["top_5_percent"] - but_first * row["first_token"] for row in layers(measured)), measured)


def sparsity_by_text(measured: Measured) -> list[list[float]]:
    """The fraction of negligible weights, text by text, in each layer."""
    return [list(text) for text in zip(*(row["sparsity_by_text"] for row in layers(measured)), strict=True)]


def thirds(sparsity: list[float]) -> tuple[list[float], list[float]]:
    """The layers of the first and of the last third."""
    third = len(sparsity) // 3
    return sparsity[:third], sparsity[-third:]


def deep_minus_shallow(measured: Measured) -> Effect:
    """Fraction of negligible weights, text by text: mean of the last third of the layers minus that of the first."""
    ends = [map(fmean, thirds(text)) for text in sparsity_by_text(measured)]
    return of_samples([last - first for first, last in ends])


# Compressed prompts, streams and needles, from measured.json.


def compressed(measured: Measured, policy: str, budget: float) -> Row:
    return rows(measured, "compressed", policy=policy, budget=budget)[0]


def gains(measured: Measured, policy: str, rivals: tuple[str, ...]) -> dict[str, Effect]:
    """At every budget and for every rival: its perplexity over the policy's, as a logarithm."""
    return {
        (f"{rival} with " if len(rivals) > 1 else "") + budget_name(row): log_gap(
            row, compressed(measured, rival, row["budget"])
        )
        for row in by_budget(measured, "compressed", policy=policy)
        for rival in rivals
    }


def gain_at_tightest(measured: Measured, policy: str, rival: str) -> Effect:
    """The same at the smallest budget."""
    return next(iter(gains(measured, policy, (rival,)).values()))


def losses_by_budget(measured: Measured, policies: tuple[str, ...]) -> dict[str, Effect]:
    """By policy and budget: its perplexity over that of the full cache, as a logarithm."""
    (full,) = rows(measured, "compressed", policy=FULL)
    return {
        (f"{policy} with " if len(policies) > 1 else "") + budget_name(row): log_gap(full, row)
        for policy in policies
        for row in by_budget(measured, "compressed", policy=policy)
    }


def range_of_bytes(measured: Measured, policy: str, rival: str) -> tuple[float, float]:
    """The smallest and the largest number of bytes of a policy over those of a rival with the same budget."""
    table = by_budget(measured, "compressed", policy=policy)
    ratios = [row["bytes"] / compressed(measured, rival, row["budget"])["bytes"] for row in table]
    return min(ratios), max(ratios)


def saved_by_eviction(measured: Measured) -> dict[str, Effect]:
    """Bytes and slots of the full cache over those of H2O with a fifth of it, as logarithms; a step reads all slots."""
    (full,) = rows(measured, "compressed", policy=FULL)
    h2o = compressed(measured, "H2O", FIFTH)
    columns = {"bytes": "bytes", "slots": "multiplications per step"}
    return {name: Effect(value=math.log(full[key] / h2o[key]), error=0.0) for key, name in columns.items()}


def smallest_cache(measured: Measured, policy: str, times: int | float) -> Row:
    """The smallest measured cache of a policy that is at most `times` smaller than the full one, in bytes.

    Scissorhands evicts half of its budget at once, so a budget of half the prompt holds a quarter of it.
    """
    (full,) = rows(measured, "compressed", policy=FULL)
    within = [r for r in rows(measured, "compressed", policy=policy) if full["bytes"] <= times * r["bytes"]]
    return min(within, key=lambda row: row["bytes"])


def loss_of_smaller_cache(measured: Measured, times: int | float, policy: str = "Scissorhands") -> Effect:
    """Perplexity with the smallest cache that is at most `times` smaller over that with all of it, as a logarithm."""
    (full,) = rows(measured, "compressed", policy=FULL)
    return log_gap(full, smallest_cache(measured, policy, times))


def times_smaller_with_codes(n_tokens: int, head_size: int = 64, times_fewer: int = 5) -> float:
    """Bytes of a full cache in float16 over those of a fifth of its slots in 4 bits, counted for one head.

    The newest tokens of `Quantized` stay in float16, and each group of a vector has a minimum and a step.
    """
    vectors = Quantized(bits=4)
    packed = vectors.pack("key", torch.ones(1, 1, 1, head_size, dtype=torch.float16))
    rounded = sum(part.nbytes for part in packed.values())
    full, n_kept = 2 * head_size, n_tokens // times_fewer
    return n_tokens * full / ((n_kept - vectors.residual) * rounded + vectors.residual * full)


def loss_of_four_bits(measured: Measured) -> dict[str, Effect]:
    """Perplexity with the kept keys and values in 4 bits over that in 32 bits, as a logarithm."""
    return {
        policy: log_gap(compressed(measured, policy, FIFTH), rows(measured, "quantized", policy=policy, bits=4)[0])
        for policy in ("Scissorhands", "StreamingLLM")
    }


def loss_of_streaming(measured: Measured) -> Effect:
    """Perplexity of a stream through StreamingH2O over that with everything kept, as a logarithm."""
    full, streamed = (rows(measured, "policies", policy=name)[0] for name in (FULL, "StreamingH2O"))
    return log_gap(full, streamed)


def end_minus_middle(measured: Measured) -> dict[str, Effect]:
    """Needles that StreamingLLM finds at the end minus those in the middle, for tasks that the full cache solves."""
    effects = {}
    for full in rows(measured, "retrieval", policy=FULL):
        for budget in (FIFTH, 0.5) if full["usable"] else ():
            label = {"task": full["task"], "policy": "StreamingLLM", "budget": budget}
            middle, end = (rows(measured, "retrieval_depths", **label, depth=depth)[0] for depth in DEPTHS)
            gap = share_gap(end["exact"], middle["exact"], end["n"])
            effects[f"{full['task']} with {budget_name(label)}"] = gap
    return effects


def above_window(measured: Measured) -> dict[str, Effect]:
    """Right answers of each policy minus those of a plain window of as many slots, on the same needles."""
    effects = {}
    for full in rows(measured, "retrieval", policy=FULL):
        for window in by_budget(measured, "retrieval", task=full["task"], policy=WINDOW) if full["usable"] else ():
            gaps = needles_above_window(measured, window)
            effects |= {f"{name} on {full['task']} with {budget_name(window)}": gap for name, gap in gaps.items()}
    return effects


def needles_above_window(measured: Measured, window: Row) -> dict[str, Effect]:
    """The same for one task and budget: those of the window's row."""
    others = rows(measured, "retrieval", task=window["task"], budget=window["budget"])
    return {row["policy"]: accuracy_gap(row, window, "exact") for row in others if row["policy"] not in (WINDOW, FULL)}


def second_answers(measured: Measured, question: int = 2) -> dict[str, Row]:
    """The second of two questions (or the first), by cache."""
    return {row["policy"]: row for row in rows(measured, "second_needle", question=question)}


def looks_again(policy: str) -> bool:
    return policy.startswith("recycled") and "never" not in policy


def best_eviction(measured: Measured) -> Row:
    """Of the caches that do not look again, the one with the most right second answers."""
    evicting = [row for name, row in second_answers(measured).items() if not looks_again(name) and name != FULL]
    return max(evicting, key=lambda row: row["exact"])


def gains_of_looking_again(measured: Measured) -> dict[str, Effect]:
    """Right second answers minus those of the best eviction, by the rule that decides when to look again."""
    best = best_eviction(measured)
    return {
        name.removeprefix("recycled, "): accuracy_gap(row, best, "exact")
        for name, row in second_answers(measured).items()
        if looks_again(name)
    }


def beyond_twice_local(measured: Measured) -> dict[str, Effect]:
    """Right answers minus twice those of a window with sinks, text by text, by question and rule for looking again."""
    effects = {}
    for question, ordinal in ((1, "first"), (2, "second")):
        answers = second_answers(measured, question)
        local = answers["StreamingLLM"]["right"]
        for name, row in answers.items():
            if looks_again(name):
                gaps = [int(ours) - 2 * int(theirs) for ours, theirs in zip(row["right"], local, strict=True)]
                effects[f"{ordinal} question {name.removeprefix('recycled, ')}"] = of_samples(gaps)
    return effects


# Heavy hitters, from heavy.json.


def above_full(row: Row) -> Effect:
    """Loss above that with all weights read, text by text."""
    return of_samples([loss - full for loss, full in zip(row["losses"], row["full"], strict=True)])


def suffices(heavy: Measured) -> Row:
    """The row in which every query reads 5 % of the tokens."""
    (row,) = rows(heavy, "enough", share=SUFFICE)
    return row


def masked_above_random(heavy: Measured, which: str) -> dict[str, Effect]:
    """Loss with some heavy hitters masked minus that with as many random tokens masked, by fraction of the tokens."""
    effects = {}
    for row in sorted(rows(heavy, "masked", which=which), key=lambda row: row["share"]):
        (chance,) = rows(heavy, "masked", which=RANDOM, share=row["share"])
        pairs = zip(row["losses"], chance["losses"], strict=True)
        effects[f"{100 * row['share']:.0f} % masked"] = of_samples([heavy - random for heavy, random in pairs])
    return effects


def beyond_a_quarter(heavy: Measured) -> dict[str, Effect]:
    """By budget: the fraction of the tokens kept by H2O's sum that lie in the first quarter of a prompt, minus 25 %."""
    return {
        budget_name(row): of_samples(row["first_quarter"], threshold=0.25)
        for row in by_budget(heavy, "bias", score="sum")
    }


def sum_minus_mean(heavy: Measured, column: str) -> dict[str, Effect]:
    """A column of the table "bias", prompt by prompt: with H2O's sum minus with the mean over queries, by budget."""
    effects = {}
    for by_sum in by_budget(heavy, "bias", score="sum"):
        (by_mean,) = rows(heavy, "bias", score="mean", budget=by_sum["budget"])
        pairs = zip(by_sum[column], by_mean[column], strict=True)
        effects[budget_name(by_sum)] = of_samples([a - b for a, b in pairs])
    return effects


def written_gap(heavy: Measured, column: str, writer: str, other: str) -> Effect:
    """A column of what two caches wrote after the same prompts: the first minus the second."""
    by_writer = {row["policy"]: row[column] for row in rows(heavy, "written")}
    return of_samples([a - b for a, b in zip(by_writer[writer], by_writer[other], strict=True)])


def correlation(heavy: Measured, which: str) -> Effect:
    """Rank correlation of a token's count with what it receives, mean over texts: "whole" (in all) or "each"."""
    return of_samples([row[which] for row in rows(heavy, "words")])


def head_gaps(heavy: Measured) -> dict[str, Effect]:
    names = {"sparsity": "fraction of negligible weights", "likeness": "cosine of the most similar earlier key"}
    table = rows(heavy, "heads")
    return {name: apart(torch.tensor([row[key] for row in table])) for key, name in names.items()}


def apart(by_text: Float[Tensor, "N L A"]) -> Effect:
    """The first minus the last head of a layer, mean over layers, where another half of the texts chose the two.

    Some head of several always comes first, if only by chance, so a text must not judge heads that it chose. Each half
    chooses for the other, so that every text is a sample.
    """
    halves = by_text[0::2], by_text[1::2]
    gaps = [gap for chosen, read in (halves, reversed(halves)) for gap in _gaps(chosen.mean(dim=0), read)]
    return of_samples(gaps)


def _gaps(chosen: Float[Tensor, "L A"], read: Float[Tensor, "N L A"]) -> list[float]:
    most, least = (index[None, :, None].expand(len(read), -1, 1) for index in (chosen.argmax(1), chosen.argmin(1)))
    return (read.gather(2, most) - read.gather(2, least)).mean(dim=(1, 2)).tolist()


# Decoding times, from the bench cpu_kv.


def speedups(bench: Measured, side: str, other: str) -> dict[str, Effect]:
    """Log of one cache's time per step over another's, by batch size. Both were timed against the same anchor."""
    effects = {}
    for row in rows(bench, "sides", side=side):
        if found := re.search(r"steps of (\d+)", row["contest"]):  # prompts are not decoded
            (slower,) = rows(bench, "sides", side=other, contest=row["contest"])
            effects[f"batch size {found[1]}"] = side_by_side(row, slower)
    return effects
