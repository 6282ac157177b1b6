"""The claims on single policies, from made-up rows."""

import copy

import pytest

from course_lib.lessons.kv import claims, estimates

NOISE = (-0.001, 0.0, 0.001)
WITHOUT_MERGING = ("D2O without merging", "EMS without merging")
POLICIES = ("EMS", "D2O", *WITHOUT_MERGING, "H2O", "Scissorhands", "SnapKV", "StreamingLLM", "TOVA", "Window")


def losses(mean):
    return [mean + each for each in NOISE]


def right_answers(share, n=20):
    """So many ones, at other places for every share."""
    return "".join("1" if (7 * i) % n < round(share * n) else "0" for i in range(n))


def made_up(**means):
    """Log-perplexities of 3 everywhere; `means` by policy, and those of StreamingH2O, "4 bits", middle and end."""
    mean = dict.fromkeys((*POLICIES, "Full", "4 bits", "StreamingH2O"), 3.0) | means
    label = {"perplexity": 1.0, "standard_error": 1.0}
    compressed = [label | {"policy": "Full", "budget": 1.0, "bytes": 2500, "losses": losses(mean["Full"])}]
    compressed += [
        label | {"policy": name, "budget": 0.2, "bytes": 500, "losses": losses(mean[name])} for name in POLICIES
    ]
    for row in compressed:
        row["slots"] = mean.get("slots", 100) if row["policy"] == "H2O" else 512
    quantized = [
        label | {"policy": name, "budget": 0.2, "bits": 4, "bytes": 100, "losses": losses(mean["4 bits"])}
        for name in ("Scissorhands", "StreamingLLM")
    ]
    streams = [label | {"policy": name, "losses": losses(mean[name])} for name in ("Full", "StreamingH2O")]
    retrieval = [{"task": "word", "policy": "Full", "budget": 1.0, "exact": 1.0, "n": 20, "usable": True}]
    retrieval += [
        {"task": "word", "policy": "EMS", "budget": b, "exact": mean.get("needles", 1.0), "n": 400} for b in (0.1, 0.2)
    ]
    depths = [
        {"task": "word", "policy": "StreamingLLM", "budget": b, "depth": d, "exact": mean.get(where, 0.0), "n": 20}
        for b in (0.2, 0.5)
        for d, where in ((0.5, "middle"), (0.9, "end"))
    ]
    second = [
        {"policy": name, "question": question, "exact": share, "n": 20, "right": right_answers(share)}
        for question in (1, 2)
        for name, share in (
            ("StreamingLLM", mean.get("local", 0.2)),
            ("recycled, by similarity", mean.get("similar", 0.5)),
            ("recycled, every 8 steps", mean.get("fixed", 0.5)),
        )
    ]
    return {
        "tables": {
            "compressed": compressed, "quantized": quantized, "policies": streams, "retrieval": retrieval,
            "retrieval_depths": depths, "second_needle": second,
        }
    }  # fmt: skip


@pytest.mark.parametrize(
    ("means", "claim", "word"),
    [
        ({}, claims.FIVE_TIMES, "holds"),
        ({"Scissorhands": 3.1}, claims.FIVE_TIMES, "not at this scale"),
        ({}, claims.FEWER_BITS, "holds"),
        ({"4 bits": 3.2}, claims.FEWER_BITS, "not at this scale"),
        ({"EMS": 2.9}, claims.EMS_BEST, "holds"),
        (
            {"EMS": 2.9, "TOVA": 2.8},
            claims.EMS_BEST,
            "mixed (holds in 3; fails in 1)",
        ),
        ({"EMS": 3.1}, claims.EMS_BEST, "not at this scale"),
        ({"D2O": 2.9}, claims.D2O_MERGES, "holds"),
        ({"D2O": 3.1}, claims.D2O_MERGES, "does not hold"),
        ({"D2O": 2.9}, claims.MERGING, "holds"),
        ({"D2O": 3.1}, claims.MERGING, "does not hold"),
        ({"EMS without merging": 2.9, "EMS": 3.1}, claims.EMS_SCORE, "holds"),
        ({"EMS without merging": 3.1, "EMS": 2.9}, claims.EMS_SCORE, "does not hold"),
        ({"D2O": 2.9}, claims.D2O_TIGHT, "holds"),
        ({"D2O": 3.1}, claims.D2O_TIGHT, "does not hold"),
        ({"Window": 3.5, "StreamingLLM": 3.1}, claims.FIXED_PATTERNS, "holds"),
        ({"Window": 3.5}, claims.FIXED_PATTERNS, "mixed"),
        ({}, claims.FIXED_PATTERNS, "does not hold"),
        ({}, claims.MEMORY_AND_PRODUCTS, "holds"),
        ({"slots": 512}, claims.MEMORY_AND_PRODUCTS, "mixed"),
        ({"similar": 1.0, "fixed": 1.0}, claims.DOUBLES, "holds"),
        ({"similar": 1.0, "fixed": 0.0}, claims.DOUBLES, "holds partly (2 of 4)"),
        ({"similar": 0.1, "fixed": 0.0, "local": 0.6}, claims.DOUBLES, "does not hold"),
        ({"similar": 0.5, "fixed": 0.5, "local": 0.25}, claims.DOUBLES, "undecided"),
        ({}, claims.EMS_NEEDLES, "holds"),
        ({"needles": 0.5}, claims.EMS_NEEDLES, "not at this scale"),
        ({"needles": 0.95}, claims.EMS_NEEDLES, "undecided"),
        ({}, claims.STREAMING_H2O, "holds"),
        ({"StreamingH2O": 3.2}, claims.STREAMING_H2O, "not at this scale"),
        ({"end": 1.0}, claims.FORGETS_THE_MIDDLE, "holds"),
        ({"end": 0.0, "middle": 1.0}, claims.FORGETS_THE_MIDDLE, "not at this scale"),
        ({"end": 0.5, "middle": 0.5}, claims.FORGETS_THE_MIDDLE, "undecided"),
        ({"similar": 1.0}, claims.BY_SIMILARITY, "holds"),
        ({"similar": 0.0}, claims.BY_SIMILARITY, "not at this scale"),
        ({"similar": 0.55}, claims.BY_SIMILARITY, "undecided"),
    ],
)
def test_each_claim_turns_with_its_numbers(means, claim, word):
    assert claim.judge(made_up(**means)).words.startswith(word)


