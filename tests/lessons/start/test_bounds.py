"""The least time of a pass, and how fast a part must get, by hand; the layers add up to the model."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.lessons.start.bounds import factor_needed, layer_works, pass_seconds
from course_lib.measure.roofline import LLAMA2_7B, Transformer


def test_a_pass_by_hand():
    """2 s of arithmetic, then 0.4 s of memory; as one piece it would be 2.02 s."""
    flops, n_bytes = torch.tensor([[2e11, 2e9], [1e9, 4e9]], dtype=torch.float64)
    assert pass_seconds(flops, n_bytes, 1e11, 1e10) == pytest.approx(2.4)


@given(st.floats(0.01, 1.0), st.floats(1.0, 200.0))
def test_the_factor_gives_the_goal_or_nothing_does(share, goal):
    factor = factor_needed(share, goal)
    if factor:
        assert 1 / (1 - share + share / factor) == pytest.approx(goal, rel=1e-6)
    else:
        assert goal * (1 - share) >= 1 - 1e-9


def test_the_layers_of_a_prompt_are_those_of_the_model():
    """8 wide, 16 neurons, 2 blocks of 7 matrices, 10 tokens in the vocabulary: 2 · (192 + 384) and 80 weights."""
    sizes = Transformer(n_blocks=2, width=8, n_query=4, n_key_value=2, head_size=2, n_neurons=16, vocabulary=10)
    flops, n_bytes = layer_works(sizes, n_tokens=3, value_bytes=4)
    assert len(flops) == len(n_bytes) == 2 * 7 + 1
    assert flops.sum() == 2 * 3 * 2 * sizes.block_weights + 2 * 80
    assert n_bytes[0] == 4 * (8 * 8 + 3 * 16)
    assert n_bytes[-1] == 4 * (80 + 18)
    assert layer_works(LLAMA2_7B, 1, 2)[0].sum() == 2 * LLAMA2_7B.matrix_weights
