"""The three errors of 1991: by hand, gradients in the paper's forms against autograd, and what tells them apart."""

import inspect
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.moe.classic import errors
from course_lib.moe.classic.errors import ERRORS, gate_gradient, output_gradient

bare = inspect.unwrap  # what a user calls, without the annotations' check, which comes first while tests run
PRIOR = torch.tensor([0.25, 0.75], dtype=torch.float64)
OUTPUTS = torch.tensor([[2.0], [4.0]], dtype=torch.float64)
TARGET = torch.tensor([2.0], dtype=torch.float64)
FITS = 0.25 / (0.25 + 0.75 * math.exp(-2))  # h of the first expert, which is right, where the second is off by 2


def test_errors_by_hand():
    """The blend is 0.25 · 2 + 0.75 · 4 = 3.5; the distances are 0 and 4."""
    assert errors.cooperative(PRIOR, OUTPUTS, TARGET).item() == 2.25
    assert errors.competitive(PRIOR, OUTPUTS, TARGET).item() == 3.0
    expected = -math.log(0.25 + 0.75 * math.exp(-2))
    assert errors.mixture(PRIOR, OUTPUTS, TARGET).item() == pytest.approx(expected, rel=1e-15)


def test_responsibilities_by_hand():
    got = errors.responsibilities(PRIOR, OUTPUTS, TARGET)
    torch.testing.assert_close(got, torch.tensor([FITS, 1 - FITS], dtype=torch.float64))
    assert got[0] > 0.7  # though the gate gave it a quarter


def test_gradients_by_hand():
    """−2 p (2 − 3.5) moves the right expert away from its target; (1.4) and (1.5) leave it alone."""
    by_hand = {"cooperative": [0.75, 2.25], "competitive": [0.0, 3.0], "mixture": [0.0, 2 * (1 - FITS)]}
    by_gate = {"cooperative": [-1.125, 1.125], "competitive": [-0.75, 0.75], "mixture": [0.25 - FITS, FITS - 0.25]}
    for error in ERRORS:
        of_outputs = output_gradient(error, PRIOR, OUTPUTS, TARGET).flatten()
        torch.testing.assert_close(of_outputs, torch.tensor(by_hand[error], dtype=torch.float64))
        of_gate = gate_gradient(error, PRIOR, OUTPUTS, TARGET)
        torch.testing.assert_close(of_gate, torch.tensor(by_gate[error], dtype=torch.float64))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), n_experts=st.integers(1, 5), n_outputs=st.integers(1, 4))
@pytest.mark.parametrize("error", ERRORS)
def test_closed_forms_are_the_gradients(error, seed, n_experts, n_outputs):
    where = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
    logits = torch.randn(3, 2, n_experts, **where).requires_grad_()
    outputs = torch.randn(3, 2, n_experts, n_outputs, **where).requires_grad_()
    target = torch.randn(2, n_outputs, **where)
    prior = logits.softmax(dim=-1)
    slopes = torch.autograd.grad(ERRORS[error](prior, outputs, target).sum(), (logits, outputs))
    torch.testing.assert_close(gate_gradient(error, prior, outputs, target), slopes[0])
    torch.testing.assert_close(output_gradient(error, prior, outputs, target), slopes[1])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999))
def test_the_blend_is_never_worse_than_the_draw(seed):
    """Jensen: (1.1) ≤ (1.2), and they part by the variance of the experts' answers; half of (1.2) bounds (1.3)."""
    where = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
    prior, outputs = torch.randn(9, 3, **where).softmax(dim=-1), torch.randn(9, 3, 2, **where)
    target = torch.randn(9, 2, **where)
    blend = errors.mean_output(prior, outputs)
    spread = (prior * (outputs - blend[:, None]).square().sum(dim=-1)).sum(dim=-1)
    drawn = errors.competitive(prior, outputs, target)
    torch.testing.assert_close(drawn - errors.cooperative(prior, outputs, target), spread)
    assert (errors.mixture(prior, outputs, target) <= drawn / 2 + 1e-12).all()  # rounding


def test_far_targets_have_finite_errors_and_responsibilities():
    """exp(−½ · 1600) is 0 in float32; its logarithm is not infinite where the sum is taken in logarithms."""
    prior, outputs, far = torch.tensor([0.5, 0.5]), torch.tensor([[0.0], [1.0]]), torch.tensor([41.0])
    assert errors.mixture(prior, outputs, far).item() == pytest.approx(800 + math.log(2), rel=1e-6)
    assert errors.responsibilities(prior, outputs, far).tolist() == pytest.approx([0.0, 1.0])


def test_one_expert_alone():
    outputs = torch.tensor([[[1.0], [5.0]], [[2.0], [7.0]]])
    prior = torch.tensor([[0.6, 0.4], [0.1, 0.9]])
    assert errors.likeliest_output(prior, outputs).tolist() == [[1.0], [7.0]]


@pytest.mark.parametrize("gradient", [output_gradient, gate_gradient])
def test_an_unknown_error_is_refused(gradient):
    with pytest.raises(ValueError, match="error='both': expected one of cooperative, competitive, mixture"):
        gradient("both", PRIOR, OUTPUTS, TARGET)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bare(errors.mean_output)(PRIOR[:1], OUTPUTS), r"priors have shape \(1,\) .*; give one probability"),
        (lambda: bare(errors.distances)(OUTPUTS, torch.ones(3)), r"targets \(3,\): expected .*; one vector of targets"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
