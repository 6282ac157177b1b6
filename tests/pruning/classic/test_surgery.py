"""OBS's inverse, deletions, the loop and its stopping rules: by hand, against direct solutions, and on bad input."""

from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.pruning.classic import obs as inverse
from course_lib.pruning.classic import stopping
from course_lib.pruning.classic.deletion import cheapest, delete, deletions, whole
from course_lib.pruning.classic.derivatives import outer_product_hessian
from course_lib.pruning.classic.network import DTYPE, Network, Samples
from course_lib.pruning.classic.problems import XOR_NETWORK, xor
from course_lib.pruning.classic.quadratic import choices, quadratic
from course_lib.pruning.classic.rows import output_error, prune_row, row_surfaces
from course_lib.pruning.classic.surfaces import METHODS, Diagonal, Inverse, brain_surgeon
from course_lib.pruning.classic.training import levenberg_marquardt, normal_equations, objective, quasi_newton, solved


def vector(*values):
    return torch.tensor(values, dtype=DTYPE)


def positive_definite(d, generator):
    rows = torch.randn(d + 3, d, generator=generator, dtype=DTYPE)
    return rows.T @ rows / (d + 3)


# The inverse -----------------------------------------------------------------------------------------------------


def test_one_step_of_the_recursion_by_hand():
    # alpha = 1, P = 1, X = (1, 1): (I + [[1, 1], [1, 1]])⁻¹ = 1/3 [[2, −1], [−1, 2]]
    expected = torch.tensor([[2.0, -1.0], [-1.0, 2.0]], dtype=DTYPE) / 3
    torch.testing.assert_close(inverse.inverse_by_recursion(torch.ones(1, 2, dtype=DTYPE), 1, 1.0), expected)


@settings(max_examples=25, deadline=None)
@given(d=st.integers(1, 8), n=st.integers(1, 12), log_alpha=st.integers(-6, 0), seed=st.integers(0, 2**32 - 1))
def test_the_recursion_is_the_inverse(d, n, log_alpha, seed):
    gradients = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=DTYPE)
    alpha = 10.0**log_alpha
    direct = torch.linalg.inv(gradients.T @ gradients / n + alpha * torch.eye(d, dtype=DTYPE))
    scale = direct.abs().max().item()
    for function in (inverse.inverse_by_recursion, inverse.inverse_directly):
        # H⁻¹ starts at 1/alpha and shrinks, so rounding errors of that size stay: 1e-16 × 1e6.
        torch.testing.assert_close(function(gradients, n, alpha), direct, rtol=1e-6, atol=1e-8 * scale)


def test_many_outputs_divide_by_patterns():
    gradients = vector(1.0, 2.0, 3.0, 4.0)[:, None]  # two patterns of two outputs: H = 30 / 2
    expected = vector(1 / 16.0)[None]
    torch.testing.assert_close(inverse.inverse_by_recursion(gradients, 2, 1.0), expected)
    torch.testing.assert_close(inverse.inverse_directly(gradients, 2, 1.0), expected)


@pytest.mark.parametrize("function", [inverse.inverse_by_recursion, inverse.inverse_directly])
def test_bad_gradients_and_alphas_are_refused(function):
    for alpha in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="expected a positive number"):
            function(torch.ones(2, 3, dtype=DTYPE), 2, alpha)
    with pytest.raises(ValueError, match="NaN"):
        function(torch.full((2, 3), torch.nan, dtype=DTYPE), 2, 1.0)


def test_singular_and_indefinite_hessians_are_refused():
    for hessian in (torch.ones(2, 2, dtype=DTYPE), torch.diag(vector(1.0, -1.0))):
        with pytest.raises(ValueError, match="not positive definite.*add alpha"):
            inverse.inverse_of(hessian)
    with pytest.raises(ValueError, match="NaN"):
        inverse.inverse_of(torch.full((2, 2), torch.nan, dtype=DTYPE))


# One deletion ----------------------------------------------------------------------------------------------------


def test_surfaces_by_hand():
    # H = [[2, 1], [1, 2]], H⁻¹ = 1/3 [[2, −1], [−1, 2]]; w = (1, 3)
    theta = vector(1.0, 3.0)
    surface = Inverse(inverse.inverse_of(torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=DTYPE)))
    torch.testing.assert_close(surface.saliency(theta), vector(0.75, 6.75))
    torch.testing.assert_close(surface.change(theta, 0), vector(-1.0, 0.5))
    torch.testing.assert_close(surface.without(0).inverse, torch.diag(vector(0.0, 0.5)))
    flat = Diagonal(vector(2.0, 0.5))
    torch.testing.assert_close(flat.saliency(theta), vector(1.0, 2.25))
    torch.testing.assert_close(flat.change(theta, 1), vector(0.0, -3.0))


