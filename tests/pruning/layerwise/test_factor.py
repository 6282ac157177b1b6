"""The factor of the inverse Gram: by hand, against plain inversion, and what it does where there is no inverse."""

import pytest
import torch

from course_lib.pruning.layerwise import cholesky
from course_lib.pruning.layerwise.cholesky import factorise
from course_lib.pruning.layerwise.gram import Gram


def gram_of(inputs):
    gram = Gram(inputs.shape[1])
    gram.add(inputs)
    return gram


def test_by_hand():
    """H = [[4, 2], [2, 2]] has the inverse [[.5, -.5], [-.5, 1]] = UᵀU with U = [[√.5, -√.5], [0, √.5]]."""
    factor = factorise(torch.tensor([[4.0, 2.0], [2.0, 2.0]]), damping=0.0)
    root = 0.5**0.5
    torch.testing.assert_close(factor.upper, torch.tensor([[root, -root], [0.0, root]]))
    assert factor.notes == ()
    assert factor.damping == 0


@pytest.mark.parametrize("damping", [0.0, 0.01, 1.0])
def test_equals_the_cholesky_factor_of_the_plain_inverse(generator, damping):
    x = torch.randn(200, 37, generator=generator, dtype=torch.float64)
    matrix = x.T @ x
    damped = matrix + damping * matrix.diagonal().mean() * torch.eye(37, dtype=torch.float64)
    expected = torch.linalg.cholesky(torch.linalg.inv(damped), upper=True)
    torch.testing.assert_close(factorise(matrix, damping).upper, expected, rtol=1e-10, atol=1e-12)


def test_half_of_the_flops_and_the_same_matrix(generator):
    """More inputs than one strip is wide, two batches, a matrix read in between."""
    x = torch.randn(2, 9, 500, generator=generator)
    gram = Gram(500)
    gram.add(x[0])
    assert torch.equal(gram.matrix, gram.matrix.T)
    gram.add(x[1])
    torch.testing.assert_close(gram.matrix, x.reshape(18, 500).T @ x.reshape(18, 500), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(gram.diagonal, x.square().sum((0, 1)), rtol=1e-5, atol=1e-4)


def test_one_factor_for_all_layers_of_an_input_until_more_is_added(generator):
    gram = gram_of(torch.randn(50, 6, generator=generator))
    first = gram.factor(0.01)
    assert gram.factor(0.01) is first
    assert gram.factor(0.1) is not first
    gram.add(torch.randn(1, 6, generator=generator))
    assert gram.factor(0.01) is not first


def test_damping_is_relative_so_that_the_scale_of_the_gram_does_not_matter(generator):
    x = torch.randn(60, 8, generator=generator)
    small, large = factorise(x.T @ x, 0.01).upper, factorise(x.T @ x * 2 / 60, 0.01).upper
    torch.testing.assert_close(small, large * (2 / 60) ** 0.5)


def test_a_singular_gram_raises_its_damping_and_says_so(generator):
    """5 tokens for 12 inputs leave seven directions that no float can factorise."""
    gram = gram_of(torch.randn(5, 12, generator=generator))
    factor = gram.factor(0.0)
    assert factor.upper.isfinite().all()
    assert 0 < factor.damping <= 1e-4
    assert gram.notes == (f"damping raised from 0 to {factor.damping:g}: the Gram matrix is singular",)
    assert gram_of(torch.randn(5, 12, generator=generator)).factor(0.01).notes == ()


def test_float64_comes_before_more_damping(generator):
    """Two inputs that differ by a thousandth: too near for float32, far enough for float64."""
    x = torch.randn(100, 2, generator=generator)
    x[:, 1] = x[:, 0] + 1e-3 * x[:, 1]
    x = torch.cat([x, torch.randn(100, 30, generator=generator)], dim=1)
    matrix = x.double().T @ x.double()
    factor = factorise(matrix.float(), 0.0)
    assert factor.damping == 0
    expected = torch.linalg.cholesky(torch.linalg.inv(matrix.float().double()), upper=True)
    torch.testing.assert_close(factor.upper.double(), expected, rtol=1e-4, atol=1e-5)


def test_dead_inputs_count_as_one_and_are_reported(generator):
    x = torch.randn(50, 6, generator=generator)
    x[:, 2] = 0
    gram = gram_of(x)
    factor = gram.factor(0.0)
    assert factor.dead.tolist() == [False, False, True, False, False, False]
    assert factor.diagonal[2] == 1
    assert gram.notes == ("1 of 6 inputs were always zero; their weights are zero now",)


def test_inputs_that_are_all_zero_still_factorise():
    assert gram_of(torch.zeros(4, 3)).factor(0.01).upper.isfinite().all()


def test_what_is_refused():
    with pytest.raises(ValueError, match="without any calibration token"):
        Gram(4).factor(0.01)
    with pytest.raises(ValueError, match="got damping -1.0; expected at least 0"):
        gram_of(torch.eye(3)).factor(-1.0)
    with pytest.raises(ValueError, match="NaN or infinite entries"):
        gram_of(torch.full((2, 3), torch.nan)).factor(0.01)
    with pytest.raises(ValueError, match="no damping up to .* positive definite"):
        factorise(torch.tensor([[1.0, 1e30], [1e30, 1.0]]), 0.01)


@pytest.mark.parametrize("damping", [float("nan"), float("inf")])
def test_a_damping_that_is_no_share_is_refused(damping):
    with pytest.raises(ValueError, match=f"got damping {damping!r}; expected at least 0"):
        factorise(torch.eye(3), damping)


@pytest.mark.parametrize("size", [1, 4, 5, 77])
def test_a_gpus_inverse_by_halves_equals_solving(size, generator, monkeypatch):
    monkeypatch.setattr(cholesky, "LEAF", 4)
    inputs = torch.randn(2 * size, size, generator=generator, dtype=torch.float64)
    root = torch.linalg.cholesky(inputs.T @ inputs, upper=True)
    got = cholesky._inverse_by_halves(root, torch.zeros_like(root))
    torch.testing.assert_close(got, cholesky._inverse(root))
    assert not got.tril(-1).any()
