"""The best stay: numbers by hand, heads inside their group, ties, and counts that are the same in every block."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.pruning.structured.choice import Scores, best_heads, choose
from course_lib.pruning.structured.shape import Shape

NOW = Shape(width=4, blocks=2, neurons=3, heads=6, groups=2)


def test_by_hand():
    scores = Scores(
        neurons=torch.tensor([[1.0, 3.0, 2.0], [5.0, 5.0, 5.0]]),
        # Group 0 holds heads 0 to 2, group 1 heads 3 to 5. Over all of block 0 the best two would be 0 and 1.
        heads=torch.tensor([[9.0, 8.0, 1.0, 2.0, 0.0, 3.0], [0.0, 0.0, 1.0, 4.0, 5.0, 6.0]]),
        groups=torch.tensor([[1.0, 2.0], [3.0, 2.0]]),
        width=torch.tensor([-1.0, 2.0, -3.0, 1.0]),
        blocks=torch.tensor([0.1, 0.2]),
    )
    kept = choose(scores, NOW, Shape(width=2, blocks=1, neurons=2, heads=2, groups=2))
    assert kept.neurons.tolist() == [[1, 2], [0, 1]]  # of equal ones the first
    assert kept.heads.tolist() == [[0, 5], [2, 5]]
    assert kept.groups.tolist() == [[0, 1], [0, 1]]
    assert kept.width.tolist() == [1, 3]
    assert kept.blocks.tolist() == [1]
    one = choose(scores, NOW, Shape(width=4, blocks=2, neurons=3, heads=2, groups=1))
    assert one.groups.tolist() == [[1], [0]]
    assert one.heads.tolist() == [[3, 5], [0, 2]]  # heads 0 and 1 of block 1 tie: the first


def test_whole_groups_need_no_scores_of_heads():
    kept = choose(
        Scores(groups=torch.tensor([[1.0, 2.0], [3.0, 2.0]])),
        NOW,
        Shape(width=4, blocks=2, neurons=3, heads=3, groups=1),
    )
    assert kept.heads.tolist() == [[3, 4, 5], [0, 1, 2]]


@settings(deadline=None)
@given(seed=st.integers(0, 1000), n_groups=st.integers(1, 4), size=st.integers(1, 4), data=st.data())
def test_heads_against_a_loop(seed, n_groups, size, data):
    n_each, stay = data.draw(st.integers(1, size)), data.draw(st.integers(1, n_groups))
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 4, (3, n_groups * size), generator=generator).float()  # ties
    groups = torch.stack([torch.randperm(n_groups, generator=generator)[:stay].sort().values for _ in range(3)])
    expected = []
    for row, kept in zip(scores.tolist(), groups.tolist(), strict=True):
        line = []
        for group in kept:
            members = range(group * size, (group + 1) * size)
            line += sorted(sorted(members, key=lambda h: (-row[h], h))[:n_each])
        expected.append(line)
    assert best_heads(scores, groups, n_groups, n_each).tolist() == expected


def test_scores_are_joined():
    mine = Scores(neurons=torch.ones(1, 2)) | Scores(neurons=torch.zeros(1, 2), blocks=torch.zeros(1))
    assert mine.neurons.tolist() == [[1.0, 1.0]]
    assert mine.blocks.tolist() == [0.0]
    assert mine.width is None
