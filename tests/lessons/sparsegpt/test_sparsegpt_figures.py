"""The figures of lesson 03: titles follow from the data."""

import pytest
import torch

from course_lib.lessons.sparsegpt import figures


def titles(drawn):
    return [axes.get_title(loc="left") for axes in drawn.axes]


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
    first, last = titles(figures.sweep(weight, {1: now, 4: now}))
    assert first == "1 columns settled, 25 % zero\n17 % of those to the right moved"
    assert last == "4 columns settled, 25 % zero"


def test_layer_errors_compare_two_methods():
    found = {"a.q": {"Wanda": 0.4, "SparseGPT": 0.1}, "a.k": {"Wanda": 0.4, "SparseGPT": 0.2}}
    assert titles(figures.layer_errors(found, than="Wanda")) == ["SparseGPT has 0.25 to 0.50 times the error of: Wanda"]


def test_block_sizes_name_the_fastest_and_the_spread():
    drawn = figures.block_sizes({1: 0.4, 128: 0.1, 576: 0.2}, {1: 0.02, 128: 0.01, 576: 0.03})
    assert titles(drawn) == ["Fastest in blocks of 128", "The error changes by a factor of 3.00"]
