"""The claims of lesson 08: verdicts follow from the numbers."""

import pytest
from made_up_sinks import made_up_backcopy, made_up_stream, made_up_ways

from course_lib.lessons.sinks import claims, estimates
from course_lib.lessons.sinks.experiments import four_ways


def test_far_sinks_are_judged_block_by_block_at_the_largest_gap():
    found = made_up_stream()
    for row in found["tables"]["gaps"]:
        row["losses"] = [3.0, 2.0, 2.5] if row["positions"] == "rolling" else [3.5, 2.4, 3.2]
    judged = claims.ROLLING.judge(found)
    assert (judged.words, judged.n, judged.ours) == ("holds", "3", "1.70 ± 0.15 times")  # exp of 0.53 ± 0.09
    for row in found["tables"]["gaps"]:
        row["losses"] = row["losses"][::-1] if row["positions"] == "rolling" else [3.5, 2.4, 2.0]
    assert claims.ROLLING.judge(found).verdict == "undecided"


@pytest.mark.parametrize(
    ("changed", "verdicts"),
    [
        ({}, ["holds", "holds", "holds", "holds"]),
        ({"everything": 25.0}, ["does not hold", "holds", "holds", "holds"]),
        ({"everything": 1.0}, ["holds", "does not hold", "holds", "holds"]),
    ],
    ids=["as measured", "no collapse", "not restored"],
)
def test_verdicts_follow_from_the_numbers(changed, verdicts):
    found = made_up_stream(**changed)
    judged = [claim.judge(found) for claim in claims.STREAM_CLAIMS]
    assert [each.words for each in judged] == verdicts
    shares = [each.ours for each in judged[1:3]]  # log 30 / 12 over log 30 / 10; log 30 / 11.5 over log 30 / 11
    assert shares[0].startswith("83.4 %") or changed
    assert shares[1].startswith("95.6 %")


def test_a_stream_that_slows_down_is_not_flat():
    found = made_up_stream()
    for row in found["tables"]["streaming_curves"]:
        row["milliseconds_per_token"] = [20.0, 20.4, 40.0, 41.0]
    judged = claims.STEADY_TIME.judge(found)
    assert (judged.verdict, judged.ours[:4]) == ("does not hold", "2.00")


def trained(**more_by_variant):
    """Losses of three documents with 0, 1 and 4 first slots: so much more than with 4, with a little spread."""
    table = [
        {"variant": variant, "sinks": sinks, "losses": [3.0 + more, 3.1 + more + 0.001, 2.9 + more - 0.001]}
        for variant, costs in more_by_variant.items()
        for sinks, more in zip((0, 1, 4), (*costs, 0.0), strict=True)
    ]
    return {"tables": {"streaming": table}}


@pytest.mark.parametrize(
    ("vanilla", "learned", "verdicts"),
    [
        ((0.5, 0.2), (0.9, 0.0), ["holds", "holds", "holds"]),
        ((0.0, 0.0), (0.9, 0.2), ["mixed", "does not hold", "does not hold"]),
    ],
    ids=["as in the paper", "otherwise"],
)
def test_claims_on_pretraining_follow_from_paired_losses(vanilla, learned, verdicts):
    found = trained(**{"vanilla": vanilla, "zero sink": (0.7, 0.1), "learnable sink": learned})
    judged = [claim.judge(found) for claim in claims.TRAINED_CLAIMS]
    assert [each.verdict for each in judged] == verdicts
    assert list(judged[0].effects) == ["vanilla", "zero sink", "learnable sink"]


@pytest.mark.parametrize(("largest", "verdict"), [(8.0, "holds"), (1.5, "not at this scale")], ids=["high", "low"])
def test_registers_hold_where_patches_stood_out(largest, verdict):
    table = [
        {"registers": n, "seed": seed, "layer": layer, "largest": value * (1 + 0.1 * seed), "median": 2.0}
        for n, high in ((0, 2 * largest), (4, 3.0))
        for layer, value in enumerate((2.0, high))
        for seed in (-1, 0, 1)
    ]
    judged = claims.REGISTERS.judge({"tables": {"registers": table}})
    assert judged.ours.startswith(f"largest patch norm over the median {largest} (")
    assert judged.ours.endswith("1.5 (1.4 to 1.7) with 4 registers, 3 trainings")
    assert judged.words == verdict


