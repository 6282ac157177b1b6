"""Figures of lesson 01: they draw, and their titles are computed from the data."""

import math

import pytest
import torch

from course_lib.lessons.patterns import deck, plots, widgets
from course_lib.lessons.patterns.experiments.patterns import six_patterns
from course_lib.measure.perplexity import Perplexity
from course_lib.measure.roofline import H100
from course_lib.models import tiny_model
from course_lib.sparsity.patterns import Block, Columns, NofM, Rows, Unstructured


@pytest.fixture
def weight():
    return torch.randn(64, 96, generator=torch.Generator().manual_seed(0))


def titles(drawn):
    drawn.canvas.draw()
    suptitle = drawn._suptitle.get_text() if drawn._suptitle else ""
    return " | ".join([suptitle, *(axes.get_title(loc="left") for axes in drawn.axes)])


def test_masks_name_the_best_and_the_worst(weight):
    text = titles(plots.masks(weight, six_patterns(0.5)))
    assert "unstructured keeps" in text
    assert text.count("of the squares") >= 6


def test_zeros_are_white_and_the_smallest_weight_is_not(weight):
    axes = plots.figure()[1][0]
    shade = plots.draw_matrix(axes, torch.tensor([[0.0, 1e-6], [1.0, -1.0]]), "").images[0].get_array()
    assert shade[0, 0] == 0
    assert shade[0, 1] >= 0.3
    plots.draw_matrix(axes, torch.zeros(2, 2), "nothing left")


def test_curves_compare_two_patterns_at_half(weight):
    assert "2:4" in titles(deck.square_kept_curves(weight))


def test_a_typical_part_keeps_as_much_as_the_matrix():
    """The left half is full and the right half empty in every row: a part in the middle has half of each."""
    keep = torch.arange(64).repeat(64, 1) < 32
    assert plots.typical_part({"columns": keep, "all alike": torch.ones(64, 64).bool()}, size=32) == (0, 16)


def test_perplexities_give_factors_of_the_dense_model():
    values = {"dense": 40.0, "unstructured": 60.0, "rows": 4e8}
    found = {name: Perplexity(value, value / 10, 100) for name, value in values.items()}
    drawn = plots.perplexities({0.25: found}, 49152)
    assert "25 % pruned: unstructured × 1.5, rows × 10 million; 1 of 2 worse than a guess" in titles(drawn)
    assert drawn.axes[0].get_xlim()[1] < 4e8  # far beyond guessing: at the edge, with its number
    assert "400 million" in [text.get_text() for text in drawn.axes[0].texts]
    more = {"dense": found["dense"], "free": Perplexity(4000.0, 1.0, 100), "rows": Perplexity(8e4, 4e4, 100)}
    drawn = plots.perplexities({0.25: found, 0.5: more}, 49152)
    assert "50 % pruned: free × 100, rows × 2,000; 0 of 2 worse than a guess" in titles(drawn)  # within its error
    assert [tick.get_text() for tick in drawn.axes[0].get_yticklabels()] == ["unstructured / free", "rows"]


def test_freedom_is_drawn_with_its_bits(weight):
    assert "identify a mask:\n0.96 for unstructured" in titles(deck.freedom(weight))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (43.4, "43"),
        (4280, "4,280"),
        (103136.4, "103,000"),
        (6.2e6, "6.2 million"),
        (118e6, "118 million"),
        (3e9, "3 billion"),
    ],
)
def test_numbers_are_rounded_to_what_matters(value, text):
    assert plots.rounded(value) == text


def test_groups_count_those_that_do_not_fit():
    assert titles(plots.groups(torch.tensor([0.1, 0.2, 0.3, 0.3, 0.1]))).strip(" |").startswith("40 %")


def test_the_title_names_the_break_even_densities(weight):
    text = titles(plots.bytes_per_weight(weight))
    assert "float32: CSR is smaller below 49 %" in text  # 50 % without the row starts, which matter in a small matrix
    assert "float16: CSR is smaller below" in text


def test_limits_are_drawn_for_a_device():
    assert "2:4" in titles(deck.limits(11008, 4096, H100))


def test_activity_counts_the_inputs_that_two_tokens_have_in_common():
    keep = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0]]).bool()
    errors = {"each": {0.25: 0.1, 0.5: 0.0}, "all": {0.25: 0.4, 0.5: 0.2}}
    text = titles(plots.activity(keep, errors))
    assert "have 50 % of their top 50 % in common" in text
    assert "error 0.10 if chosen\nfor each token, 0.40 once for all" in text


def test_the_explorer_answers_every_choice_without_a_browser():
    controls = widgets.explore(tiny_model())
    first, second, refused = controls.children
    (block, matrix), (pattern, sparsity) = first.children, second.children
    for kind in pattern.options:
        pattern.value = kind
        assert refused.value == ""
    block.value, sparsity.value, pattern.value = 1, 0.75, "blocks 16 × 16"
    matrix.value = "mlp.down_proj"  # 16 does not divide 100 neurons: a message appears, and the last picture stays
    assert "does not divide" in refused.value
    pattern.value = "rows"
    assert refused.value == ""


def test_the_explorer_shows_zeros_and_bytes():
    drawn = widgets.plot_choice(tiny_model(), 0, "self_attn.q_proj", "n of 4", 0.5)
    assert "50.0 % zeros" in titles(drawn)
    assert "self_attn.q_proj: 2 of 4" in titles(drawn)
    assert "2:4: " in titles(drawn)


@pytest.mark.parametrize(
    ("pattern", "form", "n_bytes"),
    [
        (NofM(1, 4), "1:4", 64 * 24 * 4 + 64 * 6),
        (Block(16, 16, 0.5), "blocks", 12 * (256 * 4 + 4) + 5 * 4),
        (Rows(0.5), "rows", 32 * (96 * 4 + 4) + 65 * 4),
        (Columns(0.5), "columns", 48 * (64 * 4 + 4) + 2 * 4),
    ],
)
def test_each_pattern_is_shown_in_its_own_format(weight, pattern, form, n_bytes):
    pruned = weight * pattern.keep(weight.square())
    encoded = widgets.encodings(pruned, pattern)
    assert torch.equal(encoded[form].decode(), pruned)
    assert encoded[form].n_bytes == n_bytes
    assert set(widgets.encodings(pruned, Unstructured(0.5))) == {"dense", "CSR", "bitmap"}


def test_a_dense_matrix_is_smallest_dense():
    assert "dense is smallest" in titles(widgets.plot_pruned(torch.ones(8, 8), Unstructured(0.0), "nothing removed"))


def test_errors_belong_to_the_log_perplexity():
    """A perplexity of 40 with an error of 20, 0.5 in nats: two of them reach to 40 / e and 40 e, not to 0."""
    found = {"dense": Perplexity(20.0, 1.0, 100), "rows": Perplexity(40.0, 20.0, 100)}
    drawn = plots.perplexities({0.25: found}, 49152)
    (segment,) = drawn.axes[0].collections[0].get_segments()
    assert segment[:, 0] == pytest.approx([40 / math.e, 40 * math.e])
