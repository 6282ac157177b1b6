"""The drawings of lesson 10: inputs, labels and stored bytes, all counted by hand."""

import re

import pytest

from course_lib.lessons.compress import deck, plots
from course_lib.models import blocks, head, load_model
from course_lib.quantization.storage import sparse_bytes


@pytest.mark.parametrize(
    "draw", [plots.positions_and_mask, plots.labels, plots.bits, deck.whole_model, plots.prompt_cost]
)
def test_a_drawing_says_what_it_shows(draw):
    assert re.search(r"\d", draw().described())


def test_positions_skip_the_padding():
    seen, positions = plots.example_batch()
    assert positions[0] == list(range(9))
    assert [place for place, sees in zip(positions[1], seen[1].tolist(), strict=True) if sees] == list(range(7))
    assert seen[1].tolist() == [True] * 3 + [False] * 2 + [True] * 4


def test_the_mask_is_causal_and_skips_the_padding():
    fig = plots.positions_and_mask()
    dark = [patch.get_facecolor()[:3] != (1.0, 1.0, 1.0) for patch in fig.axes[1].patches]
    seen, _ = plots.example_batch()
    expected = [before <= place and bool(seen[1, before]) for place in range(9) for before in range(9)]
    assert dark == expected
    assert fig.axes[1].get_title(loc="left").endswith("attends to 7 of 9 vectors")


def test_labels_are_the_words_one_place_early():
    assert plots.example_labels() == [-100, -100, 0, 1, 2, 3, 4, 5, -100]
    shown = [text.get_text() for text in plots.labels().axes[0].texts]
    assert shown[9:18] == ["–100", "–100", *plots.WORDS, "–100"]


def test_the_shapes_are_those_of_the_model():
    model, _ = load_model()
    pruned = [tuple(weight.shape) for weight in blocks(model).parameters() if weight.ndim == 2]
    assert sorted(pruned) == sorted(plots.SHAPES)
    assert sum(weight.numel() for weight in model.parameters()) == plots.WEIGHTS + plots.OTHERS
    assert head(model).weight is model.get_input_embeddings().weight


def test_bits_of_a_weight_by_hand():
    part = plots.bits_per_weight(128)
    assert part["codes"] == 2
    assert part["bitmap, row starts"] == pytest.approx(1 + 32 / 576, abs=0.02)  # 32 bits a row of 576, and of 1536
    in_rows = 5 * (16 + 4) / 576  # five groups in a row of 576
    assert in_rows * 0.85 < part["scales, zero points"] < in_rows * 1.05  # 12 in one of 1536; whole bytes
    whole = sum(sparse_bytes(rows, columns, n_stored, 4, 128) for rows, columns, n_stored in plots.LAYERS)
    assert sum(part.values()) == pytest.approx(8 * whole / plots.WEIGHTS)
    assert f"{16 / sum(part.values()):.2f} ×" in [text.get_text() for text in plots.bits().axes[0].texts]


def test_smaller_groups_take_more_and_never_less_than_three_bits():
    bits = [sum(plots.bits_per_weight(group).values()) for group in plots.GROUPS.values()]
    assert bits == sorted(bits)
    assert bits[0] > 3


def test_the_whole_model_by_hand():
    widths = [bar.get_width() for bar in deck.whole_model().axes[0].patches]
    before, after = widths[:3], widths[3:]
    assert before == pytest.approx([2 * 106.16832, 2 * (28.311552 + 0.035136), 0])
    assert after[1:] == pytest.approx([before[1], 2 * 20 * 576 / 1e6])
    ratio = sum(before) / sum(after)
    assert f"the model {ratio:.2f} times" in deck.whole_model().described()


def test_the_share_of_a_prompt_is_half_at_its_own_length():
    assert plots.prompt_fraction(20, 20) == 0.5
    assert plots.prompt_fraction(100, 1024) == pytest.approx(100 / 1124)
