"""What simple ideas for the open task of lesson 06 reached: compared beginning by beginning, within the budget."""

from dataclasses import replace

import pytest
from table_cells import rows as cells

from course_lib.lessons.common.ideas import against
from course_lib.lessons.common.results import load_measured
from course_lib.lessons.moe import budget
from course_lib.lessons.moe.experiments import moe_ideas as ideas
from course_lib.lessons.moe.experiments.moe_ideas import EXPERIMENT, Sizes, steps


def test_ideas_are_compared_beginning_by_beginning():
    """0.3 and 0.1 nats lower in two windows are 0.2 ± 0.1; from the second beginning 0.1 higher in both."""
    losses = {("first", 0): [2.0, 2.0], ("first", 1): [3.0, 3.0], ("other", 0): [1.7, 1.9], ("other", 1): [3.1, 3.1]}
    rows = [
        {"idea": idea, "seed": seed, "flops": 1000, "weights": 500, "losses": each}
        for (idea, seed), each in losses.items()
    ]
    assert cells(ideas.table(ideas.stored(rows))) == [
        ["first", "1,000", "500", "2.500", "–", "–"],
        ["other", "1,000", "500", "2.450", "+0.200 ± 0.100", "-0.100 ± 0.000"],
    ]


def test_an_idea_is_an_attempt_from_its_own_beginning(monkeypatch):
    monkeypatch.setattr(budget, "SCHEDULE", replace(budget.SCHEDULE, n_steps=2, batch=2, length=24))
    monkeypatch.setitem(ideas.IDEAS, "16 experts", {"width": 32, "neurons": 16})
    (step,) = steps(EXPERIMENT.quick)
    (row,), (other,) = (run(0)["ideas"] for run in (step.run, steps(Sizes(("16 experts",), (1,)))[0].run))
    assert (row["seed"], other["seed"]) == (0, 1)
    assert row["flops"] == other["flops"] < budget.BUDGET
    assert row["losses"] != other["losses"]


def test_the_committed_ideas_are_those_of_the_task_and_within_the_budget():
    measured = load_measured("moe", "experiments/moe_ideas")
    stored = ideas.stored(measured["tables"]["ideas"])
    assert tuple(stored) == EXPERIMENT.sizes.ideas == tuple(measured["sizes"]["ideas"])
    for made in (each for of_idea in stored.values() for each in of_idea):
        assert made.flops <= budget.BUDGET
        assert made.weights <= budget.MOST_WEIGHTS
    assert {len(made) for made in stored.values()} == {len(EXPERIMENT.sizes.seeds)}


def test_what_the_notebook_says_of_the_ideas():
    """Clearly ahead from both beginnings are two; two change sides with the beginning."""
    stored = ideas.stored(load_measured("moe", "experiments/moe_ideas")["tables"]["ideas"])
    first, *others = stored
    gains = {
        name: [against(mine.losses, same.losses) for mine, same in zip(stored[name], stored[first], strict=True)]
        for name in others
    }
    clear = {name for name, its in gains.items() if all(lower > 2 * error for lower, error in its)}
    assert clear == {"no balance loss", "two experts, both used"}
    turned = {name for name, ((a, e), (b, f)) in gains.items() if a > 2 * e and b < -2 * f}
    assert turned == {"weights that sum to one", "one expert of twice the size"}


@pytest.mark.parametrize(("width", "heads"), [(96, 3), (72, 2), (112, 2), (78, 1), (20, 1)])
def test_heads_follow_the_width_so_that_their_channels_pair(width, heads):
    assert budget.sizes_of(budget.USUAL | {"width": width})["n_heads"] == heads


@pytest.mark.parametrize(
    ("choices", "message"), [({"width": 95}, "expected an even number"), ({"neurons": 1.5}, "expected a whole number")]
)
def test_sizes_that_make_no_model_are_refused_in_words(choices, message):
    with pytest.raises(ValueError, match=message):
        budget.checked(choices)
