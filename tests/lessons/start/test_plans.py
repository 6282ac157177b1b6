"""The open task of lesson 00: plans counted by hand, a model that is restored, and the table of results."""

import math

import pytest
import torch
from table_cells import rows

from course_lib.lessons.common.results import COLUMNS, load_measured
from course_lib.lessons.start import tables
from course_lib.lessons.start.experiments import plans
from course_lib.lessons.start.experiments.plans import Attempt, Plan
from course_lib.lessons.start.plots import SMOLLM2
from course_lib.measure.roofline import Device, Transformer, Work
from course_lib.models import blocks, linears, tiny_model

SIZES = Transformer(n_blocks=4, width=8, n_query=4, n_key_value=2, head_size=2, n_neurons=16, vocabulary=10)


@pytest.mark.parametrize(
    "wrong", [{"batch_size": 0}, {"context": 9000}, {"neurons": 0.0}, {"blocks": 1.5}, {"tokens": -0.5}]
)
def test_an_impossible_plan_is_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        Plan(**wrong)


def test_the_work_of_a_plan_by_hand():
    """Half of 4 blocks with half of 16 neurons: 2 · (192 + 192) and 80 weights; 16 of 32 tokens and a new one."""
    whole, left = plans.works(SIZES, Plan(context=32, neurons=0.5, blocks=0.5, tokens=0.5), value_bytes=4)
    assert whole.bytes == 4 * (4 * (192 + 384) + 80) + 33 * 4 * 4 * 2 * 2 * 2
    assert left.bytes == 4 * (2 * (192 + 192) + 80) + 17 * 4 * 2 * 2 * 2 * 2
    assert Attempt(Plan(), whole, left, ()).bytes_saved == 1 - left.bytes / whole.bytes


def test_the_model_is_smaller_inside_and_restored_afterwards(generator):
    model = tiny_model()
    ids = torch.randint(3, 90, (2, 8), generator=generator)
    before = model(ids).logits
    smaller = [(linear, cut) for block in blocks(model) for linear, cut in plans._cuts(block, Plan(neurons=0.5))]
    with plans.reduced(model, smaller, Plan(neurons=0.5, blocks=0.5)):
        assert len(blocks(model)) == 1
        shapes = {name: tuple(linear.weight.shape) for name, linear in linears(blocks(model)[0]).items()}
        assert shapes["mlp.up_proj"] == (50, 48)
        assert shapes["mlp.down_proj"] == (48, 50)
        assert not model(ids).logits.allclose(before)
    assert model(ids).logits.equal(before)
    assert all(parameter.is_leaf for parameter in model.parameters())


def test_an_attempt_pairs_steps_and_restores_the_number_of_threads():
    n_threads = torch.get_num_threads()
    attempt = plans.attempt(
        tiny_model(), Plan(batch_size=2, context=16, neurons=0.5, tokens=0.5), n_pairs=6, seconds=0.0
    )
    assert len(attempt.pairs) == 4
    assert all(before > 0 and after > 0 for before, after in attempt.pairs)
    assert torch.get_num_threads() == n_threads
    assert 0 < attempt.bytes_saved < 0.5


def test_the_table_shows_speedups_and_verdicts():
    """Steps of 4 s became 1 s and 1.1 s, more than twice as fast; steps of 1 s did not change."""
    fast = Attempt(Plan(), Work(1, 100), Work(1, 40), ((4.0, 1.0), (4.0, 1.1), (4.0, 1.0)))
    idle = Attempt(Plan(), Work(1, 100), Work(1, 99), ((1.0, 1.0), (1.0, 1.01), (1.01, 1.0)))
    table = tables.plans(None, {"fast": fast, "idle": idle}, Device("by hand", 1e9, 100, "made up"))
    assert rows(table) == [
        ["fast", "60 %", "2.50", "3.87 ± 3 %", "3", "holds"],
        ["idle", "1 %", "1.01", "1.00 ± 1 %", "3", "does not hold"],
    ]
    assert max(map(len, str(table).splitlines())) <= COLUMNS


def test_the_committed_ideas_are_those_of_the_experiment():
    measured = load_measured("start", "plans")
    attempts = plans.stored(measured["tables"]["ideas"], SMOLLM2)
    assert {name: attempt.plan for name, attempt in attempts.items()} == plans.IDEAS
    assert all(len(attempt.pairs) >= 8 for attempt in attempts.values())
    assert all(math.isfinite(sum(attempt.log_speedups)) for attempt in attempts.values())
    assert measured["sizes"]["pairs"] == plans.Sizes().pairs


@pytest.mark.real
def test_the_sizes_of_the_deck_are_those_of_the_model(real_model):
    assert Transformer.of(real_model[0]) == SMOLLM2
