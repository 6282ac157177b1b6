"""The figures of lesson 08 that read the long measurement: titles and verdicts follow from its tables."""

import pytest
from figure_titles import titles

from course_lib.lessons.sinks.claims import measured as sinks_results
from course_lib.lessons.sinks.claims import summary
from course_lib.lessons.sinks.claims import trained as sinks_trained

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


def test_far_sinks_are_judged_block_by_block_at_the_largest_gap(monkeypatch):
    found = measured()
    for row in found["tables"]["gaps"]:
        row["losses"] = [3.0, 2.0, 2.5] if row["positions"] == "rolling" else [3.5, 2.4, 3.2]
    monkeypatch.setattr(sinks_results, "results", lambda: found)
    assert summary._too_far()[2:] == ("900 against 12, n = 3", "holds")  # 0.53 ± 0.09
    for row in found["tables"]["gaps"]:
        row["losses"] = row["losses"][::-1] if row["positions"] == "rolling" else [3.5, 2.4, 2.0]
    assert summary._too_far()[3] == "cannot tell"


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
    text = sinks_results.stream_verdict(measured(**changed))
    assert [line.split(", ")[-1].split(": ")[-1] for line in text.splitlines() if line.startswith("Claim")] == verdicts


def test_a_stream_that_slows_down_is_not_flat():
    found = measured()
    for row in found["tables"]["streaming_curves"]:
        row["milliseconds_per_token"] = [20.0, 20.4, 40.0, 41.0]
    assert sinks_results.stream_verdict(found).endswith("second half over first 2.00 ± 2 %: does not hold")


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
    [((0.5, 0.2), (0.9, 0.0), ["holds", "holds", "holds"]), ((0.0, 0.0), (0.9, 0.2), ["holds partly", "not", "not"])],
    ids=["as in the paper", "otherwise"],
)
def test_claims_on_pretraining_follow_from_paired_losses(vanilla, learned, verdicts):
    found = trained(**{"vanilla": vanilla, "zero sink": (0.7, 0.1), "learnable sink": learned})
    text = sinks_trained.pretraining_verdict(found)
    claims = [line.split(": ")[-1].split(" (")[0] for line in text.splitlines() if line.startswith("Claim")]
    assert [claim if claim.startswith("holds") else claim.split()[0] for claim in claims] == verdicts


@pytest.mark.parametrize(("largest", "verdict"), [(8.0, "holds"), (1.5, "not at this scale")], ids=["high", "low"])
def test_registers_hold_where_patches_stood_out(largest, verdict):
    table = [
        {"registers": n, "seed": seed, "layer": layer, "largest": value * (1 + 0.1 * seed), "median": 2.0}
        for n, high in ((0, 2 * largest), (4, 3.0))
        for layer, value in enumerate((2.0, high))
        for seed in (-1, 0, 1)
    ]
    text = sinks_trained.registers_verdict({"tables": {"registers": table}})
    assert text.startswith(f"Largest patch norm over the median, 3 trainings: {largest} (")
    assert "1.5 (1.4 to 1.7) with 4 registers" in text
    assert text.endswith(f": {verdict}")
