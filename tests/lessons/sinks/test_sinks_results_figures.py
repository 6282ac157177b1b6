"""The figures of lesson 08 that read the long measurement: titles and verdicts follow from its tables."""

import pytest
from figure_titles import titles

from course_lib.lessons.sinks import claims, drawings
from course_lib.lessons.sinks.results import stream as sinks_results
from course_lib.lessons.sinks.results import training

PERPLEXITIES = {"0 sinks": 30.0, "1 sink": 12.0, "2 sinks": 11.0, "4 sinks": 11.0, "4 newlines": 11.5}


def measured(everything=10.0, **changed):
    streaming = [
        {"name": name, "budget": 256, "perplexity": value + 1, "standard_error": 0.5, "n_tokens": 2000}
        | {"peak_bytes": 12_000_000, "compared": value, "n_compared": 1500}
        for name, value in (PERPLEXITIES | {"everything kept": everything}).items()
    ]
    curves = [
        {
            "name": name,
            "perplexity": [value, value + 1],
            "block": 512,
            "milliseconds_per_token": [20.0, 22.0, 21.0, 21.0],
        }
        for name, value in PERPLEXITIES.items()
    ]
    hard = [1.0, 1.2, 0.9]  # blocks: in each of them all caches are so many times as far up
    for row in curves:
        row["perplexity"] = [1.0, *(PERPLEXITIES[row["name"]] * times for times in hard)]
    curves.append({"name": "everything kept", "perplexity": [1.0, *(everything * times for times in hard)]})
    gaps = [
        {"positions": positions, "gap": gap, "perplexity": value}
        for positions, worst in (("original", 900.0), ("rolling", 12.0))
        for gap, value in ((0, 11.0), (16384, worst))
    ]
    return {"tables": {"streaming": streaming, "streaming_curves": curves, "gaps": gaps} | changed}


def test_one_sink_is_so_much_of_the_way_back():
    theirs, ours = titles(sinks_results.by_sinks(measured()))
    assert theirs == "Published (Llama-2-7B): one sink is 96 % of\nthe way from 0 to 8, and 25 % above 8"
    # log 31 / 13 over log 31 / 12; block by block one sink is log 12 / 11 above four
    assert ours == "Here: one sink is 92 % of the way from 0 to 4,\nand 8.70 ± 0.00 % above 4"


def test_the_long_stream_says_memory_and_time():
    left, right = titles(sinks_results.long_stream(measured()))
    assert left == "2,000 tokens in 12 MB:\n1 sink has 1.091 times the perplexity of 4"
    assert right == "Slowest part over fastest: 1.10 with 4 sinks"


def test_far_sinks_are_judged_block_by_block_at_the_largest_gap():
    found = measured()
    for row in found["tables"]["gaps"]:
        row["losses"] = [3.0, 2.0, 2.5] if row["positions"] == "rolling" else [3.5, 2.4, 3.2]
    judged = claims.ROLLING.judge(found)
    assert (judged.words, judged.n, judged.ours) == ("holds", "3", "1.70 ± 0.15 times")  # exp of 0.53 ± 0.09
    for row in found["tables"]["gaps"]:
        row["losses"] = row["losses"][::-1] if row["positions"] == "rolling" else [3.5, 2.4, 2.0]
    assert claims.ROLLING.judge(found).verdict == "undecided"


def test_the_summary_shows_the_records():
    texts = [text.get_text().replace("\n", " ").replace("\xa0", " ") for text in drawings.take_home().axes[0].texts]
    assert [claim.text for claim in claims.TAKE_HOME] == texts[4::4]
    assert [claim.judge().words for claim in claims.TAKE_HOME] == texts[7::4]


def test_gaps_name_the_worst_of_both():
    said = "At worst 900 with positions of the text, 12.0 with places in the cache"
    assert titles(sinks_results.gaps(measured())) == [said]


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
    found = measured(**changed)
    judged = [claim.judge(found) for claim in claims.STREAM_CLAIMS]
    assert [each.words for each in judged] == verdicts
    assert sinks_results.stream_verdict(found) == "\n".join(map(str, judged))
    shares = [each.ours for each in judged[1:3]]  # log 30 / 12 over log 30 / 10; log 30 / 11.5 over log 30 / 11
    assert shares[0].startswith("83.4 %") or changed
    assert shares[1].startswith("95.6 %")


def test_a_stream_that_slows_down_is_not_flat():
    found = measured()
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
    assert training.pretraining_verdict(found) == "\n".join(map(str, judged))


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
