"""Pareto sets and Shapley values: by hand, by brute force, by lot."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.compose.front import Point, dominates, front, hypervolume, ratio
from course_lib.compose.shares import interaction, shapley, subsets


def point(name, cost, *losses):
    return Point(name=name, cost=cost, losses=losses)


def test_a_difference_within_two_errors_decides_nothing():
    better, worse = point("better", 1, 1.0, 2.0, 3.0), point("worse", 2, 1.2, 2.1, 3.3)
    assert ratio(worse, better) == (pytest.approx(0.2), pytest.approx(0.1 / 3**0.5))  # 0.2, 0.1, 0.3
    assert dominates(better, worse)
    assert not dominates(worse, better)
    noisy = point("noisy", 2, 1.6, 1.6, 3.4)  # 0.6, −0.4, 0.4: 0.2 ± 0.31
    assert not dominates(better, noisy)
    assert front([noisy, worse, better]) == [better, noisy]
    assert not dominates(point("dear", 3, 1.0, 2.0, 3.0), worse), "it costs more"


@pytest.mark.parametrize("numbers", [(1, 1.0, float("nan")), (float("nan"), 1.0, 2.0)])
def test_nan_is_refused_since_nothing_would_dominate_it(numbers):
    with pytest.raises(ValueError, match="got NaN in the cost or the losses of diverged"):
        point("diverged", *numbers)


def test_ties():
    one, same, cheaper = point("one", 2, 1.0, 1.5), point("same", 2, 1.0, 1.5), point("cheaper", 1, 1.0, 1.5)
    assert front([one, same]) == [one, same]
    assert front([one, same, cheaper]) == [cheaper]
    shifted = point("shifted", 2, 1.25, 1.75)  # everywhere by the same: known without an error
    assert dominates(one, shifted)


def test_one_window_decides_nothing():
    assert not dominates(point("a", 1, 1.0), point("b", 2, 9.0))
    with pytest.raises(ValueError, match="same windows"):
        ratio(point("a", 1, 1.0), point("b", 1, 1.0, 2.0))


def test_an_area_by_hand():
    # Reference (10, 5). (2, 4) covers 8 x 1, (6, 1) another 4 x 3; (7, 3) lies behind it, (11, 0) outside.
    points = [point("a", 2, 4.0), point("b", 6, 1.0), point("c", 7, 3.0), point("d", 11, 0.0)]
    assert hypervolume(points, 10, 5) == 20
    assert hypervolume([], 10, 5) == 0


TEN = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=10)


@settings(max_examples=60, deadline=None)
@given(TEN)
def test_the_sweep_is_brute_force(pairs):
    points = [point(str(i), cost, float(loss)) for i, (cost, loss) in enumerate(pairs)]
    cells = itertools.product(range(12), range(12))  # unit squares below the reference (12, 12)
    covered = sum(any(cost <= x and loss <= y for cost, loss in pairs) for x, y in cells)
    assert hypervolume(points, 12, 12) == covered


def test_the_sweep_is_monte_carlo(generator):
    pairs = torch.rand(10, 2, generator=generator, dtype=torch.float64)
    points = [point(str(i), float(cost), float(loss)) for i, (cost, loss) in enumerate(pairs)]
    draws = torch.rand(40_000, 1, 2, generator=generator, dtype=torch.float64)
    share = (pairs <= draws).all(2).any(1).double()
    error = share.std() / 200
    assert abs(hypervolume(points, 1.0, 1.0) - share.mean()) < 4 * error


@settings(max_examples=40, deadline=None)
@given(TEN)
def test_every_point_is_in_the_front_or_beaten_by_one(pairs):
    points = [point(str(i), c, float(q), float(q) + 1) for i, (c, q) in enumerate(pairs)]  # no error
    chosen = front(points)
    assert [p.cost for p in chosen] == sorted(p.cost for p in chosen)
    for each in points:
        assert (each in chosen) != any(dominates(other, each) for other in chosen)


def values_of(function, names=("a", "b", "c")):
    return {s: torch.tensor([float(function(s)), 2 * float(function(s))], dtype=torch.float64) for s in subsets(names)}


def test_shapley_by_hand():
    # a alone 1, b alone 2, together 5; c adds nothing.
    worth = {"": 0, "a": 1, "b": 2, "ab": 5}
    values = values_of(lambda s: worth["".join(sorted(s - {"c"}))])
    found = shapley(values, ("a", "b", "c"))
    assert [found[name].tolist() for name in "abc"] == [[2.0, 4.0], [3.0, 6.0], [0.0, 0.0]]
    assert interaction(values, ("a", "b", "c"), "a", "b").tolist() == [2.0, 4.0]
    assert interaction(values, ("a", "b", "c"), "a", "c").tolist() == [0.0, 0.0]


def test_shapley_is_the_mean_over_all_orders(generator):
    names = tuple("abcde")
    values = {s: torch.rand(3, generator=generator, dtype=torch.float64) for s in subsets(names)}
    assert len(values) == 32
    found = shapley(values, names)
    orders = list(itertools.permutations(names))
    for name in names:
        before = [frozenset(order[: order.index(name)]) for order in orders]
        mean = sum(values[s | {name}] - values[s] for s in before) / len(orders)
        torch.testing.assert_close(found[name], mean, rtol=0, atol=1e-12)
    total = values[frozenset(names)] - values[frozenset()]
    torch.testing.assert_close(sum(found.values()), total, rtol=0, atol=1e-12)
    del values[frozenset("ace")]
    with pytest.raises(ValueError, match="without a\\+c\\+e"):
        shapley(values, names)