@settings(max_examples=25, deadline=None)
@given(d=st.integers(2, 7), seed=st.integers(0, 2**32 - 1))
def test_the_update_is_the_best_one_and_costs_its_saliency(d, seed):
    generator = torch.Generator().manual_seed(seed)
    hessian, theta = positive_definite(d, generator), torch.randn(d, generator=generator, dtype=DTYPE)
    surface, q = Inverse(inverse.inverse_of(hessian)), seed % d
    change = surface.change(theta, q)
    assert change[q] == -theta[q]
    cost_of = lambda each: (0.5 * each @ hessian @ each).item()  # noqa: E731
    assert cost_of(change) == pytest.approx(surface.saliency(theta)[q].item(), rel=1e-6)
    # A direct solution: minimise over the others with the q-th fixed.
    rest = [i for i in range(d) if i != q]
    others = torch.linalg.solve(hessian[rest][:, rest], hessian[rest, q] * theta[q])
    torch.testing.assert_close(change[rest], others, rtol=1e-6, atol=1e-9)
    # The downdate is the inverse of what is left.
    before, smaller = surface.inverse.clone(), surface.without(q)
    assert torch.equal(surface.inverse, before)
    surface.lose(q)
    assert torch.equal(surface.inverse, smaller.inverse)
    left = smaller.inverse[rest][:, rest]
    torch.testing.assert_close(left, torch.linalg.inv(hessian[rest][:, rest]), rtol=1e-6, atol=1e-8)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_with_a_diagonal_hessian_obs_is_obd(seed):
    generator = torch.Generator().manual_seed(seed)
    h, theta = torch.rand(5, generator=generator, dtype=DTYPE) + 0.1, torch.randn(5, generator=generator, dtype=DTYPE)
    obs, obd = Inverse(inverse.inverse_of(torch.diag(h))), Diagonal(h)
    torch.testing.assert_close(obs.saliency(theta), obd.saliency(theta))
    torch.testing.assert_close(obs.change(theta, 2), obd.change(theta, 2))


def test_the_example_of_two_weights():
    as_given = choices(quadratic((0.1, -0.3)))
    assert [c.deletes for c in as_given] == [0, 0, 0]
    assert [c.cost for c in as_given] == pytest.approx([0.02] * 3)
    apart = choices(quadratic((0.2, -0.3)))
    assert [(c.method, c.deletes) for c in apart] == [("magnitude", 0), ("OBD", 1), ("OBS", 1)]
    assert [c.cost for c in apart] == pytest.approx([0.08, 0.045, 0.045])
    turned = {c.method: c for c in choices(quadratic((0.2, -0.3), 30.0))}
    assert turned["OBS"].cost < 0.75 * turned["OBD"].cost
    assert turned["OBS"].cost == pytest.approx(turned["OBS"].predicted)


@settings(max_examples=50, deadline=None)
@given(x=st.floats(0.01, 1), y=st.floats(-1, -0.01), degrees=st.floats(-90, 90))
def test_of_two_weights_obd_and_obs_delete_the_same(x, y, degrees):
    surface = quadratic((x, y), degrees)
    (_, obd, obs), h = choices(surface), surface.hessian.diagonal()
    near = abs(h[0] * x * x - h[1] * y * y) < 1e-9
    assert near or obd.deletes == obs.deletes
    assert obs.cost <= obd.cost + 1e-12


def test_what_is_not_there_cannot_be_deleted():
    state = whole(XOR_NETWORK, torch.ones(9, dtype=DTYPE))
    surface = Diagonal(torch.ones(9, dtype=DTYPE))
    state = delete(state, surface, 3)
    for q in (3, 9, -1):
        with pytest.raises(ValueError, match=f"weight {q} is not there.*one of 8"):
            delete(state, surface, q)
    with pytest.raises(ValueError, match="a saliency is NaN"):
        cheapest(state, Diagonal(torch.full((9,), torch.nan, dtype=DTYPE)))
    with pytest.raises(ValueError, match="expected 9 numbers"):
        whole(XOR_NETWORK, torch.full((9,), torch.nan, dtype=DTYPE))
    with pytest.raises(ValueError, match="got 4 weights"):
        whole(XOR_NETWORK, torch.ones(4, dtype=DTYPE))


