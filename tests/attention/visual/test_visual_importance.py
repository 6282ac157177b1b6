"""Importance by hand, against loops, at its bounds; baselines; what the public code does where nobody is asked."""

import pytest
import torch
import visual_naive
from hypothesis import given
from hypothesis import strategies as st

from course_lib.attention.visual.as_released import MeanOverContext
from course_lib.attention.visual.baselines import AttentionReceived, EntropyAlone, RandomTokens
from course_lib.attention.visual.importance import EmptyContext, Evidence, Importance, looked_to

# Rows sum to 1; columns, what each patch receives: .6, 1.8, .6.
ATTENTION = torch.tensor([[[0.2, 0.6, 0.2], [0.1, 0.8, 0.1], [0.3, 0.4, 0.3]]])
BITS = torch.tensor([[0.0, 1.0, 2.0]])


def evidence(n: int, seed: int, n_images: int = 2) -> Evidence:
    generator = torch.Generator().manual_seed(seed)
    attention = (3 * torch.randn(n_images, n, n, generator=generator)).softmax(dim=2)
    return Evidence(attention, 4 * torch.rand(n_images, n, generator=generator))


def test_by_hand():
    """τ = 1: only the middle is asked, and it says .1, .8, .1. softmax(0, 1, 2) = .0900, .2447, .6652; α = 2."""
    assert looked_to(ATTENTION, 1.0).tolist() == [[False, True, False]]
    got = Importance(t=1.0, alpha=2.0)(Evidence(ATTENTION, BITS))
    torch.testing.assert_close(got, torch.tensor([[0.2801, 1.2895, 1.4305]]), atol=1e-4, rtol=0)


def test_all_are_asked_where_t_is_small():
    """t = .5: τ = .5 < .6; then I is what each receives."""
    got = Importance(t=0.5, alpha=0.0)(Evidence(ATTENTION, BITS))
    torch.testing.assert_close(got, ATTENTION.sum(dim=1))
    torch.testing.assert_close(AttentionReceived()(Evidence(ATTENTION, BITS)), got)


@given(st.integers(2, 12), st.floats(0, 1.0), st.floats(0, 50), st.integers(0, 2**31))
def test_against_loops(n, t, alpha, seed):
    seen = evidence(n, seed)
    got = Importance(t, alpha)(seen)  # something always receives the mean or more; more than it, unless all are alike
    for image in range(2):
        expected = torch.tensor(visual_naive.importance(seen.attention[image], seen.entropy[image], t, alpha))
        torch.testing.assert_close(got[image], expected, atol=1e-4, rtol=1e-4)  # sums of float32 in another order


@given(st.integers(2, 12), st.floats(0, 50), st.integers(0, 2**31))
def test_it_sums_to_those_asked_and_alpha(n, alpha, seed):
    seen = evidence(n, seed)
    n_asked = looked_to(seen.attention, 0.9).sum(dim=1)
    torch.testing.assert_close(Importance(0.9, alpha)(seen).sum(dim=1), n_asked + alpha, atol=1e-3, rtol=1e-4)


def test_nobody_is_asked():
    """The public code goes on with NaN; here it is told, with the t that there could be at most."""
    seen = Evidence(ATTENTION, BITS)
    with pytest.raises(EmptyContext, match=r"got t=2.0; .* more than 1.8 times .* Take a smaller t"):
        Importance(t=2.0)(seen)
    assert MeanOverContext(t=2.0)(seen).isnan().all()


def test_the_public_code_takes_the_mean():
    """Two are asked at t = .5 of these columns: (1.2, 1.2, .6); α then weighs twice what it does here."""
    attention = torch.tensor([[[0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.4, 0.4, 0.2]]])
    ours, theirs = (score(Evidence(attention, BITS)) for score in (Importance(1.0, 0.0), MeanOverContext(1.0, 0.0)))
    torch.testing.assert_close(ours, torch.tensor([[0.8, 0.8, 0.4]]))
    torch.testing.assert_close(theirs, ours / 2)
    assert (MeanOverContext(1.0, -1.0)(Evidence(attention, BITS)) < 0).any()


def test_baselines():
    seen = evidence(9, 0, n_images=3)
    torch.testing.assert_close(EntropyAlone()(seen).argsort(), seen.entropy.argsort())
    one, again, other = (RandomTokens(seed)(seen) for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert len({tuple(row) for row in one.argsort(dim=1).tolist()}) == 3  # each image its own


@pytest.mark.parametrize("settings", [{"t": -0.1}, {"alpha": -1.0}, {"alpha": float("inf")}, {"t": float("nan")}])
def test_settings_that_mean_nothing(settings):
    with pytest.raises(ValueError, match="expected numbers of 0 or more"):
        Importance(**settings)


def test_evidence_of_other_images():
    with pytest.raises(ValueError, match=r"got attention \(1, 3, 3\) and entropy \(1, 4\)"):
        Importance()(Evidence(ATTENTION, torch.zeros(1, 4)))
