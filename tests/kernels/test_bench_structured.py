"""`course bench structured`: work counted by hand, runs that leave the cache as it was, a sentence that can say no."""

from dataclasses import replace

import pytest
import torch
from course_lib.kernels.bench import structured
from course_lib.kernels.timing.contest import Place

from course_lib.models import tiny_model
from course_lib.pruning.structured.choice import Scores
from course_lib.pruning.structured.shape import shape_of
from course_lib.pruning.structured.surgery import cut

# The tiny model: 48 wide, 2 blocks, 100 neurons, 6 query heads and 2 groups of size 8, 97 words, tied.
OUTSIDE, BLOCK = 97 * 48 + 48, 48 * (2 * 8 * (6 + 2) + 3 * 100 + 2)


@pytest.fixture(scope="module")
def contests():
    return list(structured.contests(Place(torch.device("cpu"), torch.float32, True, torch.Generator().manual_seed(0))))


def test_the_work_of_a_step_by_hand():
    model = tiny_model()
    n_weights, n_read = OUTSIDE + 2 * BLOCK, 10 + structured.STEPS / 2
    work = structured.decode_work(model, 3, 10)
    keys_and_values = 2 * 2 * 8 * 2 * n_read  # both, groups, size, blocks
    assert work.bytes == structured.STEPS * 4 * (n_weights + 3 * keys_and_values)
    assert work.flops == structured.STEPS * 3 * 2 * (n_weights + 2 * 6 * 8 * 2 * n_read)


def test_the_work_of_a_prompt_by_hand():
    model = tiny_model()
    work = structured.prefill_work(model, 20)
    attention = 20 * 2 * 6 * 8 * 2 * 10  # tokens, both products, heads, size, blocks, half of the keys
    assert work.flops == 2 * (20 * (48 + 2 * BLOCK) + attention + 97 * 48)
    assert work.bytes == 4 * (OUTSIDE + 2 * BLOCK)


def test_less_work_for_what_is_smaller(contests):
    assert [contest.shape for contest in contests] == [(1, 20), (2, 20), (1, 24)]
    for contest in contests:
        assert [side.name for side in contest.sides] == ["dense", "73 neurons", "50 neurons", "1 blocks"]
        for key in ("flops", "bytes"):
            work = [getattr(side.work, key) for side in contest.sides]
            assert work == sorted(work, reverse=True)


def test_every_run_gives_the_same_and_what_a_model_without_a_cache_gives(contests):
    for contest in contests:
        for side in contest.sides:
            for _ in range(3):  # float32 sums in another order
                torch.testing.assert_close(side.run(), side.expected, rtol=1e-4, atol=1e-5)


def test_a_cut_side_is_not_the_whole_model(contests):
    for contest in contests:
        for side in contest.sides[1:]:
            assert not torch.allclose(side.expected, contest.expected, rtol=1e-2, atol=1e-3)


def test_the_model_is_cut_in_the_type_of_the_bench():
    model, now = tiny_model().bfloat16(), shape_of(tiny_model())
    assert cut(model, replace(now, neurons=50), Scores(neurons=torch.ones(2, 100))).dtype == torch.bfloat16


def test_the_sentence_says_how_many_are_as_predicted():
    def row(contest, side, speed, n_bytes, flops):
        counted = {"bytes": n_bytes, "flops": flops, "repetitions": 5}
        return {"contest": contest, "side": side, "anchor": "dense", "times_anchor": speed} | counted

    rows = [
        row("8 steps", "dense", 1.0, 120, 1), row("8 steps", "narrow", 1.19, 100, 1),
        row("a prompt", "dense", 1.0, 1, 300), row("a prompt", "narrow", 1.0, 1, 200),
    ]  # fmt: skip
    assert structured.summary(rows).splitlines() == [
        "8 steps, by bytes: narrow 1.19x of 1.20x.",
        "a prompt, by FLOP: narrow 1.00x of 1.50x.",
        "Within 10% of the prediction: 1 of 2.",
    ]
