"""The reference steps of lesson 09: numbers by hand, and attention with completed keys."""

import pytest
import torch

from course_lib.lessons.dejavu.steps import completed, pairs, payoff


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def test_pairs_read_what_stands_before_the_mlp_of_an_earlier_block():
    stream = torch.arange(9.0)[:, None, None]  # 4 blocks; each state is the number of its place
    active = torch.eye(4, dtype=torch.bool)[:, None]
    inputs, labels = pairs(stream, active, 2)
    assert inputs.flatten().tolist() == [1, 3]
    assert labels.nonzero()[:, 2].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("places", "ahead", "said"), [(8, 1, "expected 9"), (9, 4, "expected 0 to 3"), (9, -1, "got -1")]
)
def test_a_stream_that_does_not_fit_and_blocks_that_are_not_there_are_refused(places, ahead, said):
    with pytest.raises(ValueError, match=said):
        pairs(torch.zeros(places, 2, 3), torch.ones(4, 2, 5, dtype=torch.bool), ahead)


def tables(n_positions, size):
    angle = torch.arange(n_positions)[:, None] * 50.0 ** (-torch.arange(0, size, 2) / size)
    return angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)


def test_completed_keys_give_the_attention_of_a_head_that_was_never_left_out():
    inputs, key_weight, value_weight, query = randn(7, 10), randn(6, 10), randn(6, 10).flip(0), randn(6)
    position, (cos, sin) = torch.tensor([2, 3, 7, 8, 11, 12, 20]), tables(24, 6)
    at = [table[position] for table in (cos, sin)]
    whole = completed(randn(7, 6), randn(7, 6), position, torch.arange(7), inputs, key_weight, value_weight, cos, sin)
    missing = torch.tensor([1, 4, 6])
    holes = [tensor.index_fill(0, missing, torch.nan) for tensor in whole]
    made = completed(*holes, position, missing, inputs[missing], key_weight, value_weight, cos, sin)
    keys = inputs @ key_weight.T
    by_pairs = torch.view_as_real(
        torch.complex(keys[:, :3], keys[:, 3:]) * torch.complex(at[0][:, :3], at[1][:, :3])
    )  # (N, d/2, 2)
    # Sums of 10 products in another order: a few roundings of float32.
    torch.testing.assert_close(made[0], by_pairs.transpose(1, 2).flatten(1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(made[1], inputs @ value_weight.T, atol=1e-5, rtol=1e-5)
    outputs = [(keys @ query).softmax(0) @ values for keys, values in (whole, made)]
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-5)


def test_an_input_is_needed_for_each_missing_token():
    with pytest.raises(ValueError, match="got 2 stored inputs for 1 missing tokens"):
        completed(
            randn(3, 4),
            randn(3, 4),
            torch.arange(3),
            torch.tensor([2]),
            *(randn(n, 5) for n in (2, 4, 4)),
            *tables(4, 4),
        )


def test_payoff_by_hand():
    # MLP 3 · 4 · 20 = 240, predictor 1 · (4 + 20) = 24: dense 400, sparse 2 · 0.15 · 240 + 24 + 160 = 256 a token.
    assert payoff(4, 20, 1, 1, 160, 0.15, 2.0, 5.0, 10) == pytest.approx((400 / 256, 6000 / 4560, 216 / 480))


def test_at_the_break_even_density_nothing_is_won():
    sizes, gather = (576, 1536, 30, 64, 5e7), 1.7
    even = payoff(*sizes, 0.5, gather, 10.0, 10)[2]
    assert payoff(*sizes, even, gather, 10.0, 10)[:2] == pytest.approx((1.0, 1.0))


def test_a_predictor_larger_than_the_mlp_never_pays():
    assert payoff(10, 20, 2, 30, 1000, 0.01, 1.0, 1.0, 9)[2] == 0
