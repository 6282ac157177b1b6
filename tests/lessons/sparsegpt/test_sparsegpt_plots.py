"""The figures of lesson 03 that need no stored results: titles follow from the data."""

import pytest
import torch
from figure_titles import titles

from course_lib.lessons.sparsegpt import drawings, plots


def test_unrelated_inputs_explain_nothing_and_copies_everything():
    assert plots.explained_fraction(torch.diag(torch.tensor([4.0, 1.0]))).tolist() == pytest.approx([0, 0])
    # H = [[1, .8], [.8, 1]]: 1 - .8² of an input is not explained, so .64 is; damping with 0.01 leaves .63
    gram = torch.tensor([[1.0, 0.8], [0.8, 1.0]])
    assert plots.explained_fraction(gram).tolist() == pytest.approx([0.624, 0.624], abs=1e-3)
    drawn = plots.explained_inputs(gram, n_tokens=20)
    assert "All others together explain 62 %\nof an input (median)" in titles(drawn)
    assert any("|cosine| 0.80" in title for title in titles(drawn))
    assert any(text.get_text() == "by chance: 10 %" for text in drawn.axes[1].get_legend().get_texts())


def test_the_sweep_counts_zeros_and_updated_weights():
    weight = torch.ones(4, 4)
    now = weight.clone()
    now[:, 0] = 0
    now[:2, 2] = 1.5
    first, last, bar = titles(plots.sweep(weight, {1: now, 4: now}))
    assert first == "1 columns frozen, 25 % zero\n17 % of the others updated"
    assert last == "4 columns frozen, 25 % zero"
    assert not bar


def test_zero_and_unchanged_and_changed_differ_in_grey():
    """Luminance falls from white, which is zero, over unchanged weights to the largest change."""
    red, green, blue = torch.tensor([plots.MOVED(x)[:3] for x in (0.0, 0.25, 0.5, 0.75, 1.0)]).T
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    assert grey[0] < 0.9
    assert (grey.diff() < -0.1).all()


def test_the_objective_by_hand():
    """G = [[2, 1], [1, 2]] and w = (1, 1): size 6, removing the first costs 2, and 1.5 with an update of the second."""
    gram = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    (title,) = titles(plots.objective(torch.tensor([[1.0, 1.0]]), gram))
    assert title == "Removing one weight changes 33 % of an output,\n25 % after an update of a second one"


def test_the_spectrum_counts_small_eigenvalues():
    few, many = torch.diag(torch.tensor([3.0, 1.0, 0.0, 0.0])), torch.diag(torch.tensor([3.0, 1.0, 1.0, 0.0]))
    (title,) = titles(plots.spectrum({2: few, 3: many}, damping=0.01))
    assert title == "Eigenvalues below 0.0001 of their mean, out of 4:\n2 with 2 tokens, 1 with 3 tokens"


def test_layer_errors_compare_two_methods():
    errors = {"a.q": {"Wanda": 0.4, "SparseGPT": 0.1}, "a.k": {"Wanda": 0.4, "SparseGPT": 0.2}}
    drawn = plots.layer_errors(errors, than="Wanda")
    assert titles(drawn) == ["SparseGPT: 0.25 to 0.50 times the error of “Wanda”"]
    assert {line.get_linestyle() for line in drawn.axes[0].lines} == {"None"}  # layers have no order


def test_block_sizes_compare_the_ends():
    drawn = plots.block_sizes({1: 0.4, 128: 0.1, 576: 0.2}, {1: 0.02, 128: 0.01, 576: 0.03})
    assert titles(drawn) == [
        "Blocks of 1 take 4.0 times\nas long as blocks of 128",
        "Blocks of 576 have a 200 %\nlarger error than blocks of 128",
    ]


def test_the_example_by_hand_says_what_it_draws():
    drawn = drawings.by_hand()
    assert titles(drawn) == ["The update saves 25 % of the error"]
    assert [text.get_text() for text in drawn.axes[0].get_legend().get_texts()] == [
        "trained: (1, 3)",
        "first removed: (0, 3), error 2",
        "and second updated: (0, 3.5), error 1.5",
    ]


@pytest.mark.parametrize("draw", [drawings.one_layer, drawings.own_orders, drawings.lazy])
def test_drawings_hold_no_frame(draw):
    assert not any(axes.axison for axes in draw().axes)
