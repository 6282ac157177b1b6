"""Bitmap products: by hand, and what the walk over set bits could get wrong."""

import pytest
import torch
from course_lib.kernels.weights import bitmap_matvec
from course_lib.kernels.weights.bitmap_matvec import bytes_moved, example
from kernel_device import on_device

from course_lib.kernels import runtime
from course_lib.sparsity.formats import Bitmap

launch = on_device(bitmap_matvec.launch)


def test_three_rows_by_hand():
    weight = torch.tensor(
        [[0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0], [0.0] * 9, [1.0, 0.0, 0.0, 0.0, -5.0, 0.0, 0.0, 0.0, 0.0]]
    )
    inputs = torch.tensor([1.0, 10.0, 0.0, 0.0, 0.5, 0.0, 0.0, 100.0, 0.25])
    # 2*10 + 3*100 + 4*0.25 = 321, nothing, and 1*1 - 5*0.5 = -1.5
    assert launch(inputs, Bitmap.encode(weight)).tolist() == [321.0, 0.0, -1.5]


@pytest.mark.parametrize("column", [0, 7, 8, 31, 32, 63, 64, 95])
def test_each_bit_of_a_word_finds_its_input(column):
    weight = torch.zeros(2, 96)
    weight[1, column] = 3.0
    inputs = torch.arange(96.0) + 1
    assert launch(inputs, Bitmap.encode(weight)).tolist() == [0.0, 3.0 * (column + 1)]


def test_a_full_word_beside_an_empty_one(generator):
    weight = torch.randn(3, 128, generator=generator)
    weight[:, 32:64] = 0
    inputs = torch.randn(128, generator=generator)
    torch.testing.assert_close(launch(inputs, Bitmap.encode(weight)), weight @ inputs)


@pytest.mark.skipif(not runtime.INTERPRETED, reason="a GPU runs every setting; without one there is no kernel to run")
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_set_bits_are_walked_in_steps_of_any_length(steps, density, generator, monkeypatch):
    monkeypatch.setitem(bitmap_matvec.matvec_kernel.configs[0].kwargs, "STEPS", steps)
    inputs, weight = example(generator, torch.float32, "cpu", (2, 1061), density)
    torch.testing.assert_close(bitmap_matvec.launch(inputs, weight), weight.decode() @ inputs)


def test_takes_the_inputs_of_one_token():
    assert bitmap_matvec.takes(torch.ones(8))
    assert bitmap_matvec.takes(torch.ones(1, 1, 8))
    for refused in (torch.ones(2, 8), torch.ones(0, 8), torch.ones(16)[::2], torch.tensor(1.0)):
        assert not bitmap_matvec.takes(refused)


def test_missing_values_are_noticed(generator):
    inputs, weight = example(generator, torch.float32, "cpu", (4, 16))
    short = Bitmap(weight.values[:-1].clone(), weight.bitmap, weight.row_start, weight.shape)
    with pytest.raises(ValueError, match=r"values: expected the \d+ that the last row start says; encode"):
        bitmap_matvec.launch(inputs, short)  # on the CPU: a GPU is not waited for


def test_bytes_by_hand():
    weight = torch.zeros(4, 16, dtype=torch.float16)
    weight[0, :3] = 1
    # 3 values and 16 + 4 inputs and outputs of 2 bytes, 4 rows of 2 bytes of bitmap, 5 row starts of 4 bytes
    assert bytes_moved(torch.ones(16, dtype=torch.float16), Bitmap.encode(weight)) == 46 + 8 + 20
