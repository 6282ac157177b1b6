"""Heads chosen by trained predictors: their labels, what they read, and that they learn."""

import pytest
import torch

from course_lib.contextual.attention.heads import contextual_heads, part_norms
from course_lib.contextual.attention.parts import look_through_heads, part_norms_of
from course_lib.contextual.attention.predicted import collect_heads, predicted_heads
from course_lib.contextual.predictor.training import PredictorSchedule, train_predictors
from course_lib.contextual.predictor.two_layer import Predictor
from course_lib.models import tiny_model


def text(n=3, length=9, seed=0):
    return torch.randint(3, 97, (n, length), generator=torch.Generator().manual_seed(seed))


def test_labels_are_the_longest_parts_of_each_token():
    model, windows, read = tiny_model(), text(), []
    collected = collect_heads(model, windows, n_active=2)
    look_through_heads(model, windows, lambda block, seen: read.append(seen.x) if block == 1 else None)
    norms = torch.cat([part_norms_of(model, ids) for ids in windows], dim=1)  # (L, T, H)
    for block in (0, 1):
        expected = torch.zeros(27, 6, dtype=torch.bool).scatter_(1, norms[block].topk(2, dim=1).indices, True)
        assert torch.equal(collected.labels(block), expected)
    assert torch.equal(collected.inputs(1), torch.cat(read))
    assert torch.equal(collect_heads(model, windows, 2, lookahead=1).inputs(1), collected.inputs(0))


def test_a_predictor_scores_what_it_reads_there_or_a_block_before():
    """Predictors that read x off: the first six numbers are the heads' scores."""
    model, seen_x = tiny_model(), {}
    predictor = Predictor(48, 48, 6)
    with torch.no_grad():
        predictor.into.weight.copy_(torch.eye(48)), predictor.out.weight.copy_(torch.eye(48)[:6])

    def noting(lookahead):
        inner = predicted_heads((predictor, predictor), lookahead)

        def score(seen, block):
            seen_x[block] = seen.x[:, :6]
            scores[block] = inner(seen, block)
            return scores[block]

        return score

    for lookahead, source in ((0, 1), (1, 0)):
        scores = {}
        with torch.no_grad(), contextual_heads(model, noting(lookahead), keep=2, lookahead=lookahead):
            model(text(1))
        assert torch.equal(scores[0], seen_x[0])
        assert torch.equal(scores[1], seen_x[source])


def test_it_learns_which_heads_a_token_needs():
    """On the text that it learnt from it finds most of them; a head of six by lot is right in a sixth."""
    model, windows = tiny_model(), text(4, 16)
    collected = collect_heads(model, windows, n_active=1)
    # Its inputs are small, behind the norm of an untrained model, hence the high rate.
    ready = train_predictors(collected, rank=24, schedule=PredictorSchedule(epochs=60, batch=64, rate=0.05))
    for block, predictor in enumerate(ready):
        first = predictor(collected.inputs(block)).argmax(1, keepdim=True)
        assert collected.labels(block).gather(1, first).float().mean() > 0.6
    with torch.no_grad(), contextual_heads(model, predicted_heads(ready), keep=1) as watch:
        model(windows)
    with torch.no_grad(), contextual_heads(model, part_norms, keep=1) as oracle:
        model(windows)
    assert (watch.share - oracle.share).abs().max() < 0.3  # not one head for all


def test_bad_input_is_named():
    model = tiny_model()
    with pytest.raises(ValueError, match="got n_active 6; expected 1 to 5 of the 6 heads"):
        collect_heads(model, text(), n_active=6)
    with pytest.raises(ValueError, match="got lookahead 2; expected 0 to 1"):
        collect_heads(model, text(), n_active=2, lookahead=2)
    for predictor, message in (
        (Predictor(48, 2, 6), "got 1 predictors, and block 1"),
        (Predictor(40, 2, 6), "got a predictor of 40 numbers at block 0"),
    ):
        score = predicted_heads((predictor,))
        with torch.no_grad(), pytest.raises(ValueError, match=message), contextual_heads(model, score, keep=2):
            model(text())
