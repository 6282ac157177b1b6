"""The benches of chosen neurons: all sides are right, bytes are those that are read, summaries say what is measured."""

import pytest
import torch
from course_lib.kernels.bench import contextual, contextual_relu
from course_lib.kernels.timing.chosen_neurons import in_int8
from course_lib.kernels.timing.contest import Place
from course_lib.kernels.timing.rows import relative_errors

from course_lib.kernels import runtime

pytestmark = pytest.mark.skipif(runtime.INTERPRETED, reason="a bench refuses the interpreter")


def contests_of(bench, device="cpu"):
    return list(bench.contests(Place(torch.device(device), torch.float32, True, torch.Generator().manual_seed(0))))


@pytest.fixture(scope="module")
def contests():
    return contests_of(contextual)


def test_every_side_is_there_and_right(contests):
    tokens, batches = contests[:-2], contests[-2:]
    assert [contest.shape for contest in tokens] == [(16, kept) for kept in (40, 20, 16, 12, 8, 4, 2)]
    gate = "the gate, then embedding_bag"
    for contest in tokens:
        expected = [contextual.DENSE, *contextual.WAYS, contextual.PREDICTED, gate, contextual.INT8]
        assert [side.name for side in contest.sides] == expected
    assert [[side.name for side in contest.sides] for contest in batches] == [[contextual.DENSE, contextual.UNION]] * 2
    for contest in contests:
        assert contest.absent == {}
        assert max(relative_errors(contest).values()) < contextual.TOLERANCE[torch.float32]


def test_a_wrong_side_is_seen(contests):
    """With an eighth of the neurons no way gives what all give."""
    contest = contests[5]
    for side in contest.sides[1:-1]:
        assert (side.expected - contest.expected).norm() / contest.expected.norm() > 0.1


def test_bytes_by_hand(contests):
    """Two blocks 16 wide with 40 neurons; 4 kept; a predictor of rank 4."""
    work = {side.name: side.work.bytes for side in contests[5].sides}
    assert work[contextual.DENSE] == 2 * 4 * 3 * 16 * 40
    assert {work[name] for name in contextual.WAYS} == {2 * 4 * 3 * 16 * 4}
    assert work[contextual.PREDICTED] == 2 * 4 * (3 * 16 * 4 + 4 * (16 + 40))
    assert work["the gate, then embedding_bag"] == 2 * 4 * (16 * 40 + 2 * 16 * 4)
    assert work[contextual.INT8] == 2 * 3 * 16 * 40


def test_eight_bits_by_hand():
    codes, scale = in_int8(torch.tensor([[1.27, -0.1, 0.0], [0.0, 2.54, 1.0]]))
    assert codes.tolist() == [[127, -10, 0], [0, 127, 50]]
    torch.testing.assert_close(scale, torch.tensor([0.01, 0.02]))


def row(side, contest, kept, times, **more):
    return {"side": side, "contest": contest, "shape": [576, kept], "times_anchor": times, "repetitions": 5} | more


def test_the_summary_says_up_to_where_a_way_pays():
    bag = "embedding_bag"
    rows = [row(contextual.DENSE, "50% kept", 768, 1.0, bytes=318e6)]
    rows += [row(bag, "50% kept", 768, 0.9), row(bag, "40% kept", 614, 1.1), row(bag, "5% kept", 77, 6.0)]
    rows += [row(contextual.INT8, "50% kept", 768, 3.2), row(contextual.PREDICTED, "5% kept", 77, 0.8)]
    said = contextual.summary(rows)
    assert "embedding_bag: faster than dense up to 40% kept." in said
    assert f"{contextual.PREDICTED}: nowhere faster." in said
    assert "All neurons in 8 bits: 3.20 x as fast as in 318 MB." in said


def test_the_relu_model_end_to_end():
    found = contests_of(contextual_relu)
    assert [contest.shape for contest in found] == [(12,)] * 5
    kept = [float(contest.name.partition("%")[0]) for contest in found]
    assert kept == sorted(kept, reverse=True)
    assert all(share < 100 * mean + 0.1 for share, mean in zip(kept, contextual_relu.MEANS, strict=True))
    for contest in found:
        assert [side.name for side in contest.sides] == ["dense", "oracle", "predicted"]
        assert max(relative_errors(contest).values()) < contextual_relu.TOLERANCE[torch.float32]
        dense, oracle, predicted = (side.work.bytes for side in contest.sides)
        assert predicted - oracle == 12 * 2 * 4 * 4 * (16 + 64)  # of each byte the two predictors, rank 4
        assert oracle < dense


def test_what_the_relu_model_s_summary_calls_worth():
    def timed(lost, times):
        name = f"20% kept, predicted {lost:+.4f} nats per byte"
        return row("predicted", name, 819, times, median_seconds=0.5) | {"shape": [128, 819]}

    said = contextual_relu.summary([timed(0.05, 3.0), timed(0.0123, 1.8), timed(-0.001, 1.2)])
    assert said.startswith("Within 0.02 nats per byte, predicted neurons are 1.80 x as fast as all of them")
    assert "256 bytes per second (20% kept, predicted +0.0123 nats per byte)." in said
    assert "lose more than 0.02" in contextual_relu.summary([timed(0.05, 3.0)])
    assert contextual_relu.summary([]) == "'predicted' was not timed."
