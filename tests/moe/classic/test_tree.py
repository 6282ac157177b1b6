"""Trees of experts by EM: by hand, a likelihood that never falls, regressions against scikit-learn, an arm."""

import math
from itertools import islice, pairwise

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression

from course_lib.moe.classic.arm import RANGES, accelerations, arm, arm_samples
from course_lib.moe.classic.fit_tree import fit, fit_experts
from course_lib.moe.classic.gates import _quality, _shares, fit_gates
from course_lib.moe.classic.tree import Tree, linear_map, relative_error, with_one

DOUBLE = {"dtype": torch.float64}


def by_hand() -> Tree:
    """Depth 2 on a constant input: the root goes left with ¾, the left gate with ½, the right one with ¼."""
    gates = torch.tensor([[math.log(3)], [0.0], [-math.log(3)]], **DOUBLE)
    experts = torch.tensor([1.0, 2.0, 4.0, 8.0], **DOUBLE).reshape(4, 1, 1)
    return Tree(gates, experts, torch.tensor([1.0, 1.0, 1.0, 4.0], **DOUBLE))


def test_a_tree_of_depth_two_by_hand():
    tree, x, y = by_hand(), torch.ones(1, 1, **DOUBLE), torch.tensor([[2.0]], **DOUBLE)
    prior = [3 / 8, 3 / 8, 1 / 16, 3 / 16]
    assert tree.depth == 2
    assert tree.log_prior(x).exp()[0].tolist() == pytest.approx(prior)
    assert tree.predict(x).item() == pytest.approx(3 / 8 + 6 / 8 + 4 / 16 + 24 / 16)
    # Distances 1, 0, 2 and 6, the last at a deviation of 2.
    density = [math.exp(-0.5), 1.0, math.exp(-2), math.exp(-36 / 8) / 2]
    joint = [p * d / math.sqrt(2 * math.pi) for p, d in zip(prior, density, strict=True)]
    assert tree.log_likelihood(x, y) == pytest.approx(math.log(sum(joint)))
    assert tree.posteriors(x, y)[0].tolist() == pytest.approx([j / sum(joint) for j in joint])


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6), n_samples=st.integers(1, 40), n_inputs=st.integers(1, 3), n_outputs=st.integers(1, 2),
    depth=st.integers(1, 3), newton_steps=st.sampled_from([1, 5]),
)  # fmt: skip
def test_the_likelihood_never_falls(seed, n_samples, n_inputs, n_outputs, depth, newton_steps):
    """Whatever the samples, fewer than leaves too. Allowed is the rounding of a sum of as many logarithms."""
    generator = torch.Generator().manual_seed(seed)
    inputs = with_one(torch.randn(n_samples, n_inputs, generator=generator, **DOUBLE))
    targets = torch.randn(n_samples, n_outputs, generator=generator, **DOUBLE).round(decimals=1)
    trees = islice(fit(inputs, targets, depth, generator, newton_steps), 13)
    reached = [tree.log_likelihood(inputs, targets) for tree in trees]
    assert all(math.isfinite(each) for each in reached)
    assert all(later >= earlier - 1e-9 * (abs(earlier) + n_samples) for earlier, later in pairwise(reached))


def random_step(generator, n_samples=200):
    inputs = with_one(torch.randn(n_samples, 2, generator=generator, **DOUBLE))
    targets = torch.randn(n_samples, 2, generator=generator, **DOUBLE)
    posteriors = torch.randn(n_samples, 4, generator=generator, **DOUBLE).softmax(dim=1)
    tree = Tree(torch.zeros(3, 3, **DOUBLE), torch.zeros(4, 2, 3, **DOUBLE), torch.ones(4, **DOUBLE))
    return tree, posteriors, inputs, targets


def test_gates_are_logistic_regressions(generator):
    """As scikit-learn fits them to every sample twice, once as a left one and once as a right one, by its shares."""
    tree, posteriors, inputs, _ = random_step(generator)
    gates = fit_gates(tree, posteriors, inputs, steps=20)
    h = posteriors.numpy()
    shares = {0: (h[:, 0] + h[:, 1], h[:, 2] + h[:, 3]), 1: (h[:, 0], h[:, 1]), 2: (h[:, 2], h[:, 3])}
    for node, (left, right) in shares.items():
        both, sides = numpy.concatenate([inputs.numpy()] * 2), [1] * len(h) + [0] * len(h)
        oracle = LogisticRegression(C=numpy.inf, fit_intercept=False, tol=1e-10, max_iter=1000)
        oracle.fit(both, sides, sample_weight=numpy.concatenate([left, right]))
        assert gates[node].tolist() == pytest.approx(oracle.coef_[0].tolist(), abs=1e-5)  # where its search stops


def test_experts_are_weighted_regressions(generator):
    tree, posteriors, inputs, targets = random_step(generator)
    experts, variances = fit_experts(tree, posteriors, inputs, targets, torch.tensor(0.1, **DOUBLE))  # too low to bind
    for leaf in range(4):
        weight = posteriors[:, leaf].numpy()
        oracle = LinearRegression(fit_intercept=False).fit(inputs.numpy(), targets.numpy(), sample_weight=weight)
        # The ridge of 1e-9 moves a weight by about as much.
        assert experts[leaf].flatten().tolist() == pytest.approx(oracle.coef_.flatten().tolist(), abs=1e-7)
        squares = ((targets.numpy() - oracle.predict(inputs.numpy())) ** 2).sum(axis=1)
        assert variances[leaf].item() == pytest.approx(float((weight * squares).sum() / (2 * weight.sum())), rel=1e-7)