def verdicts(judged, found):
    return [claim.judge(found).verdict for claim in judged]


def test_verdicts_follow_from_pairs():
    assert verdicts(claims.WAYS_CLAIMS, made_up_ways()) == ["holds", "holds", "holds"]
    found = made_up_ways(dense=2.1, window=2.0, afresh=1.5)
    assert verdicts(claims.WAYS_CLAIMS, found) == ["does not hold"] * 3
    assert claims.DENSE_BEYOND.judge(made_up_ways()).ours.endswith("times, 100 % beyond that length")


def test_chats_are_judged_by_repetition_and_by_what_the_full_cache_finds_likely():
    assert verdicts(claims.CHAT_CLAIMS, made_up_ways()) == ["holds", "holds"]
    fluent = made_up_ways(circles="a b c d e f")
    assert verdicts(claims.CHAT_CLAIMS, fluent) == ["does not hold", "holds"]
    assert claims.CHAT_COLLAPSES.judge(made_up_ways(lost=0.5)).ours == (
        "+57.1 percentage points of repeated runs of three words in the second answers, 1.65 times the perplexity of "
        "both answers to the full cache, compared with everything kept"
    )
    unlikely = made_up_ways(lost=0.5)  # e^0.5 = 1.65
    assert claims.CHAT_GOES_ON.judge(unlikely).words == "mixed (holds in repetition; fails in perplexity)"
    going_round = made_up_ways(lost=0.5, with_sinks="a b c a b c a b c")
    assert claims.CHAT_GOES_ON.judge(going_round).words == "does not hold"


def ways_by_block(falling_behind=0.0):
    """16 blocks within the trained length; StreamingLLM falls behind dense attention in the second half."""
    hard = [2.0 + 0.3 * (i % 4) + 0.5 * (i > 8) for i in range(16)]  # the second half of the text is harder
    behind = [0.06 + 0.01 * (-1) ** i + falling_behind * (i > 8) for i in range(16)]
    ways = {four_ways.DENSE: hard, four_ways.STREAMING: [a + b for a, b in zip(hard, behind, strict=True)]}
    table = [{"way": way, "trained": 64, "budget": 4, "block": 4, "blocks": losses} for way, losses in ways.items()]
    return {"tables": {"ways": table}}


@pytest.mark.parametrize(("more", "word"), [(0.0, "holds"), (0.05, "undecided"), (0.1, "not at this scale")])
def test_a_stream_is_steady_where_it_falls_no_further_behind(more, word):
    judged = claims.STREAM_STEADY.judge(ways_by_block(more))
    assert judged.verdict == word
    assert judged.ours.endswith("times, over 60 tokens (0.0 % of 4 million)")  # blocks 1 to 15


def test_repetition_counts_runs_of_three_words():
    assert estimates.repeated("One, two three. Four") == 0.0
    assert estimates.repeated("a-b c a b c a") == pytest.approx(0.4)  # abc bca cab abc bca
    assert estimates.repeated("two words") == 0.0


def test_claims_are_counted_over_seeds():
    measured = made_up_backcopy(n_seeds=5)
    judged = [claim.judge(measured) for claim in claims.IDLE_CLAIMS]
    assert [each.words for each in judged] == ["holds"] * 5
    assert [each.ours for each in judged[1:]] == ["5 of 5 trainings"] * 3 + ["10 of 10 trainings"]
    measured = made_up_backcopy(lost=0.0, n_seeds=5)
    for row in measured["tables"]["attention"][-2:]:
        row["busy_first_slot"] = 0.4
    busy, needs = claims.BUSY.judge(measured), claims.NEEDS_ITS_SINK.judge(measured)
    assert (busy.verdict, busy.ours) == ("undecided", "3 of 5 trainings")  # says nothing of most
    assert (needs.verdict, needs.ours) == ("does not hold", "0 of 5 trainings")


