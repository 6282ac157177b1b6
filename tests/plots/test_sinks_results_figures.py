"""The figures of lesson 08 that read the long measurement: titles and verdicts follow from its tables."""

import pytest

from course_lib.plots import sinks_results

PERPLEXITIES = {"0 sinks": 30.0, "1 sink": 12.0, "2 sinks": 11.0, "4 sinks": 11.0, "4 newlines": 11.5}


def measured(everything=10.0, **changed):
    streaming = [
        {"name": name, "budget": 256, "perplexity": value + 1, "standard_error": 0.5, "n_tokens": 2000}
        | {"peak_bytes": 12_000_000, "compared": value, "n_compared": 1500}
        for name, value in (PERPLEXITIES | {"everything kept": everything}).items()
    ]
    curves = [
        {"name": name, "perplexity": [value, value + 1], "block": 512, "milliseconds_per_token": [20.0, 22.0]}
        for name, value in PERPLEXITIES.items()
    ]
    gaps = [
        {"positions": positions, "gap": gap, "perplexity": value}
        for positions, worst in (("original", 900.0), ("rolling", 12.0))
        for gap, value in ((0, 11.0), (16384, worst))
    ]
    return {"tables": {"streaming": streaming, "streaming_curves": curves, "gaps": gaps} | changed}


def titles(drawn):
    return [axes.get_title(loc="left") for axes in drawn.axes]


def test_one_sink_is_so_much_of_the_way_back():
    said = "256 slots, 1,500 tokens: one sink is 90 % of the way back"  # (30 - 12) / (30 - 10)
    assert titles(sinks_results.by_sinks(measured())) == [said]


def test_the_long_stream_says_memory_and_time():
    left, right = titles(sinks_results.long_stream(measured()))
    assert left == "2,000 tokens in a cache of 12 MB"
    assert right == "Slowest part over fastest: 1.10 with 4 sinks"


def test_gaps_name_the_worst_of_both():
    said = "At worst 900 with positions of the text, 12.0 with places in the cache"
    assert titles(sinks_results.gaps(measured())) == [said]


@pytest.mark.parametrize(
    ("changed", "verdicts"),
    [
        ({}, ["holds", "holds", "holds", "holds"]),
        ({"everything": 25.0}, ["not at this scale", "holds", "holds", "holds"]),
        ({"everything": 1.0}, ["holds", "not at this scale", "holds", "holds"]),
    ],
    ids=["as measured", "no collapse", "not restored"],
)
def test_verdicts_follow_from_the_numbers(changed, verdicts):
    text = sinks_results.stream_verdict(measured(**changed))
    assert [line.split(", ")[-1].split(": ")[-1] for line in text.splitlines() if line.startswith("Claim")] == verdicts


def test_a_stream_that_slows_down_is_not_flat():
    found = measured()
    for row in found["tables"]["streaming_curves"]:
        row["milliseconds_per_token"] = [20.0, 40.0]
    assert sinks_results.stream_verdict(found).endswith("slowest part over fastest 2.00, not at this scale")
