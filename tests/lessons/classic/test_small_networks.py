"""Squared gradients beside curvatures, the open task of lesson 02, and their committed results."""

import pytest
import torch
from table_cells import rows

from course_lib.lessons.classic import claims, experiment_small, fisher, measured, smallest, tables
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
    assert fisher.rank_correlation(one, one.exp()) == pytest.approx(1)
    assert fisher.rank_correlation(one, -one) == pytest.approx(-1)
    assert fisher.rank_correlation(one, torch.tensor([1.0, 9.0, 5.0])) == pytest.approx(0.5)


def test_the_committed_comparison_is_that_of_the_lesson_and_is_judged():
    small = measured.small()
    assert {row["situation"] for row in small["tables"]["curvature"]} == set(fisher.SITUATIONS)
    again = fisher.compared(fisher.UNTRAINED, 0)
    (stored,) = (r for r in small["tables"]["curvature"] if (r["situation"], r["seed"]) == (fisher.UNTRAINED, 0))
    assert again == {k: pytest.approx(v, rel=1e-6) if isinstance(v, float) else v for k, v in stored.items()}
    assert fisher.order_verdict(small).count("Claim") == 2
    assert fisher.curvature_table(small).frame["networks"].tolist() == list(fisher.SITUATIONS)


def test_the_open_task_counts_what_is_left():
    """An idea that only writes zeros has deleted as well; a network for other inputs is none."""
    dense = whole(NETWORKS[1], torch.ones(58, dtype=DTYPE))
    made = smallest.attempt(lambda dense, _: whole(NETWORKS[1], dense.theta * (torch.arange(58) < 9)), [dense])
    assert [result.n_left for result in made] == [9]
    assert not made[0].solved
    with pytest.raises(ValueError, match="got str from the idea; expected a State"):
        smallest.attempt(lambda *_: "small", [dense])


def test_ideas_are_compared_network_by_network():
    ideas = {smallest.REFERENCE: [smallest.Result(12, 432), smallest.Result(16, 432)]}
    first, mine = rows(smallest.table(ideas, [smallest.Result(10, 432), smallest.Result(12, 400)]))
    assert mine == ["yours", "11.0 ± 1.0", "10", "1 of 2", "+3.0 ± 1.0"]
    assert first == [smallest.REFERENCE, "14.0 ± 2.0", "12", "2 of 2", "–"]
    assert "nothing retrained" in smallest.REFERENCE


def test_the_committed_ideas_are_those_of_the_task():
    small = measured.small()
    stored = smallest.stored()
    assert tuple(stored) == experiment_small.Sizes().ideas == tuple(small["sizes"]["ideas"])
    assert {len(results) for results in stored.values()} == {smallest.N_NETWORKS} == {len(smallest.networks())}
    (again,) = smallest.attempt(smallest.IDEAS[smallest.REFERENCE], smallest.networks()[:1])
    assert again == stored[smallest.REFERENCE][0]
    assert smallest.table(stored).frame["idea"].tolist() == list(stored)


def test_printed_lines_fit():
    result = measured.results()
    printed = (tables.monks_table, tables.monks_verdict, tables.xor_table, tables.xor_verdict, tables.rows_verdict)
    for print_of in (*printed, tables.digits_verdict, tables.recursion_table):
        long = [line for line in str(print_of(result)).splitlines() if len(line) > 100]
        assert long == [], print_of.__name__


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (dict.fromkeys(fisher.SITUATIONS, 0.99), "holds"),
        (
            dict.fromkeys(fisher.SITUATIONS, 0.99) | {fisher.UNTRAINED: 0.2},
            "mixed (holds in noisy targets, exact targets, MONK's problem 1; fails in before training)",
        ),
        (dict.fromkeys(fisher.SITUATIONS, 0.2), "does not hold"),
        (dict.fromkeys(fisher.SITUATIONS, 0.9), "undecided (n = 3; even 100 times as many samples would not decide)"),
    ],
)
def test_the_order_is_judged_situation_by_situation(order, said):
    rows = [
        {"situation": name, "squared_order": mean + shift, "none_order": 0.5}
        for name, mean in order.items()
        for shift in (-0.01, 0.0, 0.01)
    ]
    assert claims.FISHER_ORDER.judge({"tables": {"curvature": rows}}).words == said
