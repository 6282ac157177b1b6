"""One sink beside four, far sinks, a steady stream and its speed, from made-up rows."""

import pytest

from course_lib.lessons.sinks import claims

NOISE = (-0.002, 0.0, 0.002, 0.001)


def losses(*means):
    return [mean + each for mean in means for each in NOISE]


def made_up(one_sink=0.0, original=2.0, second=3.0, times=30.0):
    stream = {"4 sinks": losses(3.0, second), "1 sink": losses(3.0 + one_sink, second + one_sink)}
    streaming = [{"name": name, "losses": values} for name, values in stream.items()]
    found = [
        {"positions": positions, "gap": gap, "losses": losses(mean), "perplexity": 1.0, "standard_error": None}
        for gap, far in ((0, 2.0), (100, original))
        for positions, mean in (("original", far), ("rolling", 2.0))
    ]
    sides = [
        {"contest": "a token of a stream", "shape": [size], "side": side, "anchor": "the window anew"}
        | {"times_anchor": t, "times_anchor_low": t / 1.02, "times_anchor_high": t * 1.02}
        for size, factor in ((128, 100.0), (4096, times))
        for side, t in (("the window anew", 1.0), ("StreamingLLM", factor))
    ]
    return {"tables": {"streaming": streaming, "gaps": found}}, {"tables": {"sides": sides}}


@pytest.mark.parametrize(
    ("changed", "claim", "word"),
    [
        ({"one_sink": 0.05}, claims.ONE_IS_NOT_ENOUGH, "holds"),
        ({"one_sink": 0.0}, claims.ONE_IS_NOT_ENOUGH, "does not hold"),
        ({"original": 6.0}, claims.ROLLING, "holds"),
        ({"original": 1.5}, claims.ROLLING, "not at this scale"),
        ({"original": 2.0}, claims.ROLLING, "not at this scale"),  # no difference, without noise: counted
        ({"second": 3.0}, claims.STREAM_STEADY, "holds"),
        ({"second": 3.2}, claims.STREAM_STEADY, "not at this scale"),
        ({"second": 3.0488}, claims.STREAM_STEADY, "undecided"),
        ({"times": 30.0}, claims.TWENTY_TWO, "holds"),
        ({"times": 10.0}, claims.TWENTY_TWO, "not at this scale"),
        ({"times": 22.0}, claims.TWENTY_TWO, "undecided"),
    ],
)
def test_each_claim_turns_with_its_numbers(changed, claim, word):
    stream, bench = made_up(**changed)
    assert claim.judge(bench if claim is claims.TWENTY_TWO else stream).verdict == word
