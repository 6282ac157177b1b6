"""The figures of lesson 03: titles follow from the data."""

import pytest
import torch
from figure_titles import titles

from course_lib.lessons.sparsegpt import drawings, figures


def test_unrelated_inputs_explain_nothing_and_copies_everything():
    upper = torch.linalg.cholesky(torch.linalg.inv(torch.diag(torch.tensor([4.0, 1.0])))).T
    assert figures.explained_share(torch.diag(torch.tensor([4.0, 1.0])), upper).tolist() == pytest.approx([0, 0])
    # H = [[1, .8], [.8, 1]]: what is left of an input is 1 - .8², so .64 is explained
    gram = torch.tensor([[1.0, 0.8], [0.8, 1.0]])
    upper = torch.linalg.cholesky(torch.linalg.inv(gram)).T
    assert figures.explained_share(gram, upper).tolist() == pytest.approx([0.64, 0.64], abs=1e-5)
    drawn = figures.what_others_explain(gram, upper, n_tokens=20, name="a layer")
    assert "All together explain 64 % of an input" in titles(drawn)
    assert any("(0.80)" in title for title in titles(drawn))
    assert any(text.get_text() == "by chance: 10 %" for text in drawn.axes[1].get_legend().get_texts())


def test_the_sweep_says_what_is_zero_and_what_moved():
    weight = torch.ones(4, 4)
    now = weight.clone()
    now[:, 0] = 0
    now[:2, 2] = 1.5
    first, last, bar = titles(figures.sweep(weight, {1: now, 4: now}))
    assert first == "1 columns settled, 25 % zero\n17 % of the rest have moved"
    assert last == "4 columns settled, 25 % zero"
    assert not bar


def test_grey_tells_zero_and_unmoved_and_moved_apart():
    """Luminance falls from white, which is zero, over unmoved to the furthest."""
    red, green, blue = torch.tensor([figures.MOVED(x)[:3] for x in (0.0, 0.25, 0.5, 0.75, 1.0)]).T
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    assert grey[0] < 0.9
    assert (grey.diff() < -0.1).all()


def test_the_objective_by_hand():
    """G = [[2, 1], [1, 2]] and w = (1, 1): size 6, deleting the first costs 2, and 1.5 once the second moves."""
    gram = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    (title,) = titles(figures.objective(torch.tensor([[1.0, 1.0]]), gram))
    assert title == "Deleting one weight changes 33 % of an output,\n25 % once a second weight moves"


def test_the_spectrum_counts_directions_without_tokens():
    few, many = torch.diag(torch.tensor([3.0, 1.0, 0.0, 0.0])), torch.diag(torch.tensor([3.0, 1.0, 1.0, 0.0]))
    (title,) = titles(figures.spectrum({2: few, 3: many}, damping=0.01))
    assert title == "Directions of 4 that hardly any token points to:\n2 with 2, 1 with 3 tokens"


def test_layer_errors_compare_two_methods():
    found = {"a.q": {"Wanda": 0.4, "SparseGPT": 0.1}, "a.k": {"Wanda": 0.4, "SparseGPT": 0.2}}
    drawn = figures.layer_errors(found, than="Wanda")
    assert titles(drawn) == ["SparseGPT changes 0.25 to 0.50 times as much of the output as “Wanda”"]
    assert {line.get_linestyle() for line in drawn.axes[0].lines} == {"None"}  # layers have no order


def test_block_sizes_compare_the_ends():
    drawn = figures.block_sizes({1: 0.4, 128: 0.1, 576: 0.2}, {1: 0.02, 128: 0.01, 576: 0.03})
    assert titles(drawn) == [
        "Blocks of 1 take 4.0 times as long as of 128",
        "Blocks of 576 change 200 % more than of 128",
    ]


def test_the_example_by_hand_says_what_it_draws():
    drawn = drawings.by_hand()
    assert titles(drawn) == ["The update saves 25 % of the error"]
    assert [text.get_text() for text in drawn.axes[0].get_legend().get_texts()] == [
        "trained: (1, 3)",
        "deleted: (0, 3), error 2",
        "and moved: (0, 3.5), error 1.5",
    ]


@pytest.mark.parametrize("draw", [drawings.one_layer, drawings.own_orders, drawings.lazy])
def test_drawings_hold_no_frame(draw):
    assert not any(axes.axison for axes in draw().axes)
