"""Gradients, Hessians and OBD's diagonal against numbers worked by hand and against automatic differentiation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.pruning.classic.derivatives import (
    error_gradient,
    full_hessian,
    outer_product_hessian,
    output_gradients,
    residual_part,
)
from course_lib.pruning.classic.network import (
    ACTIVATIONS,
    DTYPE,
    Network,
    Samples,
    accuracy,
    activation,
    convolution,
    error,
)
from course_lib.pruning.classic.obd import obd_diagonal


def random_patterns(network, n, generator):
    inputs = torch.randn(n, network.sizes[0], generator=generator, dtype=DTYPE)
    return Samples(inputs, torch.rand(n, network.sizes[-1], generator=generator, dtype=DTYPE))


def vector(*values):
    return torch.tensor(values, dtype=DTYPE)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_derivatives(name):
    f, a = activation(name), torch.linspace(-2, 2, 9, dtype=DTYPE)
    first = torch.func.vmap(torch.func.grad(f.value))
    second = torch.func.vmap(torch.func.grad(torch.func.grad(f.value)))
    torch.testing.assert_close(f.first(f.value(a)), first(a))
    torch.testing.assert_close(f.second(f.value(a)), second(a))


def test_a_linear_unit_by_hand():
    # o = 2·1 + 3·(−1) + 0.5 = −0.5, t = 1: E = ½ 1.5² = 1.125; X = (1, −1, 1); H = X Xᵀ
    network = Network((2, 1), output="identity")
    patterns, theta = Samples(vector(1.0, -1.0)[None], vector(1.0)[None]), vector(2.0, 3.0, 0.5)
    x = vector(1.0, -1.0, 1.0)
    assert error(network, theta, patterns).item() == pytest.approx(1.125)
    torch.testing.assert_close(output_gradients(network, theta, patterns.inputs)[0, 0], x)
    torch.testing.assert_close(error_gradient(network, theta, patterns), -1.5 * x)
    torch.testing.assert_close(outer_product_hessian(network, theta, patterns), torch.outer(x, x))
    torch.testing.assert_close(obd_diagonal(network, theta, patterns), vector(1.0, 1.0, 1.0))


def test_obd_by_hand_through_one_hidden_unit():
    # identity output, tanh hidden: x = 1, w = 0 so a = 0, f = 0, f' = 1, f'' = 0; v = 3, b = 0; t = 2
    # top: ∂²E/∂a² = 1; hidden: f'² v² · 1 = 9; weights: w 9·1, its bias 9, v 1·0² = 0, b 1
    network = Network((1, 1, 1), hidden="tanh", output="identity")
    patterns, theta = Samples(vector(1.0)[None], vector(2.0)[None]), vector(0.0, 0.0, 3.0, 0.0)
    torch.testing.assert_close(obd_diagonal(network, theta, patterns), vector(9.0, 9.0, 0.0, 1.0))


def test_the_bend_of_the_units_by_hand():
    # One sigmoid unit at a = ln 3: f = 3/4, f' = 3/16, f'' = −3/32; t = 1/4, gap 1/2: h = 9/256 − 3/64 = −3/256
    network, at = Network((1, 1)), torch.log(torch.tensor(3.0, dtype=DTYPE)).item()
    patterns, theta = Samples(vector(1.0)[None], vector(0.25)[None]), vector(at, 0.0)
    torch.testing.assert_close(obd_diagonal(network, theta, patterns), vector(-3 / 256, -3 / 256))
    torch.testing.assert_close(obd_diagonal(network, theta, patterns, curvature=False), vector(9 / 256, 9 / 256))


@pytest.mark.parametrize("output", ["sigmoid", "identity"])
@pytest.mark.parametrize("sizes", [(3, 2), (3, 4, 2), (2, 3, 4, 3)])
def test_gradients_are_those_of_autograd(sizes, output, generator):
    network = Network(sizes, hidden="tanh", output=output)
    theta, patterns = network.start(generator), random_patterns(network, 7, generator)
    slow = torch.func.jacrev(lambda each: network(each, patterns.inputs))(theta)
    torch.testing.assert_close(output_gradients(network, theta, patterns.inputs), slow)
    slow = torch.func.grad(lambda each: error(network, each, patterns))(theta)
    torch.testing.assert_close(error_gradient(network, theta, patterns), slow)


@settings(max_examples=20, deadline=None)
@given(
    hidden=st.integers(1, 5), n_out=st.integers(1, 3), name=st.sampled_from(["sigmoid", "tanh"]), seed=st.integers(0)
)
def test_one_hidden_layer_is_exact(hidden, n_out, name, seed):
    """Directly under the outputs no two units share a second derivative, so nothing is forgotten."""
    generator = torch.Generator().manual_seed(seed % 2**32)
    network = Network((3, hidden, n_out), hidden=name)
    theta, patterns = network.start(generator, 2.0), random_patterns(network, 6, generator)
    exact = full_hessian(network, theta, patterns).diagonal()
    torch.testing.assert_close(obd_diagonal(network, theta, patterns), exact, rtol=1e-9, atol=1e-12)


def test_where_the_recursion_is_exact_and_where_not(generator):
    for middle, exact_below in ((3, False), (1, True)):
        network = Network((3, 4, middle, 2))
        theta, patterns = network.start(generator, 2.0), random_patterns(network, 9, generator)
        gap = obd_diagonal(network, theta, patterns) - full_hessian(network, theta, patterns).diagonal()
        first = 4 * 4  # weights of the first layer, which lies two layers below the outputs
        assert gap[first:].abs().max() < 1e-12
        assert (gap[:first].abs().max() < 1e-12) == exact_below


def test_the_levenberg_marquardt_form_is_the_outer_product_diagonal_of_one_hidden_layer(generator):
    network = Network((3, 4, 2))
    theta, patterns = network.start(generator, 2.0), random_patterns(network, 9, generator)
    outer = outer_product_hessian(network, theta, patterns).diagonal()
    torch.testing.assert_close(obd_diagonal(network, theta, patterns, curvature=False), outer)
    assert obd_diagonal(network, theta, patterns).min() < 0 <= outer.min()


def test_the_outer_product_is_the_hessian_where_the_network_fits(generator):
    network = Network((3, 4, 2))
    theta, patterns = network.start(generator), random_patterns(network, 9, generator)
    fitting = Samples(patterns.inputs, network(theta, patterns.inputs))
    assert residual_part(network, theta, fitting) < 1e-12 < residual_part(network, theta, patterns)


def test_shared_weights_are_summed_over_their_connections(generator):
    network = convolution(6, 3, 2)
    assert (network.n_weights, network.n_connections) == (4 + 2 * 5, 7 * 4 + 2 * 5)
    theta, patterns = network.start(generator), random_patterns(network, 8, generator)
    slow = torch.func.jacrev(lambda each: network(each, patterns.inputs))(theta)
    torch.testing.assert_close(output_gradients(network, theta, patterns.inputs), slow)
    # As a network without sharing: the diagonal of each connection, added up by hand over the 4 places of a tap.
    free = Network(network.sizes)
    connections = torch.cat([theta, theta.new_zeros(1)])[list(network.share)]
    each = obd_diagonal(free, connections, patterns)
    by_hand = torch.stack([each[[i for i, k in enumerate(network.share) if k == w]].sum() for w in range(14)])
    torch.testing.assert_close(obd_diagonal(network, theta, patterns), by_hand)
    # Exact for the dense layer; for the kernel the cross terms between its places are missing.
    gap = (obd_diagonal(network, theta, patterns) - full_hessian(network, theta, patterns).diagonal()).abs()
    assert gap[4:].max() < 1e-12 < gap[:4].min()


def test_the_convolution_is_one(generator):
    network = convolution(5, 3, 1)
    theta, inputs = network.start(generator), torch.randn(4, 5, generator=generator, dtype=DTYPE)
    slid = torch.nn.functional.conv1d(inputs[:, None], theta[None, None, :3], theta[3:4])[:, 0]
    torch.testing.assert_close(network.activities(theta, inputs)[1], torch.sigmoid(slid))


def test_accuracy_of_one_and_of_many_outputs():
    one = Network((1, 1), output="identity")
    patterns = Samples(vector(0.0, 1.0, 2.0)[:, None], vector(0.0, 0.0, 1.0)[:, None])
    assert accuracy(one, vector(1.0, 0.0), patterns) == pytest.approx(2 / 3)
    two = Network((1, 2), output="identity")
    patterns = Samples(vector(1.0, -1.0)[:, None], torch.eye(2, dtype=DTYPE))
    assert accuracy(two, vector(1.0, 0.0, -1.0, 0.0), patterns) == 1.0


def test_bad_networks_and_patterns_are_refused(generator):
    with pytest.raises(ValueError, match="at least inputs and outputs"):
        Network((3,))
    with pytest.raises(ValueError, match="expected one of sigmoid, tanh, identity"):
        Network((3, 1), hidden="relu")
    with pytest.raises(ValueError, match="one for each connection"):
        Network((2, 1), share=(0, 1))
    with pytest.raises(ValueError, match="expected one that fits"):
        convolution(3, 4, 1)
    network = Network((2, 1))
    with pytest.raises(ValueError, match=r"a network of \(2, 1\) has 3"):
        network(torch.zeros(4, dtype=DTYPE), torch.zeros(1, 2, dtype=DTYPE))
    with pytest.raises(ValueError, match="expected 2"):
        network(torch.zeros(3, dtype=DTYPE), torch.zeros(1, 5, dtype=DTYPE))
    with pytest.raises(ValueError, match="NaN"):
        Samples(torch.full((1, 2), torch.nan), torch.zeros(1, 1))
    with pytest.raises(ValueError, match="as many of both"):
        Samples(torch.zeros(2, 2), torch.zeros(1, 1))