def test_the_smallest_cache_within_five_times_counts():
    """Caches of 5.0, 6.25 and 2.5 times fewer bytes: the first is the smallest that is at most 5 times smaller."""
    found = made_up()
    rows = found["tables"]["compressed"]
    (fifth,) = (row for row in rows if row["policy"] == "Scissorhands")
    rows += [fifth | {"budget": 0.1, "bytes": 400, "losses": losses(9.0)}, fifth | {"budget": 0.5, "bytes": 1000}]
    assert claims.FIVE_TIMES.judge(found).words == "holds"
    assert claims.FIVE_TIMES.judge(found).ours == "1 times the perplexity with a cache 5.0 times smaller"


@pytest.mark.parametrize(("similar", "word"), [(1.0, "holds"), (0.0, "does not hold"), (0.55, "undecided")])
def test_rules_with_as_many_full_steps_are_compared_across_two_results(similar, word):
    found, further = made_up(similar=similar), {"tables": {"second_needle": []}}
    for row in found["tables"]["second_needle"]:
        row["full_steps"] = 3.7
    for question in (1, 2):
        row = {"policy": "recycled, every 4 steps", "question": question, "full_steps": 5.0}
        further["tables"]["second_needle"].append(row | {"exact": 0.5, "n": 20, "right": right_answers(0.5)})
    judged = claims.SIMILARITY_PAYS.judge(found, further)
    assert judged.words.startswith(word)
    assert judged.ours.endswith("with 3.7 full steps against 5.0")


def test_bytes_of_codes_by_hand():
    """A vector of 64: 32 bytes of codes, 2 × 2 groups of float16 minima and steps: 40 bytes against 128."""
    assert estimates.times_smaller_with_codes(5 * 132) == pytest.approx(660 * 128 / (100 * 40 + 32 * 128))
    assert claims.TWENTY_TIMES.judge().words == "does not hold"


def test_the_largest_of_all_lengths_is_up_to():
    judged = claims.TWENTY_TIMES.judge()
    assert judged.estimates[""].value == pytest.approx(estimates.times_smaller_with_codes(32768))
    assert judged.flips["15 times"] == "holds"


def test_the_bytes_of_a_merging_cache_are_shown():
    found = made_up(D2O=3.1)
    next(row for row in found["tables"]["compressed"] if row["policy"] == "D2O")["bytes"] = 950
    assert claims.D2O_MERGES.judge(found).ours.endswith("with 1.9 to 1.9 times H2O's bytes")


@pytest.mark.parametrize(("window", "word"), [(3.2, "does not hold"), (3.8, "holds")])
def test_a_window_collapses_beyond_one_and_a_half_times(window, word):
    assert claims.WINDOW_COLLAPSES.judge(made_up(Window=window)).words == word  # e^0.2 = 1.22, e^0.8 = 2.23


