"""A vision transformer on digits, with registers and without."""

import torch

from course_lib.attention.small_models.registers import (
    DigitViT,
    accuracy,
    class_attention,
    digits,
    patch_norms,
    trained,
)


def test_digits_are_split_once():
    data = digits(0)
    assert len(data.train) == 1347
    assert len(data.test) == 450
    assert (data.train.min(), data.train.max()) == (-1, 1)
    seen = {tuple(image.flatten().tolist()) for image in data.train}
    assert not any(tuple(image.flatten().tolist()) in seen for image in data.test)


@torch.no_grad()
def test_registers_are_tokens_beside_the_patches():
    images = digits(0).test[:3]
    for n in (0, 4):
        model = DigitViT(n, seed=0).eval()
        assert model(images).shape == (3, 10)
        norms, read = patch_norms(model, images), class_attention(model, images)
        assert norms.shape == (4, 3, 16)
        assert (read["registers"] > 0).all() == (n > 0)
        states = model.body(images, output_hidden_states=True).hidden_states
        torch.testing.assert_close(norms[1, 2, 15], states[2][2, -1].norm())
        assert states[0].shape[1] == 1 + n + 16


def test_training_learns_digits_and_repeats_itself():
    """A tenth is chance; 40 epochs, as in the experiment, reach 0.95."""
    data = digits(0)
    assert accuracy(trained(4, data, seed=0, epochs=10, batch=64), data) > 0.3
    short = [trained(4, data, seed=0, epochs=1).head.weight for _ in range(2)]
    torch.testing.assert_close(short[0], short[1], rtol=0, atol=0)
