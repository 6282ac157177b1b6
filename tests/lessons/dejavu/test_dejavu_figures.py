"""Titles of the figures of lesson 09 follow from their numbers."""

import math

import pytest
import torch

from course_lib.lessons.dejavu import plots
from course_lib.lessons.dejavu.activations import Quality
from course_lib.lessons.dejavu.costs import Timing


def title(axes):
    return axes.get_title(loc="left").replace("\n", " ")


def losses(*more):
    """Six windows that differ a lot, each with so much more."""
    return torch.tensor([2.0, 3.0, 4.0, 2.5, 3.5, 1.0], dtype=torch.float64) + torch.tensor(more or (0.0,))


NOISE = (0.0, 0.02, 0.01, 0.0, 0.02, 0.01)


def test_the_best_is_named_only_where_the_difference_is_clear():
    clear = {"one": {0.5: losses()}, "two": {0.5: losses(*[0.3 + n for n in NOISE])}}
    assert (
        plots.ranking(clear, 0.5) == "At 50 % of the neurons one is clearly better than two (1.36\N{NO-BREAK SPACE}×)"
    )
    noisy = {"one": {0.5: losses()}, "two": {0.5: losses(0.3, -0.3, 0.2, -0.2, 0.1, 0.0)}}
    assert plots.ranking(noisy, 0.5) == "At 50 % of the neurons no difference is clear"
    some = clear | {"three": {0.5: losses(0.01, -0.01, 0.02, 0.0, -0.01, 0.0)}}
    said = plots.ranking(some, 0.5, "neurons of the MLPs")
    assert said.replace("\n", " ").endswith(
        "one is clearly better than two (1.36\N{NO-BREAK SPACE}×); no clear difference to three"
    )
    assert max(map(len, said.splitlines())) <= plots.TITLE_WIDTH


def test_density_curves_are_multiples_of_the_dense_perplexity():
    dense = losses()
    curves = {"a": {0.5: dense + math.log(2), 0.25: dense + math.log(4)}, "b": {0.5: dense + math.log(8)}}
    fig = plots.perplexity_over_density(curves, dense, 0.5, "heads")
    (axes,) = fig.axes
    drawn = {line.get_label(): line for line in axes.lines}
    first = axes.containers[0].lines[0]
    assert axes.get_yscale() == "log"  # b has eight times the dense perplexity
    torch.testing.assert_close(torch.tensor(list(map(float, first.get_ydata()))), torch.tensor([4.0, 2.0]))
    assert first.get_xdata().tolist() == [25.0, 50.0]
    assert drawn["dense"].get_ydata()[0] == 1
    assert title(axes) == "At 50 % of the heads a is clearly better than b (4.00\N{NO-BREAK SPACE}×)"


def test_small_differences_have_a_linear_axis():
    fig = plots.perplexity_over_density({"a": {0.5: losses(*NOISE)}, "b": {0.5: losses()}}, losses(), 0.5)
    assert fig.axes[0].get_yscale() == "linear"


def test_error_bars_reach_two_standard_errors():
    times, low, high = plots.times_dense(losses(*NOISE), losses())
    error = torch.tensor(NOISE).double().std().item() / math.sqrt(6)
    assert times == pytest.approx(math.exp(0.01))
    assert high / times == pytest.approx(math.exp(2 * error))
    assert times / low == pytest.approx(math.exp(2 * error))


def test_energy_says_how_many_neurons_it_takes():
    even, one = torch.arange(1, 101) / 100, torch.ones(100)
    fig = plots.energy({"flat": {"block 0": even}, "sharp": {"block 0": one, "block 1": even**0.5}})
    found = fig.get_suptitle().replace("\n", " ")
    assert found == "Neurons that hold 95 % of the energy of a token: flat 95 %, sharp 1 to 91 %"


def test_choice_counts_are_compared_with_the_best_static_set():
    fixed, moving = torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.full((4,), 0.5)
    (axes,) = plots.choice_counts({"block 1": fixed, "block 2": moving}, 0.5).axes
    assert title(axes) == "The 50 % that are chosen most often have 50 to 100 % of all choices"


def test_slow_change_counts_blocks_and_ignores_the_first_in_what_is_added():
    cosine = torch.tensor([0.1, 0.96, 0.99, 0.94])
    added = {"attention": torch.tensor([9.0, 0.2, 0.3, 0.1]), "MLP": torch.tensor([20.0, 0.1, 0.4, 0.2])}
    left, right = plots.residual_change(cosine, added).axes
    assert title(left) == "Cosine above 0.95 in 2 of 4 blocks"
    assert title(right) == "After block 0 a part adds at most 0.40 times the residual"


def test_recall_and_energy_are_compared_at_the_middle_share():
    found = {
        "predictor": [Quality(0.1, 0.5, 0.6), Quality(0.2, 0.7, 0.9), Quality(0.4, 0.9, 1.0)],
        "random": [Quality(0.1, 0.1, 0.1), Quality(0.2, 0.2, 0.25), Quality(0.4, 0.4, 0.4)],
    }
    left, right = plots.recall_and_energy(found).axes
    assert title(left) == "Recall at 20 % of the neurons: 70 % (random 20 %)"
    assert title(right) == "Energy at 20 % of the neurons: 90 % (random 25 %)"


def test_pays_names_the_break_even_of_each_line():
    lines = {
        "free": {1.0: (1.0, 1.0, 1.0), 0.5: (1.4, 1.2, 1.0)},
        "slow": {1.0: (0.6, 0.8, 0.47), 0.5: (0.9, 1.0, 0.47)},
    }
    (axes,) = plots.speedup_over_density(lines).axes
    assert title(axes) == "Break-even density: free 100 %, slow 47 %"


def test_a_union_is_compared_with_independent_choices():
    (axes,) = plots.union({"a": [0.5, 0.6]}, (1, 2)).axes
    assert title(axes) == "Neurons that a batch of 2 reads: a 60 % (50 % per token)"
    assert axes.lines[-1].get_ydata()[-1] == pytest.approx(75)


def test_a_run_is_called_faster_only_by_more_than_a_little():
    timed = Timing(0.1, {1.0: 0.2, 0.5: 0.095, 0.2: 0.05, 0.1: 0.025}, 10**6)
    (axes,) = plots.time_over_density(timed).axes
    assert (
        title(axes) == "In this run gathering is faster up to 20 % of the neurons; at 10 % 4.0 times as fast (limit 10)"
    )
    slow = Timing(0.1, {0.5: 0.2}, 10**6)
    assert "faster at none of these densities" in title(plots.time_over_density(slow).axes[0])


def test_more_curves_than_styles_of_lines_are_refused():
    curves = {name: {0.5: losses()} for name in "abcdef"}
    with pytest.raises(ValueError, match="got 6 curves; expected at most 5"):
        plots.perplexity_over_density(curves, losses(), 0.5)