def heavy(early=0.5, mean=3.0, h2o=1.0, window=2.0):
    bias = [
        {"score": score, "budget": 0.2, "first_quarter": losses(share), "losses": losses(value)}
        for score, share, value in (("sum", early, 3.0), ("mean", 0.3, mean))
    ]
    written = [
        {"policy": name, "distinct": [0.5, 0.5, 0.5], "losses": losses(value)}
        for name, value in (("full", 0.8), ("window", window), ("4 sinks + window", 1.0), ("H2O", h2o))
    ]
    for index, row in enumerate((*bias, *written)):  # pairs that differ by a little
        row["losses"] = [loss + 0.001 * index * i for i, loss in enumerate(row["losses"])]
        if "first_quarter" in row:
            row["first_quarter"] = [share + 0.001 * index * i for i, share in enumerate(row["first_quarter"])]
    return {"tables": {"bias": bias, "written": written}}


@pytest.mark.parametrize(
    ("changed", "claim", "word"),
    [
        ({}, claims.SUM_IS_BIASED, "holds"),
        ({"early": 0.1}, claims.SUM_IS_BIASED, "does not hold"),
        ({"early": 0.2505}, claims.SUM_IS_BIASED, "undecided"),
        ({"mean": 2.9}, claims.MEANS_READ_BETTER, "holds"),
        ({"mean": 3.1}, claims.MEANS_READ_BETTER, "does not hold"),
        ({}, claims.WRITES_ON, "holds"),  # e^1.2 and e^0.2 times the text of the full cache
        ({"h2o": 3.0}, claims.WRITES_ON, "mixed (holds in window; fails in H2O)"),
        ({"h2o": 3.0, "window": 0.9}, claims.WRITES_ON, "does not hold"),
    ],
)
def test_claims_on_bias_turn_with_their_numbers(changed, claim, word):
    assert claim.judge(heavy(**changed)).words.startswith(word)


@pytest.mark.parametrize(
    ("distinct", "word"),
    [([0.8, 0.82, 0.81], "holds"), ([0.3, 0.32, 0.31], "does not hold"), ([0.2, 0.9, 0.5], "undecided")],
)
def test_repetition_is_compared_prompt_by_prompt(distinct, word):
    found = heavy()
    next(row for row in found["tables"]["written"] if row["policy"] == "H2O")["distinct"] = distinct
    judged = claims.REPEATS_LESS.judge(found)
    assert (judged.verdict, judged.n) == (word, "3")


@pytest.mark.parametrize(
    ("loss", "word"), [(2.0, "holds"), (2.1, "not at this scale"), (2.05, "undecided")], ids=["same", "more", "near"]
)
def test_a_twentieth_is_enough_within_five_per_cent(loss, word):
    row = {"share": 0.05, "losses": [loss, loss + 0.001, loss - 0.001], "full": [2.0, 2.0, 2.0], "same": [1.0]}
    assert claims.FIVE_PER_CENT.judge({"tables": {"enough": [row]}}).words.startswith(word)


def bench(h2o=6.0, recycled=2.0, stream=2.0, whole=2.0):
    """Speedups over another cache; the claims compare with nothing evicted."""
    sides, times = [], {"nothing evicted": whole, "H2O, 20 %": h2o, "recycled, 20 % read": recycled}
    times["DynamicCache"] = 1.0
    for contest in ("8 steps of 1 at 4096 tokens", "8 steps of 8 at 4096 tokens"):
        for side, t in (times | {"StreamingLLM, 20 %": stream}).items():
            row = {"contest": contest, "side": side, "times_anchor": t}
            sides.append(row | {"times_anchor_low": t / 1.02, "times_anchor_high": t * 1.02})
    sides.append(copy.deepcopy(sides[1]) | {"contest": "a prompt"})  # no decoding
    return {"tables": {"sides": sides}}


@pytest.mark.parametrize(
    ("changed", "claim", "word"),
    [
        ({}, claims.FASTER, "holds"),
        ({"h2o": 1.5}, claims.FASTER, "does not hold"),  # only faster than another cache
        ({"h2o": 2.0}, claims.FASTER, "undecided"),
        ({}, claims.LATENCY_CLAIM, "holds"),
        ({"h2o": 3.0}, claims.LATENCY_CLAIM, "not at this scale"),
        ({"h2o": 3.8}, claims.LATENCY_CLAIM, "undecided"),
        ({}, claims.RECYCLED_SPEED, "holds"),
        ({"recycled": 1.5}, claims.RECYCLED_SPEED, "does not hold"),
    ],
)
def test_claims_on_speed_turn_with_their_numbers(changed, claim, word):
    assert claim.judge(bench(**changed)).words == word


def test_the_latency_is_shown_beside_both_caches():
    ours = claims.LATENCY_CLAIM.judge(bench()).ours
    assert ours.startswith("compared with nothing evicted 3.0")
    assert "with transformers' DynamicCache 6.0" in ours
