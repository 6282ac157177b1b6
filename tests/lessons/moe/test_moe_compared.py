"""Verdicts on experts, balance and other routers, on rows made up so that each effect is known by hand."""

import copy

import pytest
from table_cells import rows as cells

from course_lib.lessons.moe import claims, pairs, plots, tables

DENSE = [2.0, 2.1, 2.2, 2.3]
WIGGLE = (0.0, 0.001, 0.002, 0.003)  # the mean is 0.0015, its standard error 0.00129 / 2 = 0.0006
GAINS = {  # nats below the dense model, but for the wiggle; busiest share; log Σ exp; largest logit
    "dense": (0.0, None, None, None),
    "top-1": (0.0295, 0.9, 3.0, 6.0),
    "top-1, balanced": (-0.01, 0.4, 3.0, 6.0),
    "top-2": (0.05, 0.4, 3.0, 6.0),
    "top-2, balanced": (0.04, 0.2, 3.0, 6.0),
    "top-1, balanced, jitter": (-0.0215, 0.4, 3.0, 6.0),
    "top-2, balanced, z-loss": (0.035, 0.2, 1.0, 6.0),
    "top-2, sigmoid": (0.03, 0.5, 2.0, 6.0),
    "top-2, sigmoid, bias": (0.028, 0.14, 2.0, 6.0),
    "expert choice": (0.2005, 0.125, 2.0, 6.0),
}


def model(name, seed, gain, share, log_sum_exp, largest):
    """One block; the wiggle grows with the gain's number, so that no two models are alike."""
    at = list(GAINS).index(name)
    losses = [loss - gain + at * wiggle for loss, wiggle in zip(DENSE, WIGGLE, strict=True)]
    rest = [] if share is None else [(1 - share) / 7] * 7
    block = {"load": [share, *rest], "log_sum_exp": log_sum_exp, "largest_logit": (largest or 0) + seed}
    return {
        "model": name, "seed": seed, "losses": losses, "loss": sum(losses) / 4, "blocks": [block] if rest else [],
    }  # fmt: skip


@pytest.fixture
def found():
    models = [model(name, seed, *numbers) for name, numbers in GAINS.items() for seed in range(3)]
    read = {"experts choose": [1.8, 1.9, 2.0, 2.1], "bytes choose": [2.2, 2.304, 2.4, 2.5]}
    future = [
        {"seed": seed, "read_by": way, "losses": losses, "loss": sum(losses) / 4, "moved": 0.25}
        for way, losses in read.items()
        for seed in range(3)
    ]
    return {"tables": {"models": models, "future": future}, "sizes": {}}


NOTHING = {"tables": {}, "sizes": {}}  # all made-up rows are in one of the two results


def words(claim, found):
    return claim.judge(*(found, NOTHING)[: len(claim.results)]).words


def raised(found, name, by):
    """A copy in which that kind of model reads worse by so many nats, in every window."""
    changed = copy.deepcopy(found)
    for row in changed["tables"]["models"]:
        row["losses"] = [loss + by * (row["model"] == name) for loss in row["losses"]]
    return changed


def test_experts_and_balance_have_the_seeds_as_their_sample(found):
    estimate = claims.ONE_OF_EIGHT.judge(found).estimates[""]
    assert estimate.value == pytest.approx(0.028)  # 0.0295 less 0.0015
    assert (estimate.error, estimate.n) == (pytest.approx(0.0, abs=1e-12), 3)  # all seeds agree, the windows do not
    spread = copy.deepcopy(found)
    for row in spread["tables"]["models"]:
        if row["model"] == "top-1":
            row["losses"] = [loss + 0.05 * (row["seed"] - 1) for loss in row["losses"]]
    judged = claims.ONE_OF_EIGHT.judge(spread)
    assert (judged.verdict, judged.estimates[""].error) == ("undecided", pytest.approx(0.05 / 3**0.5))
    all_claims = claims.ONE_OF_EIGHT, claims.TWO_OF_EIGHT, claims.TWO_SMALL_EXPERTS
    assert [words(claim, found) for claim in all_claims] == ["holds"] * 3
    weaker = raised(found, "top-2", 0.03)
    assert [words(claim, weaker) for claim in all_claims] == ["holds", "holds", "does not hold"]
    assert words(claims.BALANCED_TOP_1, found) == words(claims.BALANCED_TOP_2, found) == "does not hold"
    assert words(claims.BALANCED_TOP_1, raised(found, "top-2", 0.02)) == "does not hold"
    assert words(claims.BALANCED_TOP_2, raised(found, "top-2", 0.02)) == "holds"


