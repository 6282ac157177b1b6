"""Canvases: what lies where, that answers say it, and that tests show other digits than training."""

import pytest
import torch

from course_lib.attention.small_models.registers import digits
from course_lib.attention.visual import canvas
from course_lib.attention.visual.model import GRID, patches


@pytest.fixture(scope="module")
def drawn():
    return canvas.draw(200, "test", seed=3)


def test_answers_are_those_of_the_quadrants(drawn):
    grid = drawn.belongs.view(-1, GRID, GRID)
    half = GRID // 2
    for corner in range(4):
        rows, columns = corner // 2 * half, corner % 2 * half
        quadrant = grid[:, rows : rows + half, columns : columns + half].flatten(1)
        answer = drawn.answers[:, corner]
        there = answer != canvas.NOTHING
        assert torch.equal((quadrant < canvas.NOTHING).sum(dim=1), 4 * there)  # a digit lies on four patches
        assert torch.equal((quadrant == answer[:, None]).sum(dim=1)[there], 4 * there[there])
        assert ((quadrant == canvas.CLUTTER).sum(dim=1) == 4).all()
    assert torch.equal(drawn.answers[:, 4], (drawn.answers[:, :4] != canvas.NOTHING).sum(dim=1))
    assert drawn.answers[:, 4].min() >= 1


def test_blank_patches_are_blank(drawn):
    """And 13 of 16 quadrants hold a digit: one for certain, the other three with probability 3/4."""
    blank = patches(drawn.images)[drawn.belongs == canvas.NOTHING]
    assert not blank.any()
    share = (drawn.answers[:, :4] != canvas.NOTHING).float().mean()
    assert share == pytest.approx(13 / 16, abs=0.042)  # 800 quadrants: three standard errors


def test_a_digit_is_there_to_the_pixel_and_clutter_is_its_pixels_shuffled(drawn):
    held_out = {tuple(((image + 1) * 120).round().int().flatten().tolist()) for image in digits(0).test[:, 0]}
    shuffled = {tuple(sorted(image)) for image in held_out}
    grid = drawn.belongs.view(-1, GRID, GRID)
    for image, names, answer in zip(drawn.images[:20], grid, drawn.answers, strict=False):
        (top, left) = (names == answer[0]).nonzero()[0].tolist() if answer[0] != canvas.NOTHING else (None, None)
        if top is not None:
            assert tuple(image[4 * top : 4 * top + 8, 4 * left : 4 * left + 8].flatten().tolist()) in held_out
        top, left = (names[:6, :6] == canvas.CLUTTER).nonzero()[0].tolist()
        piece = tuple(image[4 * top : 4 * top + 8, 4 * left : 4 * left + 8].flatten().tolist())
        assert tuple(sorted(piece)) in shuffled
        assert piece not in held_out


def test_the_same_seed_gives_the_same_canvases():
    one, again, other = (canvas.draw(5, "train", seed) for seed in (1, 1, 2))
    assert torch.equal(one.images, again.images)
    assert not torch.equal(one.images, other.images)


def test_questions_are_words():
    ids = canvas.question_ids()
    assert ids.shape == (5, 3)
    assert [" ".join(canvas.WORDS[i] for i in row) for row in ids.tolist()] == list(canvas.QUESTIONS)
    assert canvas.WORDS[canvas.NOTHING] == "nothing"


@pytest.mark.parametrize(("n", "split"), [(0, "train"), (3, "validation")])
def test_what_cannot_be_drawn(n, split):
    with pytest.raises(ValueError, match="expected 'train' or 'test', and at least one canvas"):
        canvas.draw(n, split, 0)
