"""Figures show themselves, with words for those who cannot see them."""

import base64
import html

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from course_lib.lessons.common.masks import compare_grids
from course_lib.lessons.common.style import figure, label


def test_a_figure_shows_itself_once_as_a_picture_and_in_words():
    fig, (left, right) = figure(2, width=2.0, height=1.0)
    label(left, "Wanda < magnitude")
    right.set_title("centred")
    fig.suptitle('both, "dense" aside')
    shown, _ = InteractiveShell().display_formatter.format(fig)
    assert base64.b64decode(shown["image/png"]).startswith(b"\x89PNG")
    assert f'alt="{html.escape(fig.described())}"' in shown["text/html"]
    assert fig.described() == 'both, "dense" aside; Wanda < magnitude; centred'
    assert shown["image/png"] in shown["text/html"]
    assert figure()[0].described() == "a figure without a title"


def test_a_small_table_of_equal_numbers_is_written_down_and_not_white():
    """0.25 of the scale 0 to 0.3; of 5 × 5 numbers none is written, and none of what is no number fails."""
    few = compare_grids(torch.full((1, 3), 0.25), torch.full((1, 3), 0.25), "token", "query")
    for panel in few.axes:
        assert [text.get_text() for text in panel.texts] == ["0.25"] * 3
        assert [text.get_color() for text in panel.texts] == ["white"] * 3
        assert panel.images[0].get_clim() == pytest.approx((0.0, 0.3))
    many = compare_grids(torch.full((5, 5), torch.nan), torch.ones(5, 5), "token", "query")
    assert not [text for panel in many.axes for text in panel.texts]