def test_jitter_is_compared_with_its_twin(found):
    judged = claims.JITTER.judge(found, NOTHING)
    assert judged.estimates[""].value == pytest.approx(-0.016)  # 0.0115, and three more wiggles of 0.0015
    assert judged.words == "not at this scale"
    assert words(claims.JITTER, raised(found, "top-1, balanced", 0.03)) == "holds"


def test_a_z_loss_is_about_logits_and_about_its_cost(found):
    assert claims.Z_LOG_SUM.judge(found, NOTHING).ours.endswith("h: 1.00 with it, 3.00 without")
    assert claims.Z_SMALLER.judge(found, NOTHING).ours.endswith("logit: 7.00 with it, 7.00 without")  # 6, 7 and 8
    # 2 lower with each seed; 0 lower; 0.005 + 2 wiggles more, which is more than 0 and less than 0.05
    assert words(claims.Z_LOG_SUM, found) == "holds"
    assert words(claims.Z_SMALLER, found) == "does not hold"
    assert words(claims.Z_LOWERS_LOSS, found) == "does not hold"
    assert words(claims.Z_CHEAP, found) == "holds"
    assert words(claims.Z_CHEAP, raised(found, "top-2, balanced, z-loss", 0.05)) == "does not hold"


def test_a_bias_is_compared_in_loads_and_in_what_it_costs(found):
    bias = cells(tables.regularisers((found, NOTHING)))[2]
    assert bias == ["top-2, sigmoid, bias", "top-2, sigmoid", "-0.0035 ± 0.0000", "14 %", "50 %"]
    # the balance loss costs 0.01 and a wiggle of 0.0015, the bias 0.002 and a wiggle: 0.008 less in every window
    assert claims.BIAS_CHEAPER.judge(found, NOTHING).estimates[""].value == pytest.approx(0.008)
    all_claims = claims.BIAS_EVENS, claims.BIAS_EVENS_MORE, claims.BIAS_CHEAPER
    assert [words(claim, found) for claim in all_claims] == ["holds"] * 3
    dear = raised(found, "top-2, sigmoid, bias", 0.02)
    assert [words(claim, dear) for claim in all_claims] == ["holds", "holds", "not at this scale"]


def test_expert_choice_is_read_with_and_without_later_bytes(found):
    assert words(claims.EXPERT_CHOICE, found) == words(claims.EXPERT_CHOICE_ALONE, found) == "holds"
    for row in found["tables"]["future"]:
        row["losses"] = [loss - 0.4 for loss in row["losses"]]
    assert words(claims.EXPERT_CHOICE, found) == "holds"
    assert words(claims.EXPERT_CHOICE_ALONE, found) == "does not hold"


def test_loads_that_vary_from_seed_to_seed_decide_nothing(found):
    for row in found["tables"]["models"]:
        if row["model"] == "top-2, sigmoid, bias":
            row["blocks"][0]["load"][0] = (0.1, 0.5, 0.9)[row["seed"]]
    assert pairs.falls(found, "top-2, sigmoid, bias", "top-2, sigmoid", pairs.busiest).undecided


def test_results_of_other_sizes_are_not_joined(found):
    one = found | {"sizes": {"kinds": ["dense"], "seeds": [0, 1, 2]}}
    assert len(pairs.joined(one, one)["tables"]["models"]) == 2 * len(found["tables"]["models"])
    with pytest.raises(ValueError, match="expected the same"):
        pairs.joined(one, one | {"sizes": {"kinds": [], "seeds": [0]}})


def test_every_kind_is_drawn_below_the_dense_model(found):
    fig = plots.below_dense(found)
    (axes,) = fig.axes
    title = axes.get_title(loc="left")
    # jitter and top-1 with a balance loss are behind, the bias is undecided, all others are ahead, three seeds each
    assert title.replace("\n", " ").startswith("Of 27 runs with experts 18 have a clearly lower and")
    assert title.endswith("6 a clearly higher loss than the dense model of their seed")
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(GAINS)[1:]
    first = axes.containers[0].lines[0]
    assert first.get_xdata()[0] == pytest.approx(0.0295 - 0.0015)