# The loop --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained():
    return solved(XOR_NETWORK, xor(), torch.Generator().manual_seed(3), decay=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_deletions_go_one_by_one_to_the_last_and_zeros_stay(name, trained):
    states = list(deletions(trained, xor(), METHODS[name]))
    assert [s.n_left for s in states] == list(range(9, 0, -1))
    for before, after in pairwise(states):
        assert (after.theta[~after.keep] == 0).all()
        assert not (after.keep & ~before.keep).any()
    assert [s.n_left for s in deletions(trained, xor(), METHODS[name], per_round=4)] == [9, 5, 1]


def test_many_deletions_from_one_surface_are_those_of_a_fixed_hessian(trained):
    """Within a round OBS corrects its inverse; the slow twin inverts what is left every time."""
    patterns = xor()
    fast = next(
        s for s in deletions(trained, patterns, partial(brain_surgeon, alpha=1e-3), per_round=4) if s.n_left == 5
    )
    whole_inverse = brain_surgeon(trained.network, trained.theta, trained.keep, patterns, alpha=1e-3).inverse
    hessian, state = torch.linalg.inv(whole_inverse), trained
    for _ in range(4):
        left = hessian[state.keep][:, state.keep]
        surface = Inverse(inverse.embed(torch.linalg.inv(left), state.keep))
        state = delete(state, surface, cheapest(state, surface))
    assert torch.equal(state.keep, fast.keep)
    torch.testing.assert_close(state.theta, fast.theta, rtol=1e-6, atol=1e-8)


def test_obs_on_a_linear_unit_finds_the_least_squares_of_what_is_left(generator):
    """The error is quadratic there, so one deletion with the update is as good as fitting anew."""
    network = Network((4, 1), output="identity")
    inputs = torch.randn(30, 4, generator=generator, dtype=DTYPE)
    patterns = Samples(inputs, torch.randn(30, 1, generator=generator, dtype=DTYPE))
    trained = levenberg_marquardt(whole(network, network.start(generator)), patterns, decay=0.0)
    for state in deletions(trained, patterns, brain_surgeon):
        refitted = levenberg_marquardt(state, patterns, decay=0.0)
        torch.testing.assert_close(state.theta, refitted.theta, rtol=1e-4, atol=1e-5)


def test_stopping_rules(trained):
    patterns = xor()
    states = list(deletions(trained, patterns, brain_surgeon))
    by_accuracy = stopping.last_good(states, stopping.accurate(patterns, 1.0))
    assert by_accuracy.accuracy(patterns) == 1.0
    assert states[9 - by_accuracy.n_left + 1].accuracy(patterns) < 1.0
    assert stopping.last_good(states, stopping.at_least_left(4)).n_left == 4
    costs = [s.saliency for s in states]
    limit = sorted(costs)[4]
    cheap = stopping.last_good(states, stopping.cheap(limit))
    assert states[9 - cheap.n_left + 1].saliency > limit >= cheap.saliency
    precise = stopping.last_good(states, stopping.precise(patterns, 0.05))
    assert states[9 - precise.n_left + 1].error(patterns) > 0.05 >= precise.error(patterns)
    with pytest.raises(ValueError, match="not good enough before the first deletion"):
        stopping.last_good(states, stopping.accurate(patterns, 1.1))


def test_targets(trained):
    states = list(deletions(trained, xor(), brain_surgeon))
    assert stopping.down_to(states, 6).n_left == 6
    with pytest.raises(ValueError, match="5 weights are left already"):
        stopping.down_to(states[4:], 6)
    with pytest.raises(ValueError, match="expected at least 1"):
        stopping.down_to(states, 0)
    with pytest.raises(ValueError, match="at least 1 deletion in a round"):
        next(deletions(trained, xor(), brain_surgeon, per_round=0))


# Training --------------------------------------------------------------------------------------------------------


def test_training_ends_at_a_minimum_and_leaves_deleted_weights_alone(generator):
    network = Network((3, 4, 2))
    inputs = torch.randn(12, 3, generator=generator, dtype=DTYPE)
    patterns = Samples(inputs, torch.rand(12, 2, generator=generator, dtype=DTYPE))
    start = whole(network, network.start(generator))
    start = delete(start, Diagonal(torch.ones(26, dtype=DTYPE)), 5)
    for train in (levenberg_marquardt, quasi_newton):
        end = train(start, patterns, 1e-3, 400)
        assert _slope(end, patterns) < 2e-4 < _slope(start, patterns)
        assert end.theta[5] == 0
        assert objective(network, end.theta, patterns, 1e-3) < objective(network, start.theta, patterns, 1e-3)


def _slope(state, patterns):
    """The largest entry of the objective's gradient, over the weights that stay."""
    slope = torch.func.grad(lambda theta: _objective(state.network, theta, patterns))(state.theta)
    return slope[state.keep].abs().max()


def test_normal_equations_are_those_of_the_objective(generator):
    network, keep = Network((2, 3, 1)), torch.arange(13) != 4
    inputs = torch.randn(9, 2, generator=generator, dtype=DTYPE)
    patterns, theta = Samples(inputs, torch.rand(9, 1, generator=generator, dtype=DTYPE)), network.start(generator)
    hessian, gradient = normal_equations(network, theta, keep, patterns, 1e-3)
    slope = torch.func.grad(lambda each: _objective(network, each, patterns))(theta)
    torch.testing.assert_close(gradient, slope[keep])
    whole_hessian = outer_product_hessian(network, theta, patterns) + 1e-3 * torch.eye(13, dtype=DTYPE)
    torch.testing.assert_close(hessian, whole_hessian[keep][:, keep])


def _objective(network, theta, patterns):
    gap = network(theta, patterns.inputs) - patterns.targets
    return 0.5 * gap.square().sum(1).mean() + 0.5e-3 * theta.square().sum()


def test_a_network_that_cannot_learn_says_so():
    impossible = Samples(torch.zeros(2, 2, dtype=DTYPE), vector(0.0, 1.0)[:, None])
    with pytest.raises(ValueError, match="none of 3 random starts"):
        solved(XOR_NETWORK, impossible, torch.Generator().manual_seed(0), steps=3, tries=3)
    with pytest.raises(ValueError, match="expected neither to be negative"):
        levenberg_marquardt(whole(XOR_NETWORK, torch.ones(9, dtype=DTYPE)), xor(), decay=-1.0)


# A row of a layer ------------------------------------------------------------------------------------------------


def test_a_row_by_hand():
    # two equal inputs: OBS hands the weight over, without damping and error; OBD and magnitude lose it
    x = torch.tensor([[1.0, 1.0, 0.0], [2.0, 2.0, 1.0], [-1.0, -1.001, 0.0]], dtype=DTYPE)
    gram, weight = x.T @ x, vector(1.0, 2.0, 5.0)
    surfaces = row_surfaces(gram, 3, damping=0.0)
    assert output_error(gram, weight, prune_row(weight, surfaces["OBS"], 1)) < 1e-6
    torch.testing.assert_close(prune_row(weight, surfaces["magnitude"], 1), vector(0.0, 2.0, 5.0))
    with pytest.raises(ValueError, match="fewer than the row's 3"):
        prune_row(weight, surfaces["OBD"], 3)
    with pytest.raises(ValueError, match="at least 0"):
        row_surfaces(gram, 3, damping=-0.1)
    with pytest.raises(ValueError, match="not positive definite"):
        row_surfaces(torch.ones(3, 3), 3, damping=0.0)


def test_a_pruned_row_is_the_least_squares_fit_of_the_weights_it_keeps(generator):
    x, weight = torch.randn(60, 10, generator=generator, dtype=DTYPE), torch.randn(10, generator=generator, dtype=DTYPE)
    x[:, 1:] += 0.8 * x[:, :1]
    pruned = prune_row(weight, row_surfaces(x.T @ x, 60, damping=0.0)["OBS"], 5)
    keep = pruned != 0
    assert int(keep.sum()) == 5
    fitted = torch.linalg.lstsq(x[:, keep], (x @ weight)[:, None]).solution[:, 0]
    torch.testing.assert_close(pruned[keep], fitted, rtol=1e-8, atol=1e-10)


def test_obd_of_a_row_is_wanda_within_it(generator):
    from course_lib.pruning.layerwise.gram import Gram
    from course_lib.pruning.methods.wanda import Wanda
    from course_lib.sparsity.patterns import Unstructured

    x, weight = torch.randn(40, 12, generator=generator), torch.randn(1, 12, generator=generator)
    gram = Gram(12, needs="matrix")
    gram.add(x[None])
    mine = prune_row(weight[0], row_surfaces(gram.matrix, 40)["OBD"], 6)
    theirs = Wanda(Unstructured(0.5)).prune(weight, gram)[0]
    assert torch.equal(mine != 0, theirs != 0)