def test_a_newton_step_that_overshoots_is_cut(generator):
    """From a gate that is sure and wrong, where the curvature is next to nothing, whole steps go to infinity."""
    tree, posteriors, inputs, _ = random_step(generator)
    tree = Tree(torch.full((3, 3), 6.0, **DOUBLE), tree.experts, tree.variances)
    before = _quality(tree.gates, *_shares(posteriors), inputs)
    after = _quality(fit_gates(tree, posteriors, inputs, steps=1), *_shares(posteriors), inputs)
    assert (after > before).all()
    assert (after < 0).all()


def test_experts_that_are_exact_stay(generator):
    """Inputs that nearly agree: normal equations lose half of the digits, and would do worse than what was there."""
    x = torch.randn(50, 1, generator=generator, **DOUBLE)
    inputs = torch.cat([x, x + 1e-7 * torch.randn(50, 1, generator=generator, **DOUBLE)], dim=1)
    exact = torch.tensor([[[3.0, -2.0]]], **DOUBLE).repeat(2, 1, 1)
    tree = Tree(torch.zeros(1, 2, **DOUBLE), exact, torch.ones(2, **DOUBLE))
    half = torch.full((50, 2), 0.5, **DOUBLE)
    experts, variances = fit_experts(tree, half, inputs, inputs @ exact[0].T, torch.tensor(1e-20, **DOUBLE))
    assert torch.equal(experts, exact)
    assert variances.tolist() == [1e-20, 1e-20]


def test_two_lines_are_found(generator):
    """|x| without noise: a tree of depth 1 has both halves, and a gate at 0."""
    x = torch.linspace(-1, 1, 101, **DOUBLE)[:, None]
    tree = next(islice(fit(with_one(x), x.abs(), 1, generator), 40, None))
    assert relative_error(tree.predict(with_one(x)), x.abs()) < 1e-3
    assert sorted(tree.experts[:, 0, 0].tolist()) == pytest.approx([-1.0, 1.0], abs=0.02)  # the variance's floor
    weight, bias = tree.gates[0].tolist()
    assert abs(bias / weight) < 0.02


def test_the_arm_obeys_its_energy(generator):
    """Kinetic energy ½ ωᵀ M ω gains exactly what the torques do: d/dt = τ · ω. By a small step of the motion."""
    inputs, step = arm(50, generator).inputs, 1e-6

    def energy(state):
        _, bend, speed, bend_speed = state.T
        cos = bend.cos()
        return 0.5 * ((3 + 2 * cos) * speed**2 + 2 * (1 + cos) * speed * bend_speed + bend_speed**2)

    state, torques = inputs[:, :4], inputs[:, 4:]
    motion = torch.cat([state[:, 2:], accelerations(inputs)], dim=1)
    gained = (energy(state + step * motion) - energy(state - step * motion)) / (2 * step)
    torch.testing.assert_close(gained, (torques * state[:, 2:]).sum(dim=1), rtol=1e-6, atol=1e-6)  # of the step


def test_an_arm_by_hand():
    """Stretched and still, M = [[5, 2], [2, 1]]: a torque of 1 at the shoulder gives (1, −2)."""
    still = torch.zeros(1, 6, **DOUBLE)
    still[0, 4] = 1.0
    assert accelerations(still).tolist() == [[1.0, -2.0]]


def test_a_tree_learns_the_arm():
    """35 steps, as in the paper. One linear map leaves a quarter or more; the tree a twentieth or less."""
    training, test = arm_samples(torch.Generator().manual_seed(0), 2000, 1000)
    inputs, test_inputs = with_one(training.inputs), with_one(test.inputs)
    linear = relative_error(test_inputs @ linear_map(inputs, training.accelerations).T, test.accelerations)
    assert 0.24 < linear < 0.30
    trees = fit(inputs, training.accelerations, 4, torch.Generator().manual_seed(0))
    tree = next(islice(trees, 35, None))
    assert relative_error(tree.predict(test_inputs), test.accelerations) < 0.06


def test_arm_inputs_fill_their_ranges(generator):
    inputs = arm(1000, generator).inputs
    low, high = torch.tensor(RANGES, **DOUBLE).T
    assert ((inputs >= low) & (inputs <= high)).all()
    assert ((inputs.amax(dim=0) - inputs.amin(dim=0)) > 0.95 * (high - low)).all()


X, Y = torch.ones(3, 2, **DOUBLE), torch.ones(3, 1, **DOUBLE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: next(fit(X, Y, 0, g)), "depth=0, newton_steps=1: expected at least 1 of each; a tree of depth 0"),
        (lambda g: next(fit(X, Y, 1, g, 0)), "newton_steps=0: expected at least 1"),
        (lambda g: next(fit(X.float(), Y.float(), 1, g)), "float32 .*: expected float64, .*; call .double"),
        (lambda g: next(fit(X * torch.nan, Y, 1, g)), "NaN or infinity: expected finite numbers; drop"),
        (lambda g: next(fit(X[:0], Y[:0], 1, g)), r"\(0, 2\) .*: expected .* at least one sample"),
        (lambda g: arm(0, g), "n_samples=0: expected at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(call, message, generator):
    with pytest.raises(ValueError, match=message):
        call(generator)
