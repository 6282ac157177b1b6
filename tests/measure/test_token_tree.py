import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.measure.token_tree import TokenTree, grow_trees, tree_hidden_states
from course_lib.models import tiny_model

SEQUENCES = st.lists(st.lists(st.integers(3, 6), min_size=1, max_size=9), min_size=1, max_size=12)


def grown(sequences):
    (tree,) = grow_trees(sequences, 10_000)
    return tree


def test_a_tree_by_hand():
    tree = grown([[5, 6, 7], [5, 6, 8, 9], [5, 6], [4]])
    assert tree.tokens == [5, 6, 7, 8, 9, 4]
    assert tree.parents == [-1, 0, 1, 1, 3, -1]
    assert tree.paths == [[0, 1, 2], [0, 1, 3, 4], [0, 1], [5]]
    assert tree.depth.tolist() == [0, 1, 2, 2, 3, 0]
    assert tree.sees.int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ]


@settings(deadline=None, max_examples=60)
@given(SEQUENCES)
def test_each_sequence_stands_in_the_tree_and_sees_itself_alone(sequences):
    tree = grown(sequences)
    prefixes = {tuple(s[:n]) for s in sequences for n in range(1, len(s) + 1)}
    assert len(tree.tokens) == len(prefixes)  # every shared beginning once
    for sequence, path in zip(sequences, tree.paths, strict=True):
        assert [tree.tokens[i] for i in path] == sequence
        assert tree.depth[path].tolist() == list(range(len(path)))
        assert tree.sees[path[-1]].nonzero().flatten().tolist() == sorted(path)


@settings(deadline=None, max_examples=60)
@given(SEQUENCES, st.integers(1, 30))
def test_trees_stay_small_and_cover_all_sequences_in_order(sequences, most):
    trees = list(grow_trees(sequences, most))
    read = [[tree.tokens[i] for i in path] for tree in trees for path in tree.paths]
    assert read == sequences
    for tree in trees:
        longest = max(map(len, tree.paths))
        assert len(tree.tokens) <= max(most, longest)


def test_no_sequences_no_trees():
    assert list(grow_trees([], 5)) == []
    assert TokenTree().tokens == []


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "mistral", "opt", "gpt2"])
@torch.no_grad()
def test_in_a_tree_a_sequence_is_to_the_model_as_if_alone(architecture, generator):
    model = tiny_model(architecture=architecture)
    a, b, c = torch.randint(3, 97, (3, 20), generator=generator).tolist()
    sequences = [a, a[:12] + b[:6], b[:9], a[:5], a[:12] + c, c[:1]]
    tree = grown(sequences)
    hidden = tree_hidden_states(model, tree)
    for sequence, path in zip(sequences, tree.paths, strict=True):
        alone = model.base_model(input_ids=torch.tensor([sequence])).last_hidden_state[0]
        assert torch.allclose(hidden[path], alone, atol=1e-5)
