"""MONK's problems, exclusive or, digits: the data are what their sources say."""

import pytest
import torch

from course_lib.pruning.classic.problems import (
    FLIPPED,
    NETWORKS,
    TRAINING_ROWS,
    digits,
    input_names,
    labels,
    monks,
    one_hot,
    robots,
    xor,
)


def test_networks_have_the_published_numbers_of_weights():
    assert [NETWORKS[k].n_weights for k in (1, 2, 3)] == [58, 39, 39]


def test_robots_are_numbered_with_the_last_attribute_fastest():
    assert robots().shape == (432, 6)
    assert robots()[0].tolist() == [1, 1, 1, 1, 1, 1]
    assert robots()[1].tolist() == [1, 1, 1, 1, 1, 2]
    assert robots()[431].tolist() == [3, 3, 2, 3, 4, 2]
    assert one_hot(robots()[1:2]).tolist()[0] == [1, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1]
    assert len(input_names()) == 17


@pytest.mark.parametrize(
    ("problem", "n_training", "n_positive", "n_flipped"), [(1, 124, 216, 0), (2, 169, 142, 0), (3, 122, 228, 6)]
)
def test_sizes_noise_and_rules(problem, n_training, n_positive, n_flipped):
    training, test = monks(problem)
    assert (len(training.inputs), len(test.inputs)) == (n_training, 432)
    assert int(test.targets.sum()) == n_positive
    rows = [int(r) for r in TRAINING_ROWS[problem].split()]
    assert rows == sorted(set(rows))
    wrong = (training.targets[:, 0] != labels(problem)[torch.tensor(rows) - 1].double()).nonzero().flatten()
    assert len(wrong) == n_flipped
    assert {rows[i] for i in wrong} <= FLIPPED


def test_rules_on_robots_worked_by_hand():
    number = {tuple(r): i for i, r in enumerate(robots().tolist())}
    assert labels(1)[number[2, 2, 1, 1, 4, 1]]
    assert labels(1)[number[1, 2, 1, 1, 1, 1]]
    assert not labels(1)[number[1, 2, 1, 1, 2, 1]]
    assert labels(2)[number[1, 1, 2, 2, 2, 2]]
    assert not labels(2)[number[1, 1, 1, 2, 2, 2]]
    assert labels(3)[number[1, 3, 1, 1, 3, 1]]
    assert not labels(3)[number[1, 3, 1, 2, 3, 1]]
    with pytest.raises(ValueError, match="expected 1, 2 or 3"):
        labels(4)


def test_xor_and_digits(generator):
    assert xor().targets.flatten().tolist() == [0, 1, 1, 0]
    training, test = digits(generator, 1200)
    assert (len(training.inputs), len(test.inputs)) == (1200, 597)
    assert (training.inputs.min(), training.inputs.max()) == (0, 1)
    assert (training.targets.sum(1) == 1).all()
    with pytest.raises(ValueError, match="fewer than all 1797"):
        digits(generator, 1797)
