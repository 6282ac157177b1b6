"""Decoding with predictors and what a batch needs, from made-up rows."""

import pytest

from course_lib.lessons.dejavu import claims
from course_lib.lessons.dejavu.experiments.ground import GATED, RELU
from course_lib.lessons.dejavu.experiments.trained import PREDICTOR


@pytest.mark.parametrize(
    ("times", "word"),
    [
        ((2.5, 3.0), "holds"),
        ((1.5, 3.0), "mixed (holds in 10 % of the neurons; fails in 20 % of the neurons)"),
        ((1.0, 1.5), "not at this scale"),
        ((2.0, 2.0), "undecided"),
    ],
)
def test_predictors_are_asked_for_twice_the_speed(times, word):
    rows = [
        {"side": "oracle", "contest": "10% kept", "times_anchor": 9, "times_anchor_low": 9, "times_anchor_high": 9}
    ]  # is not asked
    rows += [
        {
            "side": "predicted",
            "contest": contest,
            "times_anchor": t,
            "times_anchor_low": t / 1.02,
            "times_anchor_high": t * 1.02,
        }
        for contest, t in zip(("20.0% kept (by block 40)", "10.0% kept (by block 20)"), times, strict=True)
    ]
    assert claims.TWICE.judge({"tables": {"sides": rows}}).words == word


@pytest.mark.parametrize(
    ("together", "word"),
    [
        ([0.5, 0.51, 0.52], "holds"),
        ([0.3, 0.31, 0.32], "does not hold"),
        ([0.2, 0.6], "undecided (n = 2; over 10 times"),
    ],
)
def test_a_batch_beside_twice_one_sequence(together, word):
    rows = [{"model": GATED, "batch": n, "shares": shares} for n, shares in ((1, [0.2, 0.2]), (4, together))]
    assert claims.BATCH_NEEDS_MORE.judge({"tables": {"batch": rows}}).words.startswith(word)


@pytest.mark.parametrize(
    ("gathered", "kernel", "word"),
    [
        ((0.3, 1.2), (0.5, 2.0), "holds"),
        ((0.3, 1.2), (0.5, 1.0), "mixed (holds in density 0; fails in density 1)"),
        ((0.9, 1.2), (0.5, 1.0), "does not hold"),
    ],
)
def test_one_kernel_beside_copies(gathered, kernel, word):
    """Both have the dense MLP as their anchor, and are compared with each other."""
    sides = {"torch, gathered rows": gathered, "kernel": kernel}
    rows = [
        {"contest": f"density {n}", "side": side, "times_anchor": t, "times_anchor_low": t, "times_anchor_high": t}
        for side, times in sides.items()
        for n, t in enumerate(times)
    ]
    assert claims.ONE_KERNEL.judge({"benches": {"gathered_mlp": {"rows": rows}}}).words == word


@pytest.mark.parametrize(("loss", "word"), [(2.02, "holds"), (2.2, "does not hold"), (2.05, "undecided")])
def test_predictors_that_skip_85_percent_are_compared_with_all_neurons(loss, word):
    noise = (-0.001, 0.0, 0.001)
    rows = [
        {"way": way, "density": density, "losses": [value + part for part in noise[:: 1 if density == 1 else -1]]}
        for way, density, value in (("predicted", 1.0, 2.0), ("predicted", 0.15, loss), ("oracle", 0.15, 9.0))
    ]
    judged = claims.PREDICTOR_AT_FIFTEEN.judge({"tables": {"decoded": rows}})
    assert (judged.verdict, judged.n) == (word, "3")


def timed(side, contests):
    return [
        {
            "side": side,
            "contest": contest,
            "times_anchor": t,
            "times_anchor_low": t / 1.02,
            "times_anchor_high": t * 1.02,
        }
        for contest, t in contests.items()
    ]


@pytest.mark.parametrize(
    ("times", "at_one", "at_all"),
    [
        ((4.0, 2.0, 1.5), "holds", "holds"),
        ((4.0, 2.0, 0.7), "holds", "mixed (holds in batch size 2; fails in batch size 16)"),
        ((0.5, 0.6, 0.7), "does not hold", "does not hold"),
        ((1.0, 1.0, 1.0), "undecided", "undecided"),
    ],
)
def test_batches_are_compared_with_one_sequence_and_with_dense(times, at_one, at_all):
    names = ("batch of 1, 10% in all", "batch of 2, 19% in all", "batch of 16, 82% in all")
    bench = {"tables": {"sides": timed("rows of the union", dict(zip(names, times, strict=True)))}}
    assert claims.GAINS_AT_ONE.judge(bench).words == at_one
    judged = claims.BATCHES_FASTER.judge(bench)
    assert judged.words == at_all
    assert "(batch size 1)" in judged.ours  # shown, but not a case of larger batches


@pytest.mark.parametrize(
    ("times", "word"),
    [
        ((1.5, 2.0), "holds"),
        ((0.8, 2.0), "mixed (holds in 10 % of the neurons; fails in 50 % of the neurons)"),
        ((0.8, 0.9), "does not hold"),
    ],
)
def test_predictor_and_rows_of_a_gated_model_are_compared_with_dense(times, word):
    contests = {"100% kept": 0.4} | dict(zip(("50% kept", "10% kept"), times, strict=True))
    losses = [{"model": model, "losses": [3.0, 3.1]} for model in (GATED, RELU)]
    cost = {"model": GATED, "chosen_by": PREDICTOR, "lookahead": 0, "density": 0.5, "losses": [6.0, 6.2]}
    tables = {"sides": timed("predictor, then embedding_bag", contests), "dense": losses, "predicted": [cost]}
    judged = claims.GATED_FASTER.judge({"tables": tables}, {"tables": tables})
    assert judged.words == word
    assert "but the predictor costs +3.050 ± 0.050 nats per token" in judged.ours
