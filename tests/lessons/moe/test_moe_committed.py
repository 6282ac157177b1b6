"""What notebook and deck of lesson 06 say of `course reproduce moe` follows from the committed measurement."""

from statistics import fmean, stdev

import pytest

from course_lib.lessons.common.results import load_measured, rows
from course_lib.lessons.moe import claims, pairs, plots
from course_lib.lessons.moe.experiments import moe

KINDS = ("top-1", "top-1, balanced", "top-2", "top-2, balanced")


@pytest.fixture(scope="module")
def committed():
    return load_measured("moe")


def test_all_kinds_and_seeds_are_measured(committed):
    labels = {(row["model"], row["seed"]) for row in rows(committed, "models")}
    assert labels == {(name, seed) for name in moe.SIZES.kinds for seed in moe.SIZES.seeds}


def test_no_kind_of_experts_is_ahead_from_every_beginning(committed):
    for name in KINDS:
        assert not all(effect.holds for effect in pairs.lower(committed, name, "dense").values())
    dense, *others = (rows(committed, "models", model=name)[0] for name in ("dense", *KINDS))
    assert {round(row["parameters"] / dense["parameters"]) for row in others} == {3, 6}
    assert all(row["flops_a_byte"] / dense["flops_a_byte"] < 1.01 for row in others)
    schedule = moe.SIZES.schedule
    read = schedule.n_steps * schedule.batch * schedule.length
    assert f"{read / 1e6:.1f}" == "1.6"
    assert 1 < read / dense["parameters"] < 2


def test_what_is_said_of_experts_balance_and_copies():
    by_loss = (claims.ONE_OF_EIGHT, claims.TWO_OF_EIGHT, claims.BALANCED_TOP_1, claims.BALANCED_TOP_2)
    assert {claim.judge().verdict for claim in by_loss} == {"undecided"}
    assert claims.UPCYCLED_TOP_1.judge().words == "holds"
    assert claims.UPCYCLED_REDRAWN.judge().words == "does not hold"


def test_balance_evens_loads_and_does_not_pay_in_loss(committed):
    assert all(effect.fails for effect in pairs.lower(committed, "top-1, balanced", "top-1").values())
    two_experts = pairs.lower(committed, "top-2, balanced", "top-2").values()
    assert sum(effect.holds for effect in two_experts) == sum(effect.fails for effect in two_experts) == 1
    for name, k in (("top-1, balanced", 1), ("top-2, balanced", 2)):
        assert pairs.collapsed_blocks(committed, name, k) == "in 0, 0, 0 of 4 blocks (3 seeds)"


def test_of_one_expert_a_byte_the_first_block_collapses(committed):
    for row in rows(committed, "models", model="top-1"):
        assert [max(block["load"]) > 0.5 for block in row["blocks"]] == [True, False, False, False]
        assert max(row["blocks"][0]["load"]) > 0.99


def test_loads_are_most_uneven_after_some_twenty_steps(committed):
    for name in KINDS:
        found = rows(committed, "loads", model=name)
        by_step = {step: fmean(max(row["load"]) for row in found if row["step"] == step) for step in moe.SIZES.loads}
        assert max(by_step, key=by_step.get) == 20
        assert by_step[800] < by_step[20]


def test_what_is_said_of_jitter_z_loss_bias_and_choosing_experts():
    assert claims.JITTER.judge().words == "holds"
    found = pairs.joined(*plots.with_routers())
    gains = [effect.value for effect in pairs.lower(found, "top-1, balanced, jitter", "top-1, balanced").values()]
    ends = [row["loss"] for row in rows(found, "models", model="top-1, balanced")]
    assert 0.003 < min(gains) < max(gains) < stdev(ends) / 2  # Switch: -1.471 to -1.468
    assert {claim.judge().words for claim in (claims.Z_LOG_SUM, claims.Z_SMALLER, claims.Z_CHEAP)} == {"holds"}
    sums, heights = (
        [fmean(pairs.of_seeds(found, name, key).values()) for name in ("top-2, balanced, z-loss", "top-2, balanced")]
        for key in ("log_sum_exp", "largest_logit")
    )
    assert sums[0] / sums[1] == pytest.approx(1 / 3, abs=0.04)
    assert heights[0] / heights[1] > 0.9
    assert claims.BIAS_EVENS.judge().words == claims.BIAS_EVENS_MORE.judge().words == "holds"
    others = (claims.BIAS_CHEAPER, claims.EXPERT_CHOICE, claims.EXPERT_CHOICE_ALONE)
    assert {claim.judge().verdict for claim in others} == {"undecided"}


def test_the_figures_of_the_deck_are_drawn_from_it():
    assert plots.losses().axes[0].get_title(loc="left").startswith("Of 12 runs with experts ")
    assert plots.routers().axes[0].get_title(loc="left").startswith("Of 27 runs with experts ")
    assert plots.largest_loads().axes[0].get_title(loc="left").startswith("Load of the busiest expert of a block")
