"""The small model, and its answers from fewer tokens: exactly those of a mask, and those of all where all are kept."""

from itertools import pairwise

import pytest
import torch

from course_lib.attention.visual.baselines import AttentionReceived, RandomTokens
from course_lib.attention.visual.canvas import draw, question_ids
from course_lib.attention.visual.importance import Importance
from course_lib.attention.visual.model import N_TOKENS, Shape, SmallVLM, turn
from course_lib.attention.visual.prune import Pruning, answers, read, see
from course_lib.attention.visual.stages import Ratios

SHAPE = Shape(width=16, n_heads=2, hidden=24, n_encoder=2, n_decoder=3)


@pytest.fixture(scope="module")
def model():
    return SmallVLM(SHAPE, torch.Generator().manual_seed(0)).eval()


@pytest.fixture(scope="module")
def asked(model):
    canvases = draw(5, "test", seed=0)
    return canvases.images, question_ids(), see(model, canvases.images)


def naive(model, images, words, positions):
    """Token by token masked: a token that is not among a third's positions is neither read nor carried on."""
    n = N_TOKENS + words.shape[1]
    x = torch.cat([model.visual(images), model.words(words)], dim=1)
    place = torch.arange(n).expand(len(x), -1)
    each = len(model.decoder) // 3
    for layer, block in enumerate(model.decoder):
        there = torch.zeros(len(x), n, dtype=torch.bool).scatter(1, positions[layer // each], True)
        there[:, N_TOKENS:] = True
        query, keys, values = block.attention.projected(block.norm(x), place)
        logits = query @ keys.transpose(2, 3) * query.shape[3] ** -0.5
        reads = there[:, None, None, :] & torch.ones(n, n, dtype=torch.bool).tril()
        weights = logits.masked_fill(~reads, -1e30).softmax(dim=-1)
        x = x + block.attention.out((weights @ values).transpose(1, 2).flatten(2))
        x = x + block.down(torch.nn.functional.gelu(block.up(block.mlp_norm(x))))
    return x[:, -1]


@pytest.mark.parametrize("side", [None, 4])
def test_keeping_all_is_the_model_itself(model, asked, side):
    images, words, seen = asked
    last = read(model, seen, words, Pruning(Importance(), Ratios(), side)).last
    with torch.no_grad():
        expected = model(images, words[:, None])
    torch.testing.assert_close(model.logits(last[:, None]), expected, atol=1e-5, rtol=1e-4)  # a mask, or is_causal


@pytest.mark.parametrize("ratios", [(0.5, 1.0, 1.0), (0.6, 0.5, 0.3), (0.05, 0.3, 1.0)])
def test_pruning_is_masking(model, asked, ratios):
    images, words, seen = asked
    got = read(model, seen, words, Pruning(AttentionReceived(), Ratios(*ratios)))
    assert tuple(position.shape[1] for position in got.positions) == Ratios(*ratios).counts(N_TOKENS)
    with torch.no_grad():
        expected = naive(model, images, words, got.positions)
    torch.testing.assert_close(got.last, expected, atol=1e-5, rtol=1e-4)  # sums of float32 in another order


def test_later_stages_keep_the_most_important_of_what_is_left(model, asked):
    _, words, seen = asked
    score = RandomTokens(3)
    positions = read(model, seen, words, Pruning(score, Ratios(0.5, 0.5, 0.5), side=4)).positions
    for one, following in pairwise(positions):
        for image, importance in enumerate(score(seen.evidence)):
            there = set(one[image].tolist())
            kept = set(following[image].tolist())
            assert kept < there
            assert importance[list(kept)].min() >= importance[list(there - kept)].max()


def test_fused_tokens_count_as_kept_and_change_the_answer(model, asked):
    _, words, seen = asked
    ratios = Ratios(0.25, 1.0, 1.0)
    dropped, fused = (read(model, seen, words, Pruning(AttentionReceived(), ratios, side)) for side in (None, 6))
    assert [p.shape[1] for p in dropped.positions] == [p.shape[1] for p in fused.positions] == [36, 36, 36]
    assert not torch.allclose(dropped.last, fused.last)


def test_questions_do_not_see_each_other(model, asked):
    """Together, each is answered as if it were asked alone; another image changes the answer."""
    images, words, _ = asked
    with torch.no_grad():
        together = model(images, words.expand(5, -1, -1))
        alone = torch.cat([model(images, words[i].expand(5, 1, -1)) for i in range(5)], dim=1)
        others = model(images.flip(0), words.expand(5, -1, -1))
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)  # sums of float32 in another order
    assert not torch.allclose(together[0], others[0])


def test_rope_sees_distances_alone():
    """q · k depends on the difference of positions; at position 0 nothing turns."""
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 1, 1, 8, generator=generator)
    products = [
        (turn(query, torch.tensor([[i]])) * turn(key, torch.tensor([[j]]))).sum().item()
        for i, j in ((7, 3), (104, 100))
    ]
    assert products[0] == pytest.approx(products[1], abs=1e-4)
    assert torch.equal(turn(query, torch.tensor([[0]])), query)


def test_answers_are_the_likeliest_words(model, asked):
    images, words, seen = asked
    with torch.no_grad():
        expected = model(images, words[:, None])[:, 0].argmax(dim=1)
    assert torch.equal(answers(model, seen, words, Pruning(Importance(), Ratios())), expected)


def test_other_questions_than_images(model, asked):
    _, words, seen = asked
    with pytest.raises(ValueError, match=r"got 3 layers, 2 questions and 5 images"):
        read(model, seen, words[:2], Pruning(Importance(), Ratios()))


def test_a_decoder_without_thirds(asked):
    images, words, _ = asked
    other = SmallVLM(Shape(16, 2, 24, 1, 4), torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="expected a multiple of 3 layers"):
        read(other, see(other, images), words, Pruning(Importance(), Ratios()))
