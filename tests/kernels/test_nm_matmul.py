"""N:M products: by hand, every pattern, every shape of inputs."""

import pytest
import torch
from course_lib.kernels.weights import nm_matmul
from course_lib.kernels.weights.nm_matmul import PATTERNS, bytes_moved, example
from kernel_device import on_device

from course_lib.sparsity.formats import NofMPacked
from course_lib.sparsity.patterns import NofM

launch = on_device(nm_matmul.launch)


def test_two_rows_by_hand():
    weight = torch.tensor([[0.0, 2.0, 0.0, 3.0, 5.0, 0.0, 0.0, -1.0], [1.0, 0.0, 4.0, 0.0, 0.0, 0.0, 6.0, 0.0]])
    inputs = torch.tensor([1.0, 10.0, 100.0, 1000.0, 0.5, 7.0, 0.25, 2.0])
    # 2*10 + 3*1000 + 5*0.5 - 1*2 = 3020.5 and 1*1 + 4*100 + 6*0.25 = 402.5
    packed = NofMPacked.encode(weight)
    assert launch(inputs, packed).tolist() == [3020.5, 402.5]
    assert launch(torch.stack([inputs, 2 * inputs]), packed).tolist() == [[3020.5, 402.5], [6041.0, 805.0]]


@pytest.mark.parametrize(("n", "m"), PATTERNS)
@pytest.mark.parametrize("n_tokens", [1, 2])
def test_every_pattern_with_fewer_non_zeros_than_places(n, m, n_tokens, generator):
    weight = torch.randn(6, 8 * m, generator=generator)
    weight = weight * NofM(n, m).keep(weight.abs()) * (torch.rand(weight.shape, generator=generator) < 0.5)
    inputs = torch.randn(n_tokens, 8 * m, generator=generator)
    torch.testing.assert_close(launch(inputs, NofMPacked.encode(weight, n, m)), inputs @ weight.T)


@pytest.mark.parametrize("leading", [(), (1,), (2, 3), (1, 1, 1), (0,)])
def test_inputs_may_have_any_leading_axes(leading, generator):
    _, weight = example(generator, torch.float32, "cpu", (1, 5, 12))
    inputs = torch.randn(*leading, 12, generator=generator)
    torch.testing.assert_close(launch(inputs, weight), inputs @ weight.decode().T)


def test_a_pattern_without_a_kernel_is_refused():
    packed = NofMPacked.encode(torch.tensor([[1.0, 2.0, 3.0, 0.0]]), 3, 4)
    with pytest.raises(ValueError, match=r"packed as 3:4: expected 2:4 or 1:4 or 1:2; multiply by weight\.decode"):
        launch(torch.ones(4), packed)


def test_takes_the_patterns_that_have_a_kernel_and_contiguous_inputs():
    assert nm_matmul.takes(torch.ones(2, 3, 8), 2, 4)
    assert nm_matmul.takes(torch.ones(8), 1, 2)
    assert not nm_matmul.takes(torch.ones(8), 4, 8)
    assert not nm_matmul.takes(torch.ones(8, 2).T, 2, 4)


@pytest.mark.parametrize("aligned", [True, False])
def test_weights_are_read_in_words_where_they_can_be(aligned, generator):
    _, weight = example(generator, torch.bfloat16, "cpu", (1, 4, 160 if aligned else 136))
    assert nm_matmul._in_words(weight) is aligned


def test_two_of_four_moves_nine_sixteenths_of_a_dense_weight(generator):
    inputs, weight = example(generator, torch.bfloat16, "cpu", (1, 16, 64))
    assert bytes_moved(inputs, weight) == 16 * 64 * 2 * 9 // 16 + 64 * 2 + 16 * 2
