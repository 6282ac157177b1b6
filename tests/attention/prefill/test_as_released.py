"""What the two lines of the public code do: scattered tokens counted as blocks, and a divergence that is no number."""

import pytest
import torch
from prefill_naive import draw

from course_lib.attention.prefill.as_released import AsReleased, quotient_divergence, tokens_taken_for_blocks
from course_lib.attention.prefill.coverage import coverage
from course_lib.attention.prefill.cumulative import smallest_set
from course_lib.attention.prefill.divergence import jensen_shannon
from course_lib.attention.prefill.flexprefill import FlexPrefill


def test_300_scattered_tokens_become_3_blocks():
    """Every 13th of 3900 tokens holds 1/300: γ = .995 takes 299 of them. They lie in all 31 blocks of 128, and each of
    these is needed; 3 hold a tenth.
    """
    mass = torch.zeros(1, 3900)
    mass[0, ::13] = 1 / 300
    assert tokens_taken_for_blocks(mass, 0.995, 128).tolist() == [3]
    blocks = torch.nn.functional.pad(mass, (0, 31 * 128 - 3900)).view(1, 31, 128).sum(dim=2)
    assert smallest_set(blocks, 0.995).all()
    assert float(blocks.topk(3).values.sum()) == pytest.approx(0.1, abs=1e-3)


def test_one_probability_of_zero_makes_it_no_number():
    """And NaN < τ is false, so that the head is called vertical-slash, although the two are equal."""
    p = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.3, 0.2]])
    got = quotient_divergence(p, p)
    assert got[0].isnan()
    assert (got < 0.1).tolist() == [False, True]
    assert (jensen_shannon(p, p).sqrt() < 0.1).tolist() == [True, True]


def test_elsewhere_it_is_the_divergence(generator):
    p, q = torch.rand(2, 5, 9, generator=generator).softmax(dim=-1)
    torch.testing.assert_close(quotient_divergence(p, q).double(), jensen_shannon(p, q).sqrt(), atol=1e-4, rtol=0)


def test_the_share_is_not_reached_where_attention_is_scattered():
    """Some tokens of every block matter: their number, taken for blocks, is far from what they hold."""
    query, keys, _ = draw(torch.Generator().manual_seed(3), 1, 2, 800, sharp=6.0)
    settings = {"gamma": 0.9, "tau": 0.0, "block_size": 32, "min_budget": 0}
    ours, theirs = (rule(**settings).index(query, keys, 8**-0.5) for rule in (FlexPrefill, AsReleased))
    assert (theirs.density < 0.5 * ours.density).all()
    reached = [coverage(query, keys, index, 8**-0.5, n_last=32) for index in (ours, theirs)]
    assert (reached[0] >= 0.9).all()
    assert (reached[1] < 0.5).all()
