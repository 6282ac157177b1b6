"""Squared gradients in place of curvatures, the open task of lesson 02, and their stored results."""

import pytest
import torch
from table_cells import rows

from course_lib.lessons.classic import claims, tables
from course_lib.lessons.classic.experiments import small
from course_lib.lessons.common.results import load_measured
from course_lib.pruning.classic.deletion import whole
from course_lib.pruning.classic.derivatives import outer_product_diagonal, outer_product_hessian, squared_gradients
from course_lib.pruning.classic.network import DTYPE, Network, Samples
from course_lib.pruning.classic.problems import NETWORKS


def test_diagonals_by_hand():
    """One linear unit, o = 2x: X is x, or 1 for the bias; residuals 2 and −2 for x = 1 and 3."""
    network, theta = Network((1, 1), output="identity"), torch.tensor([2.0, 0.0], dtype=DTYPE)
    samples = Samples(torch.tensor([[1.0], [3.0]], dtype=DTYPE), torch.tensor([[0.0], [8.0]], dtype=DTYPE))
    assert outer_product_diagonal(network, theta, samples).tolist() == [5, 1]
    assert squared_gradients(network, theta, samples).tolist() == [20, 4]


def test_diagonals_of_a_network_with_two_outputs(generator):
    network = Network((3, 4, 2), hidden="tanh")
    samples = Samples(*(torch.randn(7, n, generator=generator, dtype=DTYPE) for n in (3, 2)))
    theta = network.start(generator)
    whole_matrix = outer_product_hessian(network, theta, samples)
    torch.testing.assert_close(outer_product_diagonal(network, theta, samples), whole_matrix.diagonal())
    each = []
    for one in range(7):
        part, moved = Samples(samples.inputs[[one]], samples.targets[[one]]), theta.clone().requires_grad_()
        error = 0.5 * (network(moved, part.inputs) - part.targets).square().sum()
        each.append(torch.autograd.grad(error, moved)[0].square())
    torch.testing.assert_close(squared_gradients(network, theta, samples), torch.stack(each).mean(0))


def test_rank_correlation_by_hand():
    one = torch.tensor([1.0, 2.0, 3.0])
    assert small.rank_correlation(one, one.exp()) == pytest.approx(1)
    assert small.rank_correlation(one, -one) == pytest.approx(-1)
    assert small.rank_correlation(one, torch.tensor([1.0, 9.0, 5.0])) == pytest.approx(0.5)


def test_the_stored_comparison_can_be_repeated():
    table = load_measured("classic", "small")["tables"]["curvature"]
    assert {row["situation"] for row in table} == set(small.SITUATIONS)
    again = small.compare_diagonals(small.UNTRAINED, 0)
    (stored,) = (row for row in table if (row["situation"], row["seed"]) == (small.UNTRAINED, 0))
    assert again == {k: pytest.approx(v, rel=1e-6) if isinstance(v, float) else v for k, v in stored.items()}


def test_the_open_task_counts_weights_that_are_not_zero():
    """A weight that an idea sets to zero counts as deleted; anything but a network for these inputs is refused."""
    dense = whole(NETWORKS[1], torch.ones(58, dtype=DTYPE))
    (result,) = small.attempt(lambda dense, _: whole(NETWORKS[1], dense.theta * (torch.arange(58) < 9)), [dense])
    assert result.n_left == 9
    assert not result.solved
    with pytest.raises(ValueError, match="got str from the idea; expected a State"):
        small.attempt(lambda *_: "small", [dense])


def test_ideas_are_compared_network_by_network():
    ideas = {small.REFERENCE: [small.Result(12, 432), small.Result(16, 432)]}
    first, mine = rows(tables.smallest([small.Result(10, 432), small.Result(12, 400)], ideas))
    assert mine == ["yours", "11.0 ± 1.0", "10", "1 of 2", "+3.0 ± 1.0"]
    assert first == [small.REFERENCE, "14.0 ± 2.0", "12", "2 of 2", "–"]
    assert "nothing retrained" in small.REFERENCE


def test_the_stored_ideas_can_be_repeated():
    stored = small.stored()
    assert tuple(stored) == small.EXPERIMENT.sizes.ideas == tuple(load_measured("classic", "small")["sizes"]["ideas"])
    assert {len(results) for results in stored.values()} == {small.N_NETWORKS} == {len(small.dense_networks())}
    (again,) = small.attempt(small.IDEAS[small.REFERENCE], small.dense_networks()[:1])
    assert again == stored[small.REFERENCE][0]
    assert tables.smallest().frame["idea"].tolist() == list(stored)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (dict.fromkeys(small.SITUATIONS, 0.99), "holds"),
        (
            dict.fromkeys(small.SITUATIONS, 0.99) | {small.UNTRAINED: 0.2},
            "holds",  # the claim is about networks after training
        ),
        (dict.fromkeys(small.SITUATIONS, 0.2), "does not hold"),
        (dict.fromkeys(small.SITUATIONS, 0.9), "undecided (n = 3; over 10 times as many samples would be needed)"),
    ],
)
def test_the_order_is_judged_situation_by_situation(order, said):
    rows = [
        {"situation": name, "squared_order": mean + shift, "none_order": 0.5}
        for name, mean in order.items()
        for shift in (-0.01, 0.0, 0.01)
    ]
    assert claims.FISHER_ORDER.judge({"tables": {"curvature": rows}}).words == said
