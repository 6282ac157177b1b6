"""Calibration: exact agreement where nothing is pruned, no worse than where it begins, no step wasted on a failure."""

import pytest
import torch

from course_lib.attention.visual.calibrate import FAILED, Search, agreement, by_hand, calibrate, fitting
from course_lib.attention.visual.canvas import draw, question_ids
from course_lib.attention.visual.importance import Importance
from course_lib.attention.visual.model import Shape, SmallVLM
from course_lib.attention.visual.prune import Pruning, see
from course_lib.attention.visual.stages import Ratios


@pytest.fixture(scope="module")
def asked():
    model = SmallVLM(Shape(16, 2, 24, 2, 3), torch.Generator().manual_seed(0)).eval()
    return model, see(model, draw(5, "train", seed=0).images), question_ids()


def test_all_tokens_agree_with_all_tokens(asked):
    got = agreement(*asked, Pruning(Importance(), Ratios()))
    torch.testing.assert_close(got, torch.ones(5))


def test_the_cosine_is_that_of_the_settings_found(asked):
    search = Search(mean=0.25, n_first=3, n_steps=6)
    found = calibrate(*asked, search, seed=0)
    assert len(found.trials) == 6
    assert found.cosine == max(trial.value for trial in found.trials) >= found.trials[0].value
    assert found.cosine == pytest.approx(agreement(*asked, found.pruning).mean().item(), abs=1e-6)
    assert found.pruning.ratios.mean == pytest.approx(0.25)


def test_settings_that_ask_nobody_fail_alone(asked):
    """t up to 144: beyond what any patch receives; those points score 0, and others are found."""
    found = calibrate(*asked, Search(mean=0.5, most_t=144.0, n_first=4, n_steps=6), seed=0)
    values = [trial.value for trial in found.trials]
    assert FAILED in values
    assert found.cosine > FAILED


def test_a_point_is_a_set_of_settings():
    """Sides 4, 6, 12 make 9, 4 and 1 cells, and 3 makes 16, too many for the 14 tokens of one stage at R̄ = .1."""
    search = Search(mean=0.1, most_t=2.0, most_alpha=50.0)
    found = search.pruning((0.5, 0.1, 0.0, 0.0, 0.0))
    assert found.score == Importance(t=1.0, alpha=5.0)
    assert found.side == 4
    assert search.pruning((0.5, 0.1, 1.0, 0.0, 0.0)).side == 12
    assert search.pruning((0.5, 0.1, 0.0, 1.0, 0.0)).side == 3  # 40 tokens in the first third


@pytest.mark.parametrize("mean", [1.0, 0.5, 0.1, 0.05])
def test_settings_by_hand_have_the_mean(mean):
    assert by_hand(mean).ratios.mean == pytest.approx(mean)


def test_no_side_is_large_enough():
    with pytest.raises(ValueError, match=r"got sides \(3, 4\) and 7 tokens to keep"):
        fitting((3, 4), Ratios(0.05))
