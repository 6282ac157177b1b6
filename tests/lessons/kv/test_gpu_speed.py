"""The claims on decoding on a GPU, from a made-up run of `make gpu`."""

import pytest

from course_lib.lessons.common import gpu
from course_lib.lessons.common.results import COLUMNS
from course_lib.lessons.kv import claims, gpu_speed

CONTESTS = ("batch 8, 32,768 tokens", "batch 32, 8,192 tokens")


def row(contest, side, times=1.0, anchor="Full", spread=1.01, **numbers):
    seconds = 0.01 / times
    made = {"contest": contest, "side": side, "anchor": anchor, "repetitions": 9, "times_anchor": times}
    made |= {
        "shape": [8, 8],
        "times_anchor_low": times / spread,
        "times_anchor_high": times * spread,
        "median_seconds": seconds,
    }
    return made | {"low_seconds": seconds / spread, "high_seconds": seconds * spread, "numbers": numbers}


def run(h2o=(2.1, 2.1), spread=1.01, rates=(100, 700, 700)):
    """`h2o`: times as fast as the full cache in both contests; `rates`: of Full, H2O and D2O at their largest batch."""
    rows = []
    for contest, times in zip(CONTESTS, h2o, strict=True):
        rows += [row(contest, "Full", spread=spread), row(contest, "H2O, 20 %", times, spread=spread)]
    rows += [row(f"{CONTESTS[0]}, fused parts", "Full"), row(f"{CONTESTS[0]}, fused parts", "H2O, 20 %", 1.1)]
    rows += [row("batch 32, 32,768 tokens", "H2O, 20 %", 1.2, anchor="window, 20 %")]  # the full cache does not fit
    for side, rate in zip(("Full", "H2O, 20 %", "D2O, 20 %"), rates, strict=True):
        name = f"largest batch, 32,768 tokens: {side}"
        rows.append(row(name, side, anchor=side, spread=spread, tokens_per_second=float(rate), largest_batch=7))
    return {"benches": {"decoding": {"rows": rows}}}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (run(), "holds"),
        (run(h2o=(1.5, 1.6)), "does not hold"),
        (run(h2o=(1.5, 2.1)), f"mixed (holds in {CONTESTS[1]}; fails in {CONTESTS[0]})"),
        (run(h2o=(1.91, 1.89), spread=1.2), "undecided"),
    ],
)
def test_the_latency_is_that_of_each_batch_and_length(made, words):
    assert claims.LATENCY_ON_A_GPU.judge(made).words.partition(" (n =")[0] == words


def test_only_plain_contests_against_the_full_cache_count():
    assert list(gpu_speed.speedups(run())) == list(CONTESTS)
    ours = claims.LATENCY_ON_A_GPU.judge(run(h2o=(1.5, 2.1))).ours
    assert ours.startswith("1.5")
    assert f"({CONTESTS[0]}), 2.1" in ours


@pytest.mark.parametrize(
    ("rates", "h2o", "d2o"),
    [
        ((100, 700, 20), "holds", "does not hold"),
        ((100, 250, 350), "does not hold", "holds"),
        ((100, 301, 299), "undecided", "undecided"),
    ],
)
def test_the_throughput_is_that_of_the_largest_batches(rates, h2o, d2o):
    made = run(rates=rates, spread=1.05)
    words = [claim.judge(made).verdict for claim in (claims.THROUGHPUT_ON_A_GPU, claims.D2O_THROUGHPUT)]
    assert words == [h2o, d2o]


def test_the_throughput_names_both_batches_and_why_d2o_is_slow():
    ours = claims.D2O_THROUGHPUT.judge(run(rates=(1000, 700, 20))).ours
    assert "7 sequences, 20 tokens per second; the full cache 7 sequences, 1,000 tokens per second" in ours
    assert ours.endswith("(merged in PyTorch at each step, without a CUDA graph)")


def test_each_error_is_that_of_both_sides():
    """Of two sides that vary alike, √2 times that of one."""
    gain = gpu_speed.throughput_gain(run(), gpu_speed.H2O)
    one = gpu_speed.speedups(run())[CONTESTS[0]]  # the same spread
    assert gain.error == pytest.approx(2**0.5 * one.error)
    assert gain.n == 9


def test_the_table_of_whole_steps_fits_a_page():
    assert max(map(len, str(gpu.whole_model("decoding")).splitlines())) <= COLUMNS
