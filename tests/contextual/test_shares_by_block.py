"""Shares of each block: what a selector does with them, and which ones are found."""

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.contextual.apply import choices, contextual
from course_lib.contextual.execute.choices import oracle_sets, predicted
from course_lib.contextual.execute.decode import Decoder
from course_lib.contextual.fitting.shares import losses_alone, shares_by_block
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.contextual.selectors.cats import CATS
from course_lib.contextual.selectors.deja_vu import DejaVu
from course_lib.contextual.selectors.oracle import Oracle
from course_lib.measure.perplexity import window_losses
from course_lib.models import tiny_model


@pytest.fixture
def windows(generator):
    return torch.randint(3, 97, (2, 9), generator=generator)


def test_every_block_keeps_its_own_share(windows):
    """100 neurons a block: 7 and 40 of each token; a density for all takes their place."""
    model = tiny_model()
    keep = choices(model, Oracle(by_block=(0.07, 0.4)), windows[0])
    assert keep.sum(dim=2).tolist() == [[7] * 9, [40] * 9]
    with contextual(model, Oracle(by_block=(0.07, 0.4))) as watch:
        model(windows)
    assert watch.density == (0.07, 0.4)
    with contextual(model, Oracle(by_block=(0.07, 0.4)), density=0.2) as watch:
        model(windows)
    assert watch.density == (0.2, 0.2)


def test_a_threshold_of_each_block(windows):
    """What CATS keeps at a share of a block's own is what it keeps there when all blocks have that share."""
    model = tiny_model()
    fitted = CATS().fit(model, windows)
    apart = choices(model, replace(fitted, by_block=(0.3, 0.8)), windows[0])
    for block, share in enumerate((0.3, 0.8)):
        assert torch.equal(apart[block], choices(model, fitted, windows[0], density=share)[block])
    assert not torch.equal(apart[0], choices(model, fitted, windows[0], density=0.8)[0])


def test_the_decoder_keeps_them_too(windows):
    model = tiny_model(architecture="opt").requires_grad_(False)
    decoder, shares = Decoder(model, 9), (0.05, 0.3)
    predictors = tuple(Predictor(48, 6, 100, torch.Generator().manual_seed(block)) for block in range(2))
    with contextual(model, DejaVu(predictors=predictors, by_block=shares)):
        expected = model(windows[:1]).logits[0]
    # float32 through two blocks, one token at a time against all at once
    torch.testing.assert_close(decoder.read(windows[0], predicted(predictors, shares)), expected, rtol=1e-4, atol=1e-5)
    sets = oracle_sets(decoder, windows[0], shares)
    assert all(len(index) <= most for of_token in sets for index, most in zip(of_token, (5, 30), strict=True))
    assert max(len(of_token[1]) for of_token in sets) > 5
    with pytest.raises(ValueError, match="got 3 densities for 2 blocks"):
        predicted(predictors, (0.1, 0.2, 0.3))


@pytest.mark.parametrize("shares", [(0.5,), (0.5, 0.5, 0.5)])
def test_as_many_shares_as_blocks(windows, shares):
    model = tiny_model()
    with pytest.raises(ValueError, match=rf"by_block with {len(shares)} fractions; expected 2"):
        choices(model, Oracle(by_block=shares), windows[0])
    with pytest.raises(ValueError, match="expected 2, one per block"), contextual(model, Oracle(by_block=shares)):
        pass
    with pytest.raises(ValueError, match="density 1.5"):
        Oracle(by_block=(0.5, 1.5))


def test_one_block_at_a_time(windows):
    model = tiny_model()
    found = losses_alone(model, Oracle(), windows, (0.02, 1.0))
    assert found.shape == (2, 2)
    for block, shares in enumerate([(0.02, 1.0), (1.0, 0.02)]):
        with contextual(model, Oracle(by_block=shares)):
            assert found[block, 0] == window_losses(model, windows, progress=False).mean()
    dense = window_losses(model, windows, progress=False).mean()
    torch.testing.assert_close(found[:, 1], dense.expand(2))  # a multiplication by one


def test_shares_by_hand():
    """From (.1, .1) the first block's step to .2 saves 3.0 a share, to .4 4.0, the second's to .2 2.0, to .4 .67."""
    losses, levels = torch.tensor([[2.0, 1.7, 0.8], [1.0, 0.8, 0.8]]), (0.1, 0.2, 0.4)
    assert shares_by_block(losses, levels, 0.25) == (0.4, 0.1)
    assert shares_by_block(losses, levels, 0.3) == (0.4, 0.2)
    assert shares_by_block(losses, levels, 1.0) == (0.4, 0.2)  # more would save nothing
    assert shares_by_block(losses, levels, 0.2) == (0.2, 0.2)  # .4 for the first would leave no room at all
    assert shares_by_block(losses, levels, 0.1) == (0.1, 0.1)


@given(st.lists(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), min_size=1, max_size=3), st.floats(0.1, 0.4))
def test_the_best_of_all_where_every_step_saves_less(gains, mean):
    """Falling gains over equal steps: greedy steps are then as good as trying all shares that fit."""
    levels = (0.1, 0.2, 0.3, 0.4)
    steps = torch.tensor([sorted(each, reverse=True) for each in gains], dtype=torch.float64)
    losses = torch.cat([torch.zeros(len(gains), 1, dtype=torch.float64), -steps.cumsum(1)], dim=1)

    def total(at):
        return sum(losses[block, level].item() for block, level in enumerate(at))

    fit = [
        at
        for at in itertools.product(range(4), repeat=len(gains))
        if sum(levels[each] for each in at) / len(at) <= mean + 1e-9
    ]
    found = shares_by_block(losses, levels, mean)
    assert sum(found) / len(found) <= mean + 1e-9
    assert total([levels.index(each) for each in found]) == pytest.approx(min(map(total, fit)))


def test_shares_that_cannot_be():
    losses = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="at least the lowest level, 0.2"):
        shares_by_block(losses, (0.2, 0.4), 0.1)
    for levels in [(0.4, 0.2), (0.2, 0.2), (0.2, 0.4, 0.6)]:
        with pytest.raises(ValueError, match="levels rising"):
            shares_by_block(losses, levels, 0.5)
    with pytest.raises(ValueError, match="density"):
        shares_by_block(losses, (0.0, 0.5), 0.3)
