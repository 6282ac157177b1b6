"""The interactive view of lesson 09 shows which neurons matter for a token, also without a browser."""

import re

import ipywidgets
import pytest
import torch

from course_lib.lessons.common import views
from course_lib.lessons.dejavu import widgets


@pytest.fixture
def seen():
    """Six tokens, two blocks of ten neurons: in the first, token t needs neurons t and t + 1; the second is fixed."""
    moving = torch.zeros(6, 10)
    for token in range(6):
        moving[token, [token, token + 1]] = torch.tensor([2.0, 1.0])
    fixed = torch.arange(10.0).repeat(6, 1)
    elsewhere = [torch.arange(10.0).flip(0)[None], fixed[:2]]
    return widgets.choices(["a", "<b", "c", "d", "e", "f"], [moving, fixed], elsewhere)


def test_keeps_a_fraction_of_the_neurons_and_none_that_is_zero(seen):
    assert seen.keep(0, 0.2).sum(dim=1).tolist() == [2] * 6
    assert seen.keep(0, 0.2)[3].nonzero().flatten().tolist() == [3, 4]
    assert seen.keep(0, 0.9).sum(dim=1).tolist() == [2] * 6  # seven more would be zeros
    assert seen.static(0, 0.2).nonzero().flatten().tolist() == [0, 1]
    assert seen.static(1, 0.2).nonzero().flatten().tolist() == [8, 9]


def test_the_caption_compares_with_the_previous_token_and_with_a_static_set(seen):
    # Neighbors share one of two neurons; neurons 0 and 1 hold three of the twelve choices.
    text = widgets.caption(seen, 0, 0.2, "block 7")
    assert text.startswith(
        "block 7: 20 % of the neurons are chosen. On average 50 % of them were chosen for the previous"
    )
    assert "and 25 % are in the static set; at random it would be 20 %" in text
    assert "100 % of them were chosen for the previous token too, and 100 % are" in widgets.caption(seen, 1, 0.2)


def test_cells_are_dark_where_the_previous_token_chose_them_and_light_otherwise(seen):
    page = widgets.as_html(seen, 0, 1, 0.2, "one & two")
    assert "one &amp; two: 20 %" in page
    assert "&lt;b" in page
    assert "<b<" not in page
    assert page.count("<svg") == page.count('aria-label="') == widgets.SHOWN
    assert 'aria-label="1 neurons chosen again, 1 new"' in page
    again, new = (re.search(rf'fill="{colour}" d="([^"]*)"', page)[1] for colour in (widgets.AGAIN, widgets.NEW))
    assert (again, new) == ("M1 0h1v1h-1z", "M2 0h1v1h-1z")  # token 1 has neurons 1, 2; usual order is that of numbers


@pytest.mark.parametrize(("block", "token"), [(2, 1), (-1, 1), (0, 0), (0, 3)])
def test_refuses_blocks_and_tokens_out_of_range(seen, block, token):
    with pytest.raises(ValueError, match="expected 0 to 1 and 1 to 2"):
        widgets.as_html(seen, block, token, 0.2)


@pytest.mark.parametrize("density", [0.0, 1.5, float("nan")])
def test_refuses_what_is_no_density(seen, density):
    with pytest.raises(ValueError, match="expected a fraction of the neurons"):
        seen.keep(0, density)


def test_refuses_importance_of_another_text():
    with pytest.raises(ValueError, match="got 2 tokens, importance"):
        widgets.choices(["a", "b"], [torch.ones(3, 4)], [torch.ones(1, 4)])


def test_controls_change_what_is_shown(seen, monkeypatch):
    shown = []
    monkeypatch.setattr(views, "display", lambda *_: None)
    monkeypatch.setattr(views.DisplayHandle, "display", lambda _, page: shown.append(page.data))
    monkeypatch.setattr(views.DisplayHandle, "update", lambda _, page: shown.append(page.data))
    controls = widgets.show_choices(seen, density=0.2, names=("early", "late"))
    assert isinstance(controls, ipywidgets.VBox)
    assert "early: 20 %" in shown[-1]
    _, block, token, density = controls.children[0].children
    block.value = 1
    assert "late: 20 %" in shown[-1]
    density.value = 0.5
    assert "late: 50 %" in shown[-1]
    before = shown[-1]
    token.value = 2
    assert shown[-1] != before
