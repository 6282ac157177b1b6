"""Recall, precision and energy by hand; predictors that come back from their file."""

import pytest
import torch

from course_lib.contextual.predictor.scores import Scores, scores
from course_lib.contextual.predictor.store import load_predictors, save_predictors
from course_lib.contextual.predictor.two_layer import Predictor


def test_scores_by_hand():
    # Of active 3 + 1, found 1 + 1; kept 2 + 2. Lengths h‖w‖: 1, 4, 3, 0 and 0, 2, 0, 0; squares 26 and 4, kept 16 + 4.
    hidden, norm = torch.tensor([[1.0, -2.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]]), torch.tensor([1.0, 2.0, 3.0, 1.0])
    keep = torch.tensor([[False, True, False, True], [False, True, True, False]])
    active = hidden != 0
    assert scores(keep, active, hidden, norm) == pytest.approx(Scores(2 / 4, 2 / 4, 20 / 30))


def test_everything_kept_misses_nothing_and_where_nothing_is_nothing_is_missed():
    hidden = torch.tensor([[0.5, -1.0, 0.0]])
    everything = torch.ones(1, 3, dtype=torch.bool)
    assert scores(everything, hidden != 0, hidden, torch.ones(3)) == pytest.approx(Scores(1, 2 / 3, 1))
    assert scores(everything, ~everything, 0 * hidden, torch.ones(3)) == (1.0, 0.0, 1.0)
    assert scores(~everything, everything, hidden, torch.ones(3)) == (0.0, 1.0, 0.0)


def test_shapes_that_do_not_fit():
    some = torch.ones(2, 3, dtype=torch.bool)
    for given in (
        (some[:1], some, some.float(), torch.ones(3)),
        (some, some, some.float(), torch.ones(2)),
        (some[:0], some[:0], some[:0].float(), torch.ones(3)),
    ):
        with pytest.raises(ValueError, match="tokens, neurons"):
            scores(*given)


def test_predictors_come_back_in_their_order(tmp_path):
    made = tuple(Predictor(6, 2, 5, torch.Generator().manual_seed(seed)) for seed in range(12))  # more than ten
    path = save_predictors(made, tmp_path / "some.safetensors")
    found = load_predictors(path)
    assert len(found) == 12
    for before, after in zip(made, found, strict=True):
        assert not after.into.weight.requires_grad
        for name, weight in before.named_parameters():
            assert torch.equal(after.get_parameter(name), weight.half().float())
    with pytest.raises(ValueError, match="not there"):
        load_predictors(tmp_path / "other.safetensors")