@pytest.mark.parametrize(
    ("idle", "verdict"),
    [
        ((0.9, 0.5, 0.7, 0.6, 0.8), "holds"),
        ((0.05, 0.02, 0.04, 0.03, 0.06), "does not hold"),
        ((0.9, 0.0, 0.0, 0.1, 0.0), "undecided"),
    ],
)
def test_idle_heads_are_compared_with_busy_ones_by_training(idle, verdict):
    measured = made_up_backcopy(n_seeds=5)
    for row, share in zip(measured["tables"]["attention"][-5:], idle, strict=True):
        row["idle_first_slot"] = share
    judged = claims.IDLE.judge(measured)
    assert (judged.verdict, judged.n) == (verdict, "5")
    assert judged.ours.endswith("the usual softmax forms no sink (at most 2.0 %)")


NOISE = (-0.002, 0.0, 0.002, 0.001)


def losses(*means):
    return [mean + each for mean in means for each in NOISE]


def made_up_stream_and_bench(one_sink=0.0, original=2.0, rolling=2.0, times=30.0):
    """Distances of 0, of 100 (within the trained length, which decides nothing) and of 16,384."""
    stream = {"4 sinks": losses(3.0, 3.0), "1 sink": losses(3.0 + one_sink, 3.0 + one_sink)}
    streaming = [{"name": name, "losses": values} for name, values in stream.items()]
    found = [
        {"positions": positions, "gap": gap, "losses": losses(mean), "perplexity": 1.0, "standard_error": None}
        for gap, far, near in ((0, 2.0, 2.0), (100, 9.0, 9.0), (16384, original, rolling))
        for positions, mean in (("original", far), ("rolling", near))
    ]
    sides = [
        {"contest": "a token of a stream", "shape": [size], "side": side, "anchor": "the window recomputed"}
        | {"times_anchor": t, "times_anchor_low": t / 1.02, "times_anchor_high": t * 1.02}
        for size, factor in ((128, 100.0), (4096, times))
        for side, t in (("the window recomputed", 1.0), ("StreamingLLM", factor))
    ]
    return {"tables": {"streaming": streaming, "gaps": found}}, {"tables": {"sides": sides}}


@pytest.mark.parametrize(
    ("changed", "claim", "word"),
    [
        ({"one_sink": 0.08}, claims.ONE_IS_NOT_ENOUGH, "holds"),
        ({"one_sink": 0.03}, claims.ONE_IS_NOT_ENOUGH, "does not hold"),
        ({"one_sink": 0.0}, claims.ONE_IS_NOT_ENOUGH, "does not hold"),
        ({"original": 6.0}, claims.ROLLING, "holds"),
        ({"original": 1.5}, claims.ROLLING, "not at this scale"),
        ({"original": 2.0}, claims.ROLLING, "not at this scale"),  # no difference, without noise: counted
        ({"original": 6.0}, claims.FAR_POSITIONS, "holds"),
        ({"original": 2.1}, claims.FAR_POSITIONS, "does not hold"),
        ({"rolling": 2.01}, claims.CACHE_POSITIONS, "holds"),
        ({"rolling": 2.1}, claims.CACHE_POSITIONS, "does not hold"),
        ({"times": 30.0}, claims.TWENTY_TWO, "holds"),
        ({"times": 10.0}, claims.TWENTY_TWO, "not at this scale"),
        ({"times": 22.0}, claims.TWENTY_TWO, "undecided"),
    ],
)
def test_each_claim_turns_with_its_numbers(changed, claim, word):
    stream, bench = made_up_stream_and_bench(**changed)
    assert claim.judge(bench if claim is claims.TWENTY_TWO else stream).verdict == word
