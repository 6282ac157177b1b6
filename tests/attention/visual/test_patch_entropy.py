"""Entropy of patches by hand and against counting; images of another size; what the public code counts."""

import pytest
import torch
import visual_naive
from hypothesis import given
from hypothesis import strategies as st

from course_lib.attention.visual.as_released import wrapped_entropy
from course_lib.attention.visual.entropy import patch_entropy
from course_lib.attention.visual.model import PATCH, SIDE, patches


def test_by_hand():
    """One level: 0 bits. Two alike often: 1. Four: 2. 16 different ones: 4. Levels 8 : 4 : 4 of 16: 1.5."""
    image = torch.zeros(1, SIDE, SIDE, dtype=torch.uint8)
    image[0, :4, 4:6] = 200
    image[0, :2, 8:10], image[0, 2:4, 8:10], image[0, :2, 10:12] = 255, 128, 3
    image[0, :4, 12:16] = torch.arange(16).view(4, 4)
    image[0, :2, 16:18], image[0, 2:4, 16:18] = 1, 2
    bits = patch_entropy(image)[0]
    torch.testing.assert_close(bits[:5], torch.tensor([0.0, 1.0, 2.0, 4.0, 1.5]), atol=1e-6, rtol=0)
    assert not bits[5:].any()


@given(st.integers(0, 2**31), st.integers(1, 256))
def test_is_what_counting_gives(seed, n_levels):
    generator = torch.Generator().manual_seed(seed)
    image = torch.randint(n_levels, (1, SIDE, SIDE), generator=generator).to(torch.uint8)
    bits = patch_entropy(image)
    expected = torch.tensor(visual_naive.entropy(image[0], PATCH))
    torch.testing.assert_close(bits[0], expected, atol=1e-5, rtol=0)  # sums of 256 terms in float32
    assert bits.min() >= 0
    assert bits.max() <= 4 + 1e-5


def test_patches_are_cut_row_by_row():
    image = torch.arange(SIDE * SIDE).view(1, SIDE, SIDE).remainder(251).to(torch.uint8)
    cut = patches(image)
    assert torch.equal(cut[0, 13], image[0, 4:8, 4:8].flatten())
    assert torch.equal(cut[0, 11], image[0, :4, 44:].flatten())


@pytest.mark.parametrize("shape", [(1, 47, 48), (48, 48), (1, 1, 48, 48)])
def test_images_of_another_size(shape):
    images = torch.zeros(shape, dtype=torch.uint8)
    with pytest.raises((ValueError, TypeError)):  # a wrong number of axes is the type checker's in tests
        patch_entropy(images)


def test_another_size_is_told():
    with pytest.raises(ValueError, match=r"got images of shape \(2, 40, 40\); expected \(B, 48, 48\)"):
        patch_entropy(torch.zeros(2, 40, 40, dtype=torch.uint8))


def test_the_public_code_takes_two_levels_for_one():
    """Levels 0 and 128 of a normalised image wrap to the same 8 bits: half of a patch of two greys looks blank."""
    image = torch.zeros(1, SIDE, SIDE, dtype=torch.uint8)
    image[0, :4, :2] = 128
    assert patch_entropy(image)[0, 0] == pytest.approx(1.0)
    assert wrapped_entropy(image)[0, 0] == 0
    image[0, :4, :2] = 60
    assert wrapped_entropy(image)[0, 0] == pytest.approx(1.0)
