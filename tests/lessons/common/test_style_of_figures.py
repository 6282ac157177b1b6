"""Figures show themselves, with words for those who cannot see them."""

import base64
import html

from IPython.core.interactiveshell import InteractiveShell

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
